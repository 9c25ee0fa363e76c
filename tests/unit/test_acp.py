"""An ACP agent as a child: its handshake, its words, its permissions, its ending, its processes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import psutil
import pytest

from lastword.backends.acp import AcpBackend
from lastword.backends.acp.agents import PRESETS, AcpAgent
from lastword.backends.acp.updates import UpdateReader
from lastword.backends.orphan_guard import MARK, is_alive
from lastword.core.contract import ChildTask, LogRef, SessionRef, TurnSpec
from lastword.core.errors import RequestRejected, ResumeRefused
from lastword.core.events import SessionEvent, text_of
from lastword.core.output import final_assistant_output
from lastword.core.ports import Resume
from lastword.core.recovery import GO_ON
from tests.hosts import FixedHost
from tests.integration.contract.rigs import acp_agent

CODEX_RETRIES = {"_meta": {"codex": {"error": {"willRetry": True}}}, "sessionUpdate": "session_info_update"}
CODEX_BROKE = {"_meta": {"codex": {"threadStatus": {"type": "systemError"}}}, "sessionUpdate": "session_info_update"}


def spec_of(*steps: dict[str, Any], **task: Any) -> TurnSpec:
    task = {"prompt": json.dumps(steps), **task}
    return TurnSpec(
        id="d", turn_run_id="r", log=LogRef(session_id="d", run_id="r"), task=ChildTask.model_validate(task)
    )


class Run:
    """One turn of the scripted agent, and what came of it."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.host = FixedHost()
        self.env: dict[str, str] = {}
        self.agent: dict[str, Any] = {}
        self.session: SessionRef | None = None

    async def __call__(self, *steps: dict[str, Any], resume: Resume | None = None, **task: Any) -> list[SessionEvent]:
        async with self.backend.open(spec_of(*steps, **task), resume, self.host) as turn:
            self.session = turn.session
            return [event async for event in turn.events()]

    @property
    def backend(self) -> AcpBackend:
        agent = acp_agent(self.state, **self.env).model_copy(update=self.agent)
        return AcpBackend("acp:test", agent)

    @property
    def kept(self) -> dict[str, Any]:
        """What the agent wrote down of its only session."""
        (file,) = self.state.glob("*.json")
        kept: dict[str, Any] = json.loads(file.read_text())
        return kept


@pytest.fixture
async def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def output(events: list[SessionEvent]) -> str:
    return text_of(final_assistant_output(events) or [])


def ending(events: list[SessionEvent]) -> tuple[str, dict[str, Any]]:
    assert events[-1].type == "turn/end"
    return events[-1].data["reason"]["kind"], events[-1].data.get("diagnostic") or {}


def is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and is_alive(psutil.Process(pid))


async def test_words_thoughts_and_tools_are_logged_and_only_words_are_selected(run: Run) -> None:
    steps = [{"think": "hm"}, {"say": "one ", "id": "a"}, {"say": "two ", "id": "b"}, {"tool": "1"}, {"say": "three"}]
    events = await run(*steps)
    assert output(events) == "one two three"
    assert ending(events) == ("completed", {})
    kinds = [event.type for event in events if event.type != "assistant/chunk"]
    assert kinds == [
        *("user/message", "step/start", "step/start", "tool/call", "tool/result"),
        *("step/start", "assistant/message", "turn/end"),
    ]
    message = next(event for event in events if event.type == "assistant/message")
    assert [block["text"] for block in message.data["message"]["content"]] == ["one ", "two ", "three"]


async def test_usage_is_that_of_the_prompts_answer(run: Run) -> None:
    events = await run({"usage": {"inputTokens": 3, "outputTokens": 4, "totalTokens": 7}}, {"say": "x"})
    assert [e.data["usage"] for e in events if "usage" in e.data] == [{"input_tokens": 3, "output_tokens": 4}]


@pytest.mark.parametrize(
    ("fault", "facts"),
    [
        ("exit", {"category": "crash", "exit_code": 7}),
        ("error", {"category": "authentication", "rpc_code": -32000}),
        ("no-session", {"category": "agent-error", "rpc_code": -32603}),
        ("hang", {"category": "no-answer", "limit": 0.5}),
    ],
)
async def test_a_failed_handshake_is_an_error_of_its_stage(run: Run, fault: str, facts: dict[str, Any]) -> None:
    run.env["ACP_AGENT_FAULT"] = fault
    run.agent["handshake_timeout"] = 0.5 if fault == "hang" else 30
    kind, told = ending(await run({"say": "never"}))
    assert (kind, told) == ("error", {"stage": "handshake", **facts})


async def test_the_end_of_its_stderr_is_kept_for_a_failed_agent(run: Run) -> None:
    failed = await run({"stderr": 200}, {"exit": 3})
    (told,) = [event for event in failed if event.type == "agent/stderr"]
    assert told.data["lines"][-1].startswith("line 199 ")
    assert len(told.data["lines"]) == 64
    fine = await run({"stderr": 3}, {"say": "x"})
    assert [event for event in fine if event.type == "agent/stderr"] == []


