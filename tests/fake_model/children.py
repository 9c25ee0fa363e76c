"""In-process children of the fake model, for tests: their specs, their run, and what to read off their events."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from lastword.backends.in_process import InProcessBackend
from lastword.core.contract import ChildTask, LogRef, TurnSpec
from lastword.core.events import SessionEvent, text_of
from lastword.core.output import final_assistant_output
from lastword.core.ports import Resume
from tests.fake_model.server import FakeModel
from tests.hosts import FixedHost

KEY = "sk-canary-key"
MODELS = {
    "openai": "openai-chat:fake",
    "responses": "openai:fake",
    "anthropic": "anthropic:fake",
    "google": "google:fake",
}
COUNTER = str(Path(__file__).parents[1] / "fixtures" / "mcp_counter.py")


def point_at(fake: FakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every provider's client talk to the fake."""
    for name, value in {
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": f"{fake.url}/v1",
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": fake.url,
        "GOOGLE_API_KEY": KEY,
        "GOOGLE_BASE_URL": fake.url,
        "GOOGLE_GEMINI_BASE_URL": fake.url,
    }.items():
        monkeypatch.setenv(name, value)


def spec_of(prompt: str, provider: str = "openai", **task: Any) -> TurnSpec:
    return TurnSpec(
        id="d",
        turn_run_id="r",
        log=LogRef(session_id="d", run_id="r"),
        task=ChildTask.model_validate({"prompt": prompt, "model": MODELS[provider], **task}),
    )


def counter(path: Path) -> dict[str, Any]:
    """The MCP server of `fixtures/mcp_counter.py`, counting into the file."""
    return {"name": "counter", "command": sys.executable, "args": [COUNTER], "env": {"COUNT_FILE": str(path)}}


async def run(spec: TurnSpec, resume: Resume | None = None, *, retries: int = 0) -> list[SessionEvent]:
    async with InProcessBackend(retries=retries).open(spec, resume, FixedHost()) as turn:
        return [event async for event in turn.events()]


async def lose_at(spec: TurnSpec, kind: str, nth: int = 1) -> list[SessionEvent]:
    """The events up to the nth of a kind; then the child is dropped, as by the loss of its worker."""
    logged: list[SessionEvent] = []
    async with InProcessBackend().open(spec, None, FixedHost()) as turn:
        stream: Any = turn.events()
        async for event in stream:
            logged.append(event)
            nth -= event.type == kind
            if nth == 0:
                break
        await stream.aclose()
    return logged


def ending(events: list[SessionEvent]) -> tuple[str, str | None]:
    end = events[-1]
    assert end.type == "turn/end"
    diagnostic = end.data.get("diagnostic") or {}
    return end.data["reason"]["kind"], diagnostic.get("category")


def output(events: list[SessionEvent]) -> str:
    return text_of(final_assistant_output(events) or [])


def kinds(events: list[SessionEvent]) -> list[str]:
    return [event.type for event in events if event.type not in ("assistant/chunk", "backend/state")]
