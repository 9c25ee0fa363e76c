"""DeepSeek Harness as a child, played by a runtime that speaks its wire and writes its log."""

from __future__ import annotations

import asyncio
import json
import sys
import types
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from lastword.backends.deepseek_harness import DeepSeekHarnessBackend
from lastword.backends.deepseek_harness.disk_log import events_on_disk
from lastword.core.contract import ChildTask, LogRef, SessionRef, TurnSpec
from lastword.core.errors import ResumeRefused
from lastword.core.events import SessionEvent, text_of
from lastword.core.output import final_assistant_output
from lastword.core.ports import Resume
from lastword.core.recovery import GO_ON
from tests.hosts import FixedHost

RUNTIME = str(Path(__file__).parents[1] / "fixtures" / "harness_runtime.py")
START = {"event": {"type": "turn/start", "data": {"turn": 7}}}
IDLE = {"status": "idle"}


def message(*texts: str, step: int = 1, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": text} for text in texts]
    stream = [{"type": "text-chunks", "time0": 1, "index": 0, "dt": [], "texts": list(texts)}]
    body = {"role": "assistant", "content": content}
    return {"type": "assistant/message", "data": {"turn": 7, "step": step, "message": body, "stream": stream, **more}}


def end(kind: str, **more: Any) -> dict[str, Any]:
    return {"event": {"type": "turn/end", "data": {"turn": 7, "reason": {"kind": kind, **more}}}}


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeepSeekHarnessBackend:
    module = types.ModuleType("deepseek_harness_runtime")
    module.resolve_bundled_launch_args = lambda: (sys.executable, RUNTIME)  # type: ignore[attr-defined]
    module.__spec__ = ModuleSpec("deepseek_harness_runtime", None)
    monkeypatch.setitem(sys.modules, "deepseek_harness_runtime", module)
    monkeypatch.setenv("DSH_HOME", str(tmp_path))
    return DeepSeekHarnessBackend()


def spec_of(*script: dict[str, Any]) -> TurnSpec:
    task = ChildTask(prompt=json.dumps(script), backend="deepseek-harness")
    return TurnSpec(id="d", turn_run_id="r", log=LogRef(session_id="d", run_id="r"), turn=3, task=task)


async def run(
    backend: DeepSeekHarnessBackend, *script: dict[str, Any], resume: Resume | None = None
) -> list[SessionEvent]:
    async with asyncio.timeout(30), backend.open(spec_of(*script), resume, FixedHost()) as turn:
        return [event async for event in turn.events()]


def ending(events: list[SessionEvent]) -> tuple[str, dict[str, Any]]:
    return events[-1].data["reason"]["kind"], events[-1].data.get("diagnostic") or {}


def output(events: list[SessionEvent]) -> str:
    return text_of(final_assistant_output(events) or [])


async def test_its_events_are_folded_as_they_are_with_this_turns_number(backend: DeepSeekHarnessBackend) -> None:
    events = await run(
        backend,
        START,
        {"event": {"type": "system/message", "data": {"turn": 7, "message": "sk-canary"}}},
        {"event": {"type": "step/start", "data": {"turn": 7, "step": 1}}},
        {"event": message("a", usage={"inputTokens": 3, "outputTokens": 4})},
        {"event": {"type": "tool/call", "data": {"turn": 7, "step": 1, "callId": "c", "name": "t"}}},
        {"event": {"type": "tool/result", "data": {"turn": 7, "step": 1, "message": {"toolCallId": "c"}}}},
        {"event": message("b", step=2)},
        end("completed"),
        IDLE,
    )
    assert (output(events), ending(events)) == ("b", ("completed", {}))
    kinds = [event.type for event in events]
    assert kinds == [
        *("user/message", "step/start", "assistant/message", "tool/call", "tool/result"),
        *("assistant/message", "turn/end"),
    ]
    assert {event.data["turn"] for event in events} == {3}
    assert events[2].data["usage"] == {"input_tokens": 3, "output_tokens": 4}
    assert [event.data["id"] for event in events[3:5]] == ["c", "c"]


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("max-tokens", ("max-tokens", {})),
        ("error", ("error", {"category": "agent-error"})),
        ("aborted", ("error", {"category": "agent-cancelled"})),
    ],
)
async def test_its_reason_is_the_turns_without_its_words(
    backend: DeepSeekHarnessBackend, kind: str, told: tuple[str, dict[str, Any]]
) -> None:
    events = await run(backend, START, {"event": message("a")}, end(kind, error={"message": "sk-canary"}), IDLE)
    assert ending(events) == told
    assert "sk-canary" not in events[-1].model_dump_json()


async def test_the_turn_goes_on_until_its_own_children_are_idle(backend: DeepSeekHarnessBackend) -> None:
    events = await run(
        backend,
        START,
        {"child": "x"},
        end("completed"),
        IDLE,
        {"event": message("after the child")},
        {"child": "x", "ends": True},
    )
    assert output(events) == "after the child"


async def test_a_cancel_finds_the_partial_on_its_disk(backend: DeepSeekHarnessBackend) -> None:
    script = (START, {"event": message("told")}, {"disk": message("half of ", "an answer", interrupted=True)})
    seen: list[SessionEvent] = []
    async with asyncio.timeout(30), backend.open(spec_of(*script), None, FixedHost()) as turn:
        async for event in turn.events():
            seen.append(event)
            if event.type == "assistant/message" and len(seen) == 2:
                await turn.cancel()
    assert (output(seen), ending(seen)) == ("half of an answer", ("aborted", {}))


async def test_a_crash_keeps_what_is_on_its_disk_and_is_told(backend: DeepSeekHarnessBackend) -> None:
    events = await run(backend, START, {"disk": message("on disk")}, {"exit": 5})
    assert (output(events), ending(events)) == ("on disk", ("error", {"category": "crash", "exit_code": 5}))


async def test_a_session_is_taken_up_and_asked_to_go_on(backend: DeepSeekHarnessBackend, tmp_path: Path) -> None:
    (tmp_path / "kept").touch()
    ref = SessionRef(backend="deepseek-harness", id="kept")
    async with asyncio.timeout(30), backend.open(spec_of(), Resume(ref, [], next_step=4), FixedHost()) as turn:
        stream = turn.events()
        asking = asyncio.ensure_future(anext(stream))
        while not (tmp_path / "prompts").exists():
            await asyncio.sleep(0.01)
        asking.cancel()
    assert (tmp_path / "prompts").read_text() == GO_ON + "\n"
    with pytest.raises(ResumeRefused):
        await run(backend, resume=Resume(SessionRef(backend="deepseek-harness", id="gone"), [], next_step=4))


async def test_without_a_home_it_says_what_is_missing(
    backend: DeepSeekHarnessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DSH_HOME")
    assert any("DSH_HOME is not set" in sentence for sentence in backend.missing())


def test_a_log_that_is_being_written_gives_what_is_whole(tmp_path: Path) -> None:
    folder = tmp_path / "sessions" / "--x--" / "s"
    folder.mkdir(parents=True)
    (folder / "session.v4.jsonl").write_text('{"seq": 1}\n[]\n{"seq": 2}\n{"se')
    assert events_on_disk(str(tmp_path), "s", after_seq=1) == [{"seq": 2}]
    assert events_on_disk(str(tmp_path), "../../*", after_seq=0) == []