async def test_junk_before_the_handshake_does_no_harm(run: Run) -> None:
    run.env["ACP_AGENT_FAULT"] = "junk"
    assert output(await run({"say": "fine"})) == "fine"


async def test_a_cancel_in_the_handshake_leaves_no_process(run: Run) -> None:
    run.env["ACP_AGENT_FAULT"] = "hang"
    opening = asyncio.create_task(run({"say": "never"}))
    while not [p for p in psutil.Process().children() if "acp_agent.py" in str(p.cmdline())]:
        await asyncio.sleep(0.01)
    opening.cancel()
    await asyncio.wait([opening])
    assert not [p for p in psutil.Process().children() if "acp_agent.py" in str(p.cmdline())]


@pytest.mark.parametrize(("can", "method"), [("load", "session/load"), ("resume,load", "session/resume")])
async def test_a_session_is_taken_up_and_asked_to_go_on(run: Run, can: str, method: str) -> None:
    run.env["ACP_AGENT_CAN"] = can
    first = await run({"say": "one "}, {"tool": "1"}, {"say": "two "}, {"exit": 3})
    assert run.session is not None
    later = await run(resume=Resume(run.session, first, next_step=3))
    # The agent goes on behind the tool, and breaks there again; its replayed history is not said anew.
    assert [e.data["chunk"]["text"] for e in later if e.type == "assistant/chunk"] == ["two "]
    assert [e.data["step"] for e in later if e.type == "step/start"] == [3]
    assert run.kept["taken_up_by"] == [method]
    assert run.kept["resumed_with"] == GO_ON


async def test_a_session_that_is_gone_is_no_resume(run: Run) -> None:
    gone = SessionRef(backend="acp:test", id="gone", data={"cwd": str(run.state)})
    with pytest.raises(ResumeRefused, match="does not know its session"):
        await run(resume=Resume(gone, [], next_step=2))


async def test_an_agent_that_cannot_load_has_no_session_to_resume(run: Run) -> None:
    run.env["ACP_AGENT_CAN"] = "nothing"
    await run({"say": "x"})
    assert run.session is None


async def test_what_the_child_asks_is_told_with_kind_and_paths(run: Run) -> None:
    events = await run({"tool": "1", "ask": True, "kind": "edit", "path": "/tmp/a", "title": "Edit a"})
    (asked,) = run.host.asked
    assert (asked.kind, asked.title, asked.paths, asked.tool_call_id) == ("edit", "Edit a", ["/tmp/a"], "1")
    assert output(events) == "[reject_once]"


async def test_a_request_that_tells_only_the_id_is_judged_by_what_was_told_before(run: Run) -> None:
    await run({"tool": "1", "ask": True, "kind": "edit", "path": "/tmp/a", "title": "Edit a", "terse": True})
    (asked,) = run.host.asked
    assert (asked.kind, asked.title, asked.paths) == ("edit", "Edit a", ["/tmp/a"])


async def test_allowed_is_allowed_once_and_never_for_always(run: Run) -> None:
    run.host = FixedHost("allow")
    assert output(await run({"tool": "1", "ask": True})) == "[allow_once]"


async def test_an_agent_that_asks_for_nothing_is_asked_for_as_a_whole(run: Run) -> None:
    run.agent["asks"] = False
    with pytest.raises(RequestRejected, match=r"asks for no permissions.*--permissions allow"):
        await run({"say": "x"})
    assert [request.kind for request in run.host.asked] == ["other"]
    run.host = FixedHost("allow")
    assert output(await run({"say": "x"})) == "x"


async def test_the_mode_is_set_and_a_missing_one_is_refused(run: Run) -> None:
    run.env["ACP_AGENT_CAN"] = "modes"
    run.agent["mode"] = "careful"
    await run({"say": "x"})
    assert run.kept["mode"] == "careful"
    run.agent["mode"] = "timid"
    with pytest.raises(RequestRejected, match=r"no mode 'timid'; it has: auto, careful"):
        await run({"say": "x"})


async def test_an_image_goes_to_an_agent_that_takes_it_and_is_refused_loudly_else(run: Run) -> None:
    text = {"type": "text", "text": json.dumps([{"say": "seen"}])}
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    with pytest.raises(RequestRejected, match="does not take image blocks"):
        await run(prompt=[text, image])
    run.env["ACP_AGENT_CAN"] = "image"
    assert output(await run(prompt=[text, image])) == "seen"
    assert run.kept["prompts"] == [[text, image]]


async def test_an_mcp_server_is_handed_on(run: Run) -> None:
    await run({"say": "x"}, mcp_servers=[{"name": "files", "command": "cat", "args": ["-u"], "env": {"A": "1"}}])
    (server,) = run.kept["mcp"]
    assert (server["name"], server["command"], server["args"]) == ("files", "cat", ["-u"])
    assert {"name": "A", "value": "1"} in server["env"]


async def test_a_model_that_nobody_can_choose_is_refused(run: Run) -> None:
    with pytest.raises(RequestRejected, match="lets nobody choose its model"):
        await run({"say": "x"}, model="some")


