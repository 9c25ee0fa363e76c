"""In-process children at the edges: stopped at awkward moments, taken up again late, with odd servers and schemas."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from lastword.backends.in_process import InProcessBackend
from lastword.core.contract import TurnSpec
from lastword.core.errors import RequestRejected
from lastword.core.events import SessionEvent, text_of
from lastword.core.ports import Resume
from tests.fake_model import FakeModel
from tests.fake_model.children import MODELS, counter, ending, kinds, lose_at, output, point_at, run, spec_of
from tests.hosts import FixedHost

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
PAGED = str(Path(__file__).parents[1] / "fixtures" / "mcp_paged.py")


@pytest.fixture
async def model(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeModel]:
    async with FakeModel() as fake:
        point_at(fake, monkeypatch)
        yield fake


async def cancel_at(spec: TurnSpec, kind: str) -> list[SessionEvent]:
    """All events of a turn that is cancelled when the first event of a kind is taken."""
    events: list[SessionEvent] = []
    async with InProcessBackend().open(spec, None, FixedHost()) as turn:
        async with asyncio.timeout(30):
            async for event in turn.events():
                events.append(event)
                if event.type == kind:
                    await turn.cancel()
    return events


# -- stopped at awkward moments --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["user/message", "step/start"])
async def test_a_cancel_before_the_first_request_buys_nothing(model: FakeModel, kind: str) -> None:
    events = await cancel_at(spec_of("Hi"), kind)
    assert ending(events) == ("aborted", None)
    assert model.requests == []


@pytest.mark.parametrize(("kind", "counted"), [("tool/call", False), ("tool/result", True)])
async def test_a_cancel_between_two_steps_buys_no_further_step(
    model: FakeModel, tmp_path: Path, kind: str, counted: bool
) -> None:
    path = tmp_path / "n"
    events = await cancel_at(spec_of("[[scn:tool:count:{}]]", mcp_servers=[counter(path)]), kind)
    assert ending(events) == ("aborted", None)
    assert len(model.requests) == 1
    assert path.exists() == counted


async def test_a_reader_that_stops_with_much_unread_can_still_close_the_child(model: FakeModel) -> None:
    async with asyncio.timeout(20), InProcessBackend().open(spec_of("[[scn:flood]]"), None, FixedHost()) as turn:
        stream: Any = turn.events()
        async for event in stream:
            if event.type == "assistant/chunk":
                break
        while model.answered == 0:
            await asyncio.sleep(0.01)
        for _ in range(50):  # the client takes in what was sent, until nothing more fits
            await asyncio.sleep(0.001)
        await stream.aclose()


# -- taken up again late ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        ("length", ("max-tokens", "max-tokens")),
        # The cut call was dropped before the reply was logged.
        ("length_text_tool", ("max-tokens", "max-tokens")),
        ("length_tool", ("max-tokens", "max-tokens")),
        ("refusal", ("refusal", "content-filter")),
        ("empty", ("error", "empty-reply")),
        ("text", ("completed", None)),
    ],
)
async def test_a_reply_committed_by_a_lost_worker_ends_as_it_would_have(
    model: FakeModel, scenario: str, expected: tuple[str, str | None]
) -> None:
    spec = spec_of(f"[[scn:{scenario}]]")
    logged = await lose_at(spec, "backend/state", 2)  # the prompt's, then the reply's
    assert "turn/end" not in kinds(logged)
    rest = await run(spec, Resume(session=None, events=logged, next_step=2))
    assert ending(rest) == expected
    assert len(model.requests) == 1


async def test_an_id_that_a_provider_uses_again_after_a_resume_is_a_new_call(model: FakeModel, tmp_path: Path) -> None:
    path = tmp_path / "n"
    spec = spec_of("[[scn:twice:count:{}]]", mcp_servers=[counter(path)])
    logged = await lose_at(spec, "tool/result")
    rest = await run(spec, Resume(session=None, events=logged, next_step=2))
    assert ending(rest) == ("completed", None)
    assert kinds(rest).count("tool/result") == 1
    assert len(path.read_text().splitlines()) == 2


# -- the model's words, wherever a provider puts them ----------------------------------------------------------------


@pytest.mark.parametrize("provider", ["openai", "responses"])
async def test_the_words_of_a_refusal_are_kept(model: FakeModel, provider: str) -> None:
    events = await run(spec_of("[[scn:refusal_words]]", provider))
    assert ending(events) == ("refusal", "content-filter")
    assert output(events) == "I must decline."


@pytest.mark.parametrize("provider", ["openai", "responses", "anthropic"])
async def test_a_structured_answer_that_is_cut_keeps_what_was_said_of_it(model: FakeModel, provider: str) -> None:
    events = await run(spec_of("[[scn:cut_answer]]", provider, output_schema=SCHEMA))
    assert ending(events) == ("max-tokens", "max-tokens")
    assert output(events) == '{"n": 3, "why": "bec'
    assert "structured" not in events[-1].data


async def test_a_structured_answer_streams_and_a_cancel_keeps_what_was_said(model: FakeModel) -> None:
    events = await cancel_at(spec_of("[[scn:hanging_answer]]", output_schema=SCHEMA), "assistant/chunk")
    assert ending(events) == ("aborted", None)
    assert output(events).startswith('{"n": 3, ')


# -- schemas and servers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}},
        {"type": "object", "properties": {"n": {"type": "integr"}}},
        {"type": "object", "properties": {"n": {"$ref": "http://127.0.0.1:9/elsewhere.json"}}},
        {"type": "object", "properties": {"n": {"$ref": "#/$defs/absent"}}},
    ],
)
async def test_a_schema_that_cannot_be_met_or_checked_is_refused(model: FakeModel, schema: dict[str, Any]) -> None:
    with pytest.raises(RequestRejected, match="schema"):
        await run(spec_of('[[scn:answer:{"n": 3}]]', output_schema=schema))
    assert model.requests == []


async def test_tools_of_every_page_are_offered(model: FakeModel) -> None:
    server = {"name": "paged", "command": sys.executable, "args": [PAGED]}
    events = await run(spec_of("[[scn:tool:echo:{}]]", mcp_servers=[server]))
    assert {tool["function"]["name"] for tool in model.requests[0][1]["tools"]} == {"die", "echo"}
    assert text_of(next(e for e in events if e.type == "tool/result").data["content"]) == "echo: from page two"


async def test_a_server_that_dies_in_a_call_is_a_failed_tool(model: FakeModel) -> None:
    server = {"name": "paged", "command": sys.executable, "args": [PAGED]}
    async with asyncio.timeout(30):
        events = await run(spec_of("[[scn:tool:die:{}]]", mcp_servers=[server]))
    assert next(e for e in events if e.type == "tool/result").data["is_error"] is True
    assert ending(events) == ("completed", None)


@pytest.mark.parametrize("code", ["raise SystemExit(3)", "print('hello, no JSON')"])
async def test_a_server_that_breaks_off_its_handshake_is_refused_by_name(model: FakeModel, code: str) -> None:
    server = {"name": "broken", "command": sys.executable, "args": ["-c", code]}
    async with asyncio.timeout(30):
        with pytest.raises(RequestRejected, match="'broken'"):
            await run(spec_of("Hi", mcp_servers=[server]))


@pytest.mark.parametrize("provider", MODELS)
async def test_no_client_tries_again_behind_our_back(model: FakeModel, provider: str) -> None:
    await run(spec_of("[[scn:http500]]", provider), retries=0)
    assert len(model.requests) == 1
