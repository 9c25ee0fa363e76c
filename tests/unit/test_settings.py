"""Settings: where they come from, and what is refused."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from lastword.backends.registry import acp_agents, installed_backends
from lastword.core.errors import ConfigurationError
from lastword.embedded.state import UpState, read_state, write_state
from lastword.settings import load_settings, server_address


def test_an_explicit_data_directory_wins_over_the_environment(tmp_path: Path) -> None:
    env = {"LASTWORD_DATA_DIR": str(tmp_path / "env")}
    assert load_settings(environ=env).data_dir == tmp_path / "env"
    settings = load_settings(data_dir=tmp_path / "flag", environ=env)
    assert settings.data_dir == tmp_path / "flag"
    assert settings.log_store == str(tmp_path / "flag" / "sessions")


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"LASTWORD_MAX_CHILDREN": "many"}, "LASTWORD_MAX_CHILDREN is 'many'"),
        ({"LASTWORD_MAX_CHILDREN": "0"}, "at least 1"),
        ({"LASTWORD_LOG_LEVEL": "loud"}, "LASTWORD_LOG_LEVEL is 'LOUD'"),
    ],
)
def test_a_wrong_value_fails_at_load_with_its_variable(tmp_path: Path, env: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        load_settings(data_dir=tmp_path, environ=env)


def test_a_file_is_no_data_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="is a file"):
        load_settings(data_dir=tmp_path / "file")


def test_the_address_is_temporals_own_then_ups_then_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEMPORAL_ADDRESS", raising=False)
    settings = load_settings(data_dir=tmp_path)
    assert server_address(settings).target == "127.0.0.1:7233"
    me = psutil.Process()
    state = UpState(
        pid=me.pid, create_time=me.create_time(), address="127.0.0.1:1", ui_url="http://127.0.0.1:2", server_pid=1
    )
    write_state(tmp_path, state)
    assert server_address(settings).target == "127.0.0.1:1"
    monkeypatch.setenv("TEMPORAL_ADDRESS", "elsewhere:7233")
    assert server_address(settings).target == "elsewhere:7233"
    assert "TEMPORAL_ADDRESS" in server_address(settings).source


def test_the_state_of_a_process_that_is_gone_is_no_state(tmp_path: Path) -> None:
    me = psutil.Process()
    # The same pid, started at another time: another process.
    state = UpState(pid=me.pid, create_time=me.create_time() - 99, address="a", ui_url="u", server_pid=1)
    write_state(tmp_path, state)
    assert read_state(tmp_path) is None


def _with_file(tmp_path: Path, text: str) -> dict[str, str]:
    file = tmp_path / "settings.toml"
    file.write_text(text)
    return {"LASTWORD_SETTINGS": str(file), "LASTWORD_DATA_DIR": str(tmp_path)}


def test_agents_and_permissions_come_from_the_settings_file(tmp_path: Path) -> None:
    text = """
        [agents.mine]
        command = ["my-agent", "--acp"]
        [agents.claude]
        command = ["/opt/claude-agent-acp"]
        [permissions]
        mode = "rules"
        rules = [{ kinds = ["read"], within = "workspace", decision = "allow" }]
    """
    settings = load_settings(environ=_with_file(tmp_path, text))
    assert settings.permissions is not None
    assert settings.permissions.rules[0].kinds == ["read"]
    backends = installed_backends(agents=settings.agents)
    assert {"acp:mine", "acp:claude", "acp:codex"} <= set(backends)
    agents = acp_agents(settings.agents)
    assert agents["mine"].command == ["my-agent", "--acp"]
    # What an entry does not say stays the preset's.
    assert (agents["claude"].command, agents["claude"].mode) == (["/opt/claude-agent-acp"], "default")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("agents = [", "cannot be read"),
        ("[agnets.mine]", "has 'agnets'; it may have: agents, mcp, permissions"),
        ("[permissions]\nmode = 'maybe'", "permissions.mode in .*settings.toml' is wrong"),
        ("[permissions]\nanswer_within = -1", "permissions.answer_within"),
        ("[mcp]\nbackends = []", "mcp.backends in .*settings.toml' is wrong"),
        ("[mcp]\ncaller = 'x'", "mcp.caller"),
    ],
)
def test_a_wrong_settings_file_fails_at_load(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        load_settings(environ=_with_file(tmp_path, text))


def test_a_wrong_agent_is_named_with_its_field() -> None:
    with pytest.raises(ConfigurationError, match="agent 'mine' of the settings file is wrong at command"):
        installed_backends(agents={"mine": {"commnad": ["x"]}})


def test_a_settings_file_that_is_named_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="does not exist"):
        load_settings(environ={"LASTWORD_SETTINGS": str(tmp_path / "none.toml"), "LASTWORD_DATA_DIR": str(tmp_path)})
