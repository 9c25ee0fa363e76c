"""The command line without a server: what is parsed, what is refused, and with which exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lastword import cli
from lastword.cli import errors
from lastword.cli.asking import backend_options, mcp_servers, request_of
from lastword.core.errors import (
    ConfigurationError,
    DelegationNotFound,
    LastwordError,
    RequestConflict,
    RequestInvalid,
    RequestRejected,
    ServerUnreachable,
    WorkerUnavailable,
)

NOWHERE = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No server, and a data directory of its own."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", NOWHERE)
    monkeypatch.setenv("LASTWORD_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("TEMPORAL_PROFILE", raising=False)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.run(list(words))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ServerUnreachable("x"), 3),
        (WorkerUnavailable("x"), 3),
        (RequestInvalid("x"), 2),
        (RequestRejected("x"), 2),
        (RequestConflict("x"), 2),
        (DelegationNotFound("x"), 2),
        (ConfigurationError("x"), 2),
    ],
)
def test_every_refusal_has_its_exit_code(error: LastwordError, code: int) -> None:
    assert errors.exit_code_of(error) == code


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["delegate"], "Give either a prompt or --many FILE"),
        (["delegate", "x", "--timeout", "abc"], "--timeout"),
        (["delegate", "x", "--timeout", "-1"], "--timeout -1.0: Input should be greater than 0"),
        (["delegate", "x", "--idle-timeout", "0"], "--idle-timeout"),
        (["delegate", "x", "--max-tokens", "0"], "--max-tokens 0"),
        (["delegate", "x", "--token-budget", "0"], "--token-budget 0"),
        (["delegate", "x", "--max-steps", "0"], "--max-steps 0"),
        (["delegate", "x", "--max-tool-calls", "0"], "--max-tool-calls 0"),
        (["delegate", "x", "--on-worker-loss", "pray"], "'resume', 'restart' or 'settle'"),
        (["delegate", "x", "--id", "a/b"], "reserved"),
        (["delegate", "x", "--id", ""], "choose another id"),
        (["delegate", "x", "--label", "l" * 201], "--label"),
        (["delegate", "x", "--option", "novalue"], "KEY=JSON"),
        (["delegate", "x", "--option", "script=["], "--option script is not JSON"),
        (["delegate", "x", "--script", "/no/such/file"], "--script /no/such/file: No such file"),
        (["delegate", "x", "--schema", "/no/such/file"], "--schema /no/such/file: No such file"),
        (["delegate", "x", "--mcp", "/no/such/file"], "--mcp /no/such/file: No such file"),
        (["delegate", "x", "--mcp", "["], "--mcp is not JSON"),
        (["delegate", "x", "--mcp", '{"name": "a"}'], "--mcp at 0: MCP server 'a' needs either a command or a url"),
        (["delegate", "  "], "The prompt is empty"),
        (["delegate", "x" * 300_000], "300000 bytes"),
        (["delegate", "\udcff"], "not UTF-8"),
        (["delegate", "x", "--no-such-flag"], "--no-such-flag"),
        (["no-such-command"], "no-such-command"),
        (["list", "--limit", "0"], "--limit"),
        (["result"], "Missing argument"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "words", [["delegate", "x"], ["watch", "x"], ["cancel", "x"], ["result", "x"], ["list"], ["log", "x"], ["backends"]]
)
def test_no_server_is_exit_3_with_the_address_its_source_and_the_remedy(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out) == (3, "")
    for part in (NOWHERE, "TEMPORAL_ADDRESS", "lastword up"):
        assert part in err
    assert len(err.strip().splitlines()) == 1


def test_an_error_is_one_object_under_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "delegate", "x", "--id", "mine", "--json")
    told = json.loads(out)
    assert code == 3
    assert told["id"] == "mine"
    assert told["is_error"] is True
    assert NOWHERE in told["error"]
    assert err.startswith("error: ")
    assert json.loads(run(capsys, "result", "x", "--json")[1])["id"] == "x"
    assert json.loads(run(capsys, "delegate", " ", "--json")[1])["is_error"] is True


@pytest.mark.parametrize("address", ["foo bar", "http://", "127.0.0.1:port"])
def test_an_address_that_is_none_is_refused_without_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", address)
    code, _, err = run(capsys, "list")
    assert code in (2, 3)
    assert address in err


def test_doctor_without_a_server_names_it_and_still_looks_at_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "doctor", "--json")
    told = json.loads(out)
    checks = {check["name"]: check for check in told["checks"]}
    assert (code, told["ok"], told["address"]) == (3, False, NOWHERE)
    assert checks["session log"]["ok"] is True
    assert checks["server"]["ok"] is False
    assert "lastword up" in checks["server"]["remedy"]


def test_doctor_tells_a_wrong_setting_as_a_problem(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LASTWORD_MAX_CHILDREN", "many")
    code, out, _ = run(capsys, "doctor")
    assert code == 1
    assert "LASTWORD_MAX_CHILDREN" in out


def test_the_prompt_on_stdin_has_to_be_utf_8() -> None:
    done = CliRunner().invoke(cli.app, ["delegate", "-"], input=b"ab\xff")
    assert isinstance(done.exception, RequestInvalid)
    assert "at byte 2" in str(done.exception)


def test_help_and_version_are_exit_0(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--version")
    assert code == 0
    assert out.strip()
    assert run(capsys, "--help")[0] == 0
    assert run(capsys, "delegate", "--help")[0] == 0


def test_mcp_servers_come_from_a_file_or_the_command_line(tmp_path: Path) -> None:
    server = {"name": "files", "command": "serve"}
    (tmp_path / "one.json").write_text(json.dumps(server))
    (tmp_path / "list.json").write_text(json.dumps([server, server]))
    assert mcp_servers(str(tmp_path / "one.json")) == [server]
    assert mcp_servers(str(tmp_path / "list.json")) == [server, server]
    assert mcp_servers(json.dumps([server])) == [server]
    assert mcp_servers(json.dumps(server)) == [server]


def test_backend_options_are_json_or_the_text_itself(tmp_path: Path) -> None:
    (tmp_path / "script").write_text('[{"delta": "a"}]')
    pairs = ["on_cancel=ignore", "n=3", 'deep={"a": [1]}', "url=a=b"]
    options = backend_options(pairs, tmp_path / "script")
    script: list[Any] = [{"delta": "a"}]
    assert options == {"on_cancel": "ignore", "n": 3, "deep": {"a": [1]}, "url": "a=b", "script": script}


def test_a_field_without_a_flag_is_named_by_itself() -> None:
    with pytest.raises(RequestInvalid, match="depth"):
        request_of({"prompt": "x", "depth": -1})
