"""The command line as a person uses it: real processes, a real server, a real worker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from tests.integration.conftest import until_exists

PYTHON = sys.executable


@dataclass
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Terminal:
    """Runs `lastword` with one server, one queue and one data directory."""

    def __init__(self, address: str, folder: Path) -> None:
        self.folder = folder
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")},
            "TEMPORAL_ADDRESS": address,
            "LASTWORD_DATA_DIR": str(folder),
            "LASTWORD_TASK_QUEUE": f"q-{uuid.uuid4().hex[:8]}",
        }

    async def start(self, *words: str, **env: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            PYTHON, "-m", "lastword.cli", *words, env={**self.env, **env}, stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip

    async def run(self, *words: str, stdin: str = "", **env: str) -> Done:
        return await self.finish(await self.start(*words, **env), stdin)

    async def finish(self, process: asyncio.subprocess.Process, stdin: str = "") -> Done:
        async with asyncio.timeout(60):
            out, err = await process.communicate(stdin.encode())
        assert process.returncode is not None
        assert b"Traceback" not in err, err.decode()
        return Done(process.returncode, out.decode(), err.decode())

    async def until_said(self, process: asyncio.subprocess.Process, words: str) -> None:
        """Return when it has said this on a line of stderr."""
        assert process.stderr is not None
        async with asyncio.timeout(30):
            while words not in (line := (await process.stderr.readline()).decode()):
                assert line, f"it ended without saying {words!r}"

    def scripted(self, prompt: str, *steps: dict[str, Any]) -> list[str]:
        return ["delegate", prompt, "--backend", "scripted", "--option", f"script={json.dumps(steps)}"]


@pytest.fixture(scope="module")
async def terminal(
    dev_server: WorkflowEnvironment, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Terminal]:
    terminal = Terminal(dev_server.client.service_client.config.target_host, tmp_path_factory.mktemp("cli"))
    worker = await asyncio.create_subprocess_exec(
        PYTHON, "-m", "lastword.worker", env=terminal.env, stdout=asyncio.subprocess.PIPE
    )
    assert worker.stdout is not None
    async with asyncio.timeout(60):
        assert (await worker.stdout.readline()).decode().strip() == "worker ready"
    terminal.env["WORKER_PID"] = str(worker.pid)
    yield terminal
    worker.send_signal(signal.SIGTERM)
    async with asyncio.timeout(30):
        assert await worker.wait() == 0


async def test_the_childs_words_are_stdout_and_everything_else_is_stderr(terminal: Terminal) -> None:
    done = await terminal.run("delegate", "three plain words", "--backend", "scripted")
    assert (done.code, done.out) == (0, "three plain words\n")
    assert "id: lw-" in done.err


async def test_json_is_one_object(terminal: Terminal) -> None:
    done = await terminal.run("delegate", "-", "--backend", "scripted", "--json", stdin="from stdin")
    assert done.code == 0
    assert done.json["is_error"] is False
    assert done.json["content"] == [{"type": "text", "text": "from stdin"}]
    assert done.json["result"]["stop_reason"] == "completed"
    assert done.json["result"]["attempts"] == 1


async def test_a_child_that_does_not_complete_is_exit_1_with_its_partial(terminal: Terminal) -> None:
    done = await terminal.run(*terminal.scripted("x", {"delta": "half"}, {"end": "max-tokens"}))
    assert (done.code, done.out) == (1, "half\n")
    assert "max-tokens" in done.err


async def test_ctrl_c_cancels_and_prints_the_partial(terminal: Terminal, tmp_path: Path) -> None:
    here = tmp_path / "here"
    process = await terminal.start(
        *terminal.scripted("x", {"delta": "so far"}, {"touch": str(here)}, {"fault": "hang"})
    )
    await until_exists(here)
    process.send_signal(signal.SIGINT)
    done = await terminal.finish(process)
    assert (done.code, done.out) == (130, "so far\n")


async def test_a_second_ctrl_c_lets_go_and_the_child_goes_on(terminal: Terminal, tmp_path: Path) -> None:
    here, gate = tmp_path / "here", tmp_path / "gate"
    options = ["--option", "on_cancel=ignore", "--id", "let-go"]
    process = await terminal.start(
        *terminal.scripted("x", {"delta": "a"}, {"touch": str(here)}, {"wait_for": str(gate)}), *options
    )
    await until_exists(here)
    process.send_signal(signal.SIGINT)
    await terminal.until_said(process, "once more")
    process.send_signal(signal.SIGINT)
    done = await terminal.finish(process)
    assert done.code == 130
    assert "lastword watch let-go" in done.err
    gate.touch()
    assert (await terminal.run("result", "let-go")).code in (0, 1)


async def test_the_same_id_attaches_and_another_request_is_refused(terminal: Terminal, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    words = terminal.scripted("x", {"tool": {"id": "1", "appends_to": str(runs)}}, {"delta": "once"})
    first = await terminal.run(*words, "--id", "same")
    again = await terminal.run(*words, "--id", "same")
    assert (first.out, again.out) == ("once\n", "once\n")
    assert len(runs.read_text().splitlines()) == 1
    other = await terminal.run("delegate", "other", "--backend", "scripted", "--id", "same")
    assert other.code == 2
    assert "belongs to another request" in other.err


async def test_watching_from_another_terminal_only_looks(terminal: Terminal, tmp_path: Path) -> None:
    here, gate = tmp_path / "here", tmp_path / "gate"
    words = terminal.scripted("x", {"delta": "seen "}, {"touch": str(here)}, {"wait_for": str(gate)}, {"delta": "all"})
    started = await terminal.run(*words, "--background", "--id", "watched")
    assert started.out == "watched\n"
    await until_exists(here)
    looking = await terminal.start("watch", "watched")
    assert looking.stdout is not None
    async with asyncio.timeout(30):
        assert await looking.stdout.readexactly(5) == b"seen "
    looking.send_signal(signal.SIGINT)
    assert (await terminal.finish(looking)).code == 130
    gate.touch()
    done = await terminal.run("watch", "watched")
    assert (done.code, done.out) == (0, "seen all\n")


async def test_cancel_result_list_and_log_find_it(terminal: Terminal, tmp_path: Path) -> None:
    here = tmp_path / "here"
    words = terminal.scripted("x", {"delta": "partial"}, {"touch": str(here)}, {"fault": "hang"})
    await terminal.run(*words, "--background", "--id", "cut", "--label", "my label")
    await until_exists(here)
    waiting = await terminal.run("result", "cut", "--no-wait")
    assert (waiting.code, waiting.out) == (1, "")
    live = await terminal.run("log", "cut", "--json")
    assert "assistant/chunk" in live.out
    assert (await terminal.run("cancel", "cut")).out == "partial\n"
    done = await terminal.run("result", "cut", "--full")
    assert (done.code, done.out) == (1, "partial\n")
    log = await terminal.run("log", "cut")
    assert "turn/end" in log.out
    async with asyncio.timeout(30):
        while not (rows := [row for row in (await terminal.run("list", "--json")).json if row["id"] == "cut"]):
            await asyncio.sleep(0.1)
    assert rows[0]["stop_reason"] == "aborted"
    assert rows[0]["label"] == "my label"
    assert "cut" in (await terminal.run("list")).out


async def test_cancel_by_force_works_while_the_worker_is_stopped(terminal: Terminal, tmp_path: Path) -> None:
    here, worker = tmp_path / "here", int(terminal.env["WORKER_PID"])
    words = terminal.scripted("x", {"delta": "salvaged"}, {"touch": str(here)}, {"fault": "hang"})
    await terminal.run(*words, "--background", "--id", "forced")
    await until_exists(here)
    async with asyncio.timeout(30):
        while "salvaged" not in (await terminal.run("log", "forced")).out:
            await asyncio.sleep(0.1)
    os.kill(worker, signal.SIGSTOP)
    try:
        done = await terminal.run("cancel", "forced", "--force")
    finally:
        os.kill(worker, signal.SIGCONT)
    assert (done.code, done.out) == (0, "salvaged\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["result", "no-such-id"], "No delegation 'no-such-id'"),
        (["watch", "no-such-id"], "No delegation 'no-such-id'"),
        (["cancel", "no-such-id"], "No delegation 'no-such-id'"),
        (["cancel", "no-such-id", "--force"], "No delegation 'no-such-id'"),
        (["log", "no-such-id"], "No delegation 'no-such-id'"),
        (["delegate", "x", "--backend", "nope"], "it has: acp:claude"),
        (["delegate", "x", "--model", "openai-chat:gpt"], "OPENAI_API_KEY"),
        (["delegate", "x"], "--model"),
        (["delegate", "x", "--backend", "scripted", "--max-tokens", "9"], "does not support max tokens"),
    ],
)
async def test_what_cannot_be_done_is_told_in_a_line(terminal: Terminal, words: list[str], said: str) -> None:
    done = await terminal.run(*words)
    assert (done.code, done.out) == (2, "")
    (line,) = [line for line in done.err.splitlines() if not line.startswith("id: ")]
    assert said in line


async def test_a_question_is_shown_listed_and_answered(terminal: Terminal) -> None:
    words = terminal.scripted("x", {"ask": {"kind": "execute", "title": "make it"}}, {"message": None})
    asking = await terminal.start(*words, "--id", "asking", "--permissions", "ask")
    await terminal.until_said(asking, "lastword answer asking allow|reject")
    listed = await terminal.run("questions")
    assert "execute 'make it'" in listed.out
    (question,) = (await terminal.run("questions", "asking", "--json")).json
    assert (question["kind"], question["delegation_id"]) == ("execute", "asking")
    answered = await terminal.run("answer", "asking", "allow", "--question", question["id"])
    assert (answered.code, answered.err) == (0, "allow: execute make it\n")
    done = await terminal.finish(asking)
    assert (done.code, done.out) == (0, "allowed \n")
    late = await terminal.run("answer", "asking", "reject")
    assert late.code == 2


async def test_permissions_may_be_a_policy(terminal: Terminal, tmp_path: Path) -> None:
    policy = tmp_path / "policy.json"
    policy.write_text('{"mode": "rules", "rules": [{"kinds": ["read"], "decision": "allow"}]}')
    words = terminal.scripted("x", {"ask": {"kind": "read"}}, {"ask": {"kind": "edit"}}, {"message": None})
    done = await terminal.run(*words, "--permissions", str(policy))
    assert done.out == "allowed rejected \n"
    wrong = await terminal.run(*words, "--permissions", '{"mode": "perhaps"}')
    assert (wrong.code, wrong.out) == (2, "")
    assert "--permissions at mode perhaps" in wrong.err


async def test_the_presets_are_told_with_what_they_lack(terminal: Terminal) -> None:
    reports = {row["name"]: row for row in (await terminal.run("backends", "--json")).json}
    assert {"acp:claude", "acp:codex", "acp:opencode", "acp:gemini", "deepseek-harness", "claude-agent"} <= set(reports)
    done = await terminal.run("delegate", "x", "--backend", "acp:no-such")
    assert done.code == 2


async def test_a_rejected_delegation_stays_one_and_is_an_object_under_json(terminal: Terminal) -> None:
    words = ["delegate", "x", "--backend", "nope", "--id", "rejected", "--json"]
    for done in (await terminal.run(*words), await terminal.run("result", "rejected", "--json")):
        assert (done.code, done.json["id"], done.json["is_error"]) == (2, "rejected", True)
        assert "it has: acp:claude" in done.json["error"]


async def test_without_a_worker_it_is_told_that_nobody_takes_from_the_queue(terminal: Terminal) -> None:
    words = ["delegate", "x", "--backend", "scripted", "--id"]
    left, cut = await asyncio.gather(
        terminal.start(*words, "left", LASTWORD_TASK_QUEUE="q-empty"),
        terminal.start(*words, "cut-in-the-queue", LASTWORD_TASK_QUEUE="q-empty"),
    )
    await terminal.until_said(cut, "id: cut-in-the-queue")
    cut.send_signal(signal.SIGINT)
    done, interrupted = await asyncio.gather(terminal.finish(left), terminal.finish(cut))
    assert (done.code, done.out) == (3, "")
    assert "queued, not picked up after 5 s" in done.err
    assert "'q-empty'" in done.err
    assert "lastword watch left" in done.err
    assert interrupted.code == 130
    assert "lastword cancel cut-in-the-queue --force" in interrupted.err
    forced = await terminal.run("cancel", "cut-in-the-queue", "--force")
    assert (forced.code, forced.out) == (0, "")


async def test_sigterm_lets_go_and_the_child_goes_on(terminal: Terminal, tmp_path: Path) -> None:
    here, gate = tmp_path / "here", tmp_path / "gate"
    words = terminal.scripted("x", {"delta": "to the end"}, {"touch": str(here)}, {"wait_for": str(gate)})
    process = await terminal.start(*words, "--id", "termed", "--json")
    await until_exists(here)
    process.send_signal(signal.SIGTERM)
    done = await terminal.finish(process)
    assert (done.code, done.json["id"]) == (130, "termed")
    assert "lastword watch termed" in done.err
    gate.touch()
    after = await terminal.run("result", "termed")
    assert (after.code, after.out) == (0, "to the end\n")


async def test_a_reader_that_goes_away_is_no_traceback(terminal: Terminal) -> None:
    process = await terminal.start(*terminal.scripted("x", {"text": {"bytes": 200_000}}))
    assert process.stdout is not None
    assert process.stderr is not None
    await process.stdout.readexactly(10)
    # asyncio has no public way to close the reading end alone.
    process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
    async with asyncio.timeout(60):
        err = (await process.stderr.read()).decode()
        assert await process.wait() == 1
    assert "Traceback" not in err
    assert "Come back with: lastword watch" in err


async def test_a_long_output_is_cut_in_the_result_and_whole_with_full(terminal: Terminal, tmp_path: Path) -> None:
    words = terminal.scripted("x", {"text": {"bytes": 400_000, "delta_bytes": 4000}}, {"message": None})
    live = await terminal.run(*words, "--id", "long")
    assert len(live.out) == 400_001
    assert "lastword result long --full" in live.err
    cut, full, elsewhere = await asyncio.gather(
        terminal.run("result", "long"),
        terminal.run("result", "long", "--full"),
        terminal.run("result", "long", "--full", "--data-dir", str(tmp_path)),
    )
    assert full.out == live.out
    assert cut.out == elsewhere.out
    assert len(cut.out) < 300_000
    assert "Set LASTWORD_LOG_STORE" in elsewhere.err
    unseen = await terminal.run("log", "long", "--data-dir", str(tmp_path))
    assert "--- missing: events 0 to" in unseen.out


async def test_a_terminal_without_the_log_still_shows_the_last_word(terminal: Terminal, tmp_path: Path) -> None:
    await terminal.run("delegate", "said elsewhere", "--backend", "scripted", "--id", "elsewhere")
    done = await terminal.run("watch", "elsewhere", "--data-dir", str(tmp_path))
    assert (done.code, done.out) == (0, "said elsewhere\n")
    assert "could not be read" in done.err


async def test_doctor_and_backends_tell_what_is_missing_with_the_remedy(terminal: Terminal) -> None:
    done = await terminal.run("doctor", "--json")
    assert done.code == 0
    checks = {check["name"]: check for check in done.json["checks"]}
    assert checks["worker"]["ok"] is True
    assert "--model" in checks["in-process"]["remedy"]
    assert done.json["worker"]["pid"] == int(terminal.env["WORKER_PID"])
    assert "scripted" in (await terminal.run("backends")).out