async def test_the_agent_sees_only_what_it_may_of_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_SECRET", "sk-canary")
    monkeypatch.setenv("AGENT_KEY_ONE", "1")
    run.agent["env_from_worker"] = ["AGENT_KEY_*"]
    await run({"say": "x"})
    environ = run.kept["environ"]
    assert "sk-canary" not in environ.values()
    assert environ["AGENT_KEY_ONE"] == "1"
    assert MARK in environ


async def test_what_an_agent_started_is_gone_with_it(run: Run) -> None:
    pid_file = run.state / "pid"
    await run({"grandchild": str(pid_file)}, {"say": "x"})
    assert not is_running(int(pid_file.read_text()))


async def test_a_command_that_is_not_there_is_named_with_how_to_get_it() -> None:
    backend = AcpBackend("acp:none", AcpAgent(command=["no-such-agent"], install="npm install -g it"))
    assert backend.missing() == [
        "The command 'no-such-agent' is not on the worker's PATH. Install it: npm install -g it."
    ]


def _read(agent: dict[str, Any], *updates: dict[str, Any]) -> UpdateReader:
    reader = UpdateReader(AcpAgent(command=["x"], **agent), turn=1, step=0)
    reader.events = [event for update in updates for event in reader.read(update)]  # type: ignore[attr-defined]
    return reader


def _chunk(text: str, **more: Any) -> dict[str, Any]:
    return {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}, **more}


def _notices(reader: UpdateReader) -> list[str]:
    return [e.data["text"] for e in reader.events if e.type == "agent/notice"]  # type: ignore[attr-defined]


def test_a_chunk_without_an_id_is_the_agents_own_where_it_marks_its_models_so() -> None:
    reader = _read({"unidentified_notices": True}, _chunk("Warning!"), _chunk("words", messageId="m"))
    assert _notices(reader) == ["Warning!"]
    assert text_of(reader.message) == "words"


def test_a_chunk_that_is_wholly_the_agents_own_is_a_notice() -> None:
    pi = PRESETS["pi"].model_dump(exclude={"command"})
    own = ["pi v1.6.0\n---\n", "Retrying (attempt 1/3, waiting 2s)...", "Retry finished, resuming."]
    reader = _read(pi, *map(_chunk, own), _chunk("Retrying (attempt 1/3, waiting 2s)... is what it says"))
    assert _notices(reader) == own
    assert text_of(reader.message) == "Retrying (attempt 1/3, waiting 2s)... is what it says"


def test_an_error_text_is_the_agents_own_as_a_whole_message() -> None:
    agent = {"notices": ["API Error"]}
    reader = _read(agent, _chunk("API Error: 500", messageId="e"), _chunk(" of ours", messageId="e"))
    assert (_notices(reader), reader.message) == (["API Error: 500", " of ours"], [])
    reader = _read(agent, _chunk("An ", messageId="m"), _chunk("API Error is", messageId="m"))
    assert text_of(reader.message) == "An API Error is"


def test_an_attempt_that_the_agent_gave_up_is_logged_and_not_part_of_the_message() -> None:
    reader = _read({}, _chunk("half", messageId="1"), CODEX_RETRIES, _chunk("whole", messageId="2"))
    kinds = [e.type for e in reader.events]  # type: ignore[attr-defined]
    assert kinds == ["step/start", "assistant/chunk", "assistant/attempt", "step/start", "assistant/chunk"]
    assert text_of(reader.message) == "whole"


def test_a_notice_of_a_retry_ends_an_attempt() -> None:
    pi = PRESETS["pi"].model_dump(exclude={"command"})
    reader = _read(pi, _chunk("half"), _chunk("Retrying (attempt 1/3, waiting 2s)..."), _chunk("whole"))
    assert text_of(reader.message) == "whole"
    assert [e.type for e in reader.events if e.type == "assistant/attempt"] == ["assistant/attempt"]  # type: ignore[attr-defined]


async def test_an_agent_that_says_it_broke_did_not_complete_whatever_it_answers(run: Run) -> None:
    events = await run({"say": "half"}, {"update": CODEX_BROKE})
    assert (ending(events), output(events)) == (("error", {"category": "agent-error"}), "half")


@pytest.mark.parametrize(
    "update",
    [
        {},
        {"sessionUpdate": "agent_message_chunk"},
        {"sessionUpdate": "agent_message_chunk", "content": "text"},
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": 3}},
        {"sessionUpdate": "tool_call"},
        {"sessionUpdate": "tool_call_update", "toolCallId": "x", "content": [3, None, {"type": "content"}]},
        {"sessionUpdate": "session_info_update", "_meta": {"codex": 3}},
        {"sessionUpdate": "usage_update", "cost": {"amount": "much"}},
        {"sessionUpdate": "of_tomorrow", "content": {"type": "text", "text": "x"}},
    ],
)
def test_an_update_that_makes_no_sense_is_skipped(update: dict[str, Any]) -> None:
    assert _read({}, update).message == []
