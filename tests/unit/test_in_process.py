"""In-process children against a real HTTP server that speaks the providers' wire formats. Only the model is fake."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lastword.backends.in_process import InProcessBackend
from lastword.core.contract import ChildTask
from lastword.core.diagnostic import Diagnostic
from lastword.core.errors import RequestRejected
from lastword.core.events import SessionEvent, text_of
from lastword.core.output import final_assistant_output
from lastword.core.ports import Resume
from tests.fake_model import FakeModel
from tests.fake_model.children import KEY, MODELS, counter, ending, kinds, lose_at, output, point_at, run, spec_of
from tests.fake_model.server import SECRET_PROSE
from tests.hosts import FixedHost
from tests.processes import living_children


@pytest.fixture
async def model(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeModel]:
    async with FakeModel() as fake:
        point_at(fake, monkeypatch)
        yield fake


@pytest.mark.parametrize("provider", MODELS)
async def test_an_answer_streams_and_is_committed_with_its_usage(model: FakeModel, provider: str) -> None:
    events = await run(spec_of("Hi", provider))
    assert kinds(events) == ["user/message", "step/start", "assistant/message", "turn/end"]
    chunks = [e.data["chunk"]["text"] for e in events if e.type == "assistant/chunk"]
    assert len(chunks) > 1
    assert "".join(chunks) == output(events) == "Hello from the fake model."
    message = next(e for e in events if e.type == "assistant/message")
    assert message.data["usage"]["input_tokens"] == 11
    assert ending(events) == ("completed", None)


@pytest.mark.parametrize("provider", MODELS)
@pytest.mark.parametrize(
    ("scenario", "expected", "text"),
    [
        ("length", ("max-tokens", "max-tokens"), "This answer is cut off in the mid"),
        ("length_text_tool", ("max-tokens", "truncated-tool-call"), "Let me run it."),
        ("refusal", ("refusal", "content-filter"), "I can"),
        ("drop", ("error", "connection"), "half of an answer"),
        ("http500", ("error", "provider-error"), ""),
        ("http401", ("error", "authentication"), ""),
        ("http429", ("error", "rate-limit"), ""),
    ],
)
async def test_a_cut_reply_ends_for_its_reason_with_its_text(
    model: FakeModel, provider: str, scenario: str, expected: tuple[str, str], text: str
) -> None:
    events = await run(spec_of(f"[[scn:{scenario}]]", provider, mcp_servers=[]))
    assert ending(events) == expected
    assert output(events) == text
    assert "tool/call" not in kinds(events)
    rendered = Diagnostic.model_validate({"backend": "in-process", **events[-1].data["diagnostic"]}).render()
    for secret in (KEY, SECRET_PROSE, "scn"):
        assert secret not in rendered


@pytest.mark.parametrize("provider", MODELS)
async def test_a_reply_with_only_a_truncated_tool_call_commits_an_empty_message(
    model: FakeModel, provider: str
) -> None:
    events = await run(spec_of("[[scn:length_tool]]", provider))
    assert ending(events) == ("max-tokens", "truncated-tool-call")
    assert [e.data["message"]["content"] for e in events if e.type == "assistant/message"] == [[]]
    assert final_assistant_output(events) is None
    assert "tool/call" not in kinds(events)


async def test_an_empty_reply_is_an_error(model: FakeModel) -> None:
    assert ending(await run(spec_of("[[scn:empty]]"))) == ("error", "empty-reply")


async def test_a_failed_attempt_that_said_nothing_is_logged_and_tried_again(model: FakeModel) -> None:
    model.failures_left = 1
    events = await run(spec_of("Hi"), retries=2)
    assert kinds(events) == ["user/message", "step/start", "assistant/attempt", "assistant/message", "turn/end"]
    assert ending(events) == ("completed", None)
    assert len(model.requests) == 2


async def test_retry_after_is_told_and_a_long_one_ends_the_turn(model: FakeModel) -> None:
    events = await run(spec_of("[[scn:http429_long]]"), retries=2)
    assert ending(events) == ("error", "rate-limit")
    assert events[-1].data["diagnostic"]["retry_after"] == 600
    assert len(model.requests) == 1


async def test_what_was_streamed_before_a_drop_is_not_said_twice(model: FakeModel) -> None:
    events = await run(spec_of("[[scn:drop]]"), retries=2)
    assert output(events) == "half of an answer"
    assert len(model.requests) == 1


async def test_a_refused_key_is_not_tried_again(model: FakeModel) -> None:
    await run(spec_of("[[scn:http401]]"), retries=2)
    assert len(model.requests) == 1


@pytest.mark.parametrize("provider", MODELS)
async def test_tools_of_an_mcp_server_run_and_their_server_is_gone_afterwards(
    model: FakeModel, provider: str, tmp_path: Path
) -> None:
    spec = spec_of('[[scn:tool:echo:{"text":"hi"}]]', provider, mcp_servers=[counter(tmp_path / "n")])
    events = await run(spec)
    assert kinds(events) == [
        "user/message", "step/start", "assistant/message", "tool/call", "tool/result", "step/start",
        "assistant/message", "turn/end",
    ]  # fmt: skip
    result = next(e for e in events if e.type == "tool/result")
    assert text_of(result.data["content"]) == "echo: hi"
    assert output(events) == "Tool result seen, done."
    assert living_children() == set()


async def test_a_failing_tool_is_told_to_the_model_and_the_turn_goes_on(model: FakeModel, tmp_path: Path) -> None:
    events = await run(spec_of("[[scn:tool:fail:{}]]", mcp_servers=[counter(tmp_path / "n")]))
    result = next(e for e in events if e.type == "tool/result")
    assert result.data["is_error"] is True
    assert ending(events) == ("completed", None)


async def test_malformed_arguments_do_not_reach_the_tool(model: FakeModel, tmp_path: Path) -> None:
    events = await run(spec_of("[[scn:badargs]]", mcp_servers=[counter(tmp_path / "n")]))
    result = next(e for e in events if e.type == "tool/result")
    assert "not a JSON object" in text_of(result.data["content"])


async def test_a_filtered_tool_is_neither_offered_nor_run(model: FakeModel, tmp_path: Path) -> None:
    path = tmp_path / "n"
    spec = spec_of("[[scn:tool:count:{}]]", mcp_servers=[counter(path)], tool_filter={"deny": ["count"]})
    events = await run(spec)
    offered = {tool["function"]["name"] for tool in model.requests[0][1]["tools"]}
    assert offered == {"echo", "fail", "wait"}
    assert next(e for e in events if e.type == "tool/result").data["is_error"] is True
    assert not path.exists()


async def test_a_server_that_cannot_start_is_refused_by_name() -> None:
    spec = spec_of("Hi", mcp_servers=[{"name": "ghost", "command": "no-such-command-here"}])
    os.environ.setdefault("OPENAI_API_KEY", KEY)
    with pytest.raises(RequestRejected, match=r"'ghost'.*no-such-command-here"):
        await run(spec)


@pytest.mark.parametrize("provider", MODELS)
async def test_structured_output_is_checked_and_reads_as_text(model: FakeModel, provider: str) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    events = await run(spec_of('[[scn:answer:{"n": 3}]]', provider, output_schema=schema))
    assert ending(events) == ("completed", None)
    assert events[-1].data["structured"] == {"n": 3}
    assert output(events).replace(" ", "") == '{"n":3}'
    assert "tool/call" not in kinds(events)


async def test_an_answer_that_never_meets_its_schema_is_an_error_with_its_text(model: FakeModel) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    events = await run(spec_of("plain words", output_schema=schema))
    assert ending(events) == ("error", "schema-not-met")
    assert output(events) == "Hello from the fake model."
    assert len(model.requests) == 3


async def test_persona_and_max_tokens_reach_the_model(model: FakeModel) -> None:
    await run(spec_of("Hi", persona="You are terse.", max_tokens=17))
    body = model.requests[0][1]
    assert body["messages"][0] == {"role": "system", "content": "You are terse."}
    assert 17 in (body.get("max_tokens"), body.get("max_completion_tokens"))


async def test_a_cancel_mid_stream_commits_what_was_said(model: FakeModel) -> None:
    events: list[SessionEvent] = []
    async with InProcessBackend().open(spec_of("[[scn:hang]]"), None, FixedHost()) as turn:
        async with asyncio.timeout(20):
            async for event in turn.events():
                events.append(event)
                if event.type == "assistant/chunk":
                    await turn.cancel()
    assert ending(events) == ("aborted", None)
    message = next(e for e in events if e.type == "assistant/message")
    assert message.data["interrupted"] is True
    assert output(events) == "then nothing"


async def test_a_cancel_during_a_tool_ends_the_turn_and_the_tools_whole_tree(model: FakeModel, tmp_path: Path) -> None:
    path, events = tmp_path / "n", list[SessionEvent]()
    spec = spec_of("[[scn:tool:wait:{}]]", mcp_servers=[counter(path)])
    async with InProcessBackend().open(spec, None, FixedHost()) as turn:

        async def cancel_when_counted() -> None:
            while not path.exists():
                await asyncio.sleep(0.01)
            await turn.cancel()

        canceller = asyncio.create_task(cancel_when_counted())
        async with asyncio.timeout(30):
            events = [event async for event in turn.events()]
        await canceller
    assert ending(events) == ("aborted", None)
    assert living_children() == set()


async def test_a_resumed_turn_buys_no_step_twice_and_runs_no_tool_twice(model: FakeModel, tmp_path: Path) -> None:
    path = tmp_path / "n"
    spec = spec_of("[[scn:tool:count:{}]]", mcp_servers=[counter(path)])
    logged = await lose_at(spec, "tool/result")
    events = await run(spec, Resume(session=None, events=logged, next_step=2))
    assert model.scenarios == ["tool", "after_tool"]
    assert len(path.read_text().splitlines()) == 1
    assert ending(events) == ("completed", None)
    assert "user/message" not in kinds(events)


async def test_a_tool_of_unknown_outcome_is_told_so_and_not_run_again(model: FakeModel, tmp_path: Path) -> None:
    path = tmp_path / "n"
    spec = spec_of("[[scn:tool:count:{}]]", mcp_servers=[counter(path)])
    logged = await lose_at(spec, "tool/call")
    events = await run(spec, Resume(session=None, events=logged, next_step=2))
    result = next(e for e in events if e.type == "tool/result")
    assert "Outcome unknown" in text_of(result.data["content"])
    assert not path.exists()
    assert ending(events) == ("completed", None)
    told = [m for m in model.requests[-1][1]["messages"] if m["role"] == "tool"]
    assert "Outcome unknown" in str(told)


async def test_a_turn_lost_in_its_first_step_starts_from_the_prompt(model: FakeModel) -> None:
    logged = await lose_at(spec_of("Hi"), "assistant/chunk")
    rest = await run(spec_of("Hi"), Resume(session=None, events=logged, next_step=2))
    assert output([*logged, *rest]) == "Hello from the fake model."


@pytest.mark.parametrize(
    ("model_name", "expected"),
    [
        ("openai-chat:gpt", "OPENAI_API_KEY"),
        ("anthropic:claude", "ANTHROPIC_API_KEY"),
        ("gpt-without-provider", "PROVIDER:NAME"),
        ("local:smollm2", "lastword up --local-model"),
        ("nosuchprovider:x", "nosuchprovider"),
    ],
)
def test_what_is_missing_is_told_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, model_name: str, expected: str
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    (sentence,) = InProcessBackend().missing(ChildTask(prompt="x", model=model_name))
    assert expected in sentence


def test_no_model_at_all_is_told() -> None:
    assert "--model" in InProcessBackend().missing()[0]
