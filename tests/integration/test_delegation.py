"""A delegation end to end on both servers: streamed, cut, cancelled, and its result."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lastword.core.contract import DelegationRequest, Limits
from lastword.core.errors import RequestConflict, RequestRejected
from lastword.core.events import text_of
from tests.integration.conftest import House, scripted, until_exists


async def test_a_streamed_answer_comes_back_completed(either_house: House) -> None:
    async with either_house.worker():
        done = await either_house.client.run(scripted({"delta": "Hel"}, {"delta": "lo"}, {"message": None}))
    assert done.result.stop_reason == "completed"
    assert done.result.output == [{"type": "text", "text": "Hello"}]
    assert done.tool_result.is_error is False
    assert text_of(done.tool_result.content) == "Hello"
    assert done.result.diagnostic is None


async def test_text_without_a_message_is_the_output_of_a_cut_turn(either_house: House) -> None:
    async with either_house.worker():
        done = await either_house.client.run(scripted({"delta": "half "}, {"delta": "an ans"}, {"end": "max-tokens"}))
    assert done.result.stop_reason == "max-tokens"
    assert text_of(done.result.output) == "half an ans"
    assert done.tool_result.is_error is True


@pytest.mark.parametrize("fault", ["raise", "eof", "malformed"])
async def test_a_child_that_breaks_off_is_an_error_with_its_text(house: House, fault: str) -> None:
    async with house.worker():
        done = await house.client.run(scripted({"delta": "so far"}, {"fault": fault}))
    assert done.result.stop_reason == "error"
    assert text_of(done.result.output) == "so far"
    assert done.result.diagnostic is not None
    assert "so far" not in done.result.diagnostic


async def test_an_unknown_stop_reason_is_a_failure_that_is_passed_on(house: House) -> None:
    async with house.worker():
        done = await house.client.run(scripted({"delta": "x"}, {"end": "moonphase"}))
    assert done.result.stop_reason == "moonphase"
    assert done.tool_result.is_error is True


async def test_one_pair_of_edges_is_published_with_the_selected_text(house: House) -> None:
    async with house.worker():
        id = await house.client.start(scripted({"delta": "Hi"}, {"message": None}))
        done = await house.client.result(id)
    start, end = house.edges.of(id)
    assert (start.type, end.type) == ("subagent/start", "subagent/end")
    assert start.run_id == end.run_id
    assert end.last_assistant_message == done.result.output
    assert "last_assistant_message" not in start.model_dump()


async def test_a_child_without_words_has_no_last_message(house: House) -> None:
    async with house.worker():
        id = await house.client.start(scripted({"reasoning": "hm"}, {"message": []}, {"end": "error"}))
        done = await house.client.result(id)
    assert done.result.output == []
    assert "last_assistant_message" not in house.edges.of(id)[1].model_dump()


async def test_a_rejected_request_starts_no_child_and_publishes_nothing(house: House) -> None:
    async with house.worker():
        id = await house.client.start(DelegationRequest(prompt="go", backend="no-such-backend"))
        with pytest.raises(RequestRejected, match=r"no-such-backend.*scripted"):
            await house.client.result(id)
    assert house.edges.of(id) == []


async def test_an_unsupported_capability_names_itself_and_who_has_it(house: House) -> None:
    async with house.worker():
        id = await house.client.start(scripted(output_schema={"type": "object"}))
        with pytest.raises(RequestRejected, match="output schema"):
            await house.client.result(id)


@pytest.mark.parametrize(
    ("limits", "steps", "stop_reason", "category"),
    [
        (Limits(wall_clock=0.5), [{"delta": "a"}, {"fault": "hang"}], "timeout", "wall-clock-limit"),
        (Limits(idle=0.5), [{"delta": "a"}, {"fault": "hang"}], "timeout", "idle-limit"),
        (
            Limits(steps=1),
            [{"delta": "a"}, {"message": None}, {"delta": "b"}, {"message": None}],
            "budget",
            "step-limit",
        ),
        (
            Limits(tokens=10),
            [
                {"delta": "a"},
                {"message": None, "usage": {"input_tokens": 5, "output_tokens": 6}},
                {"delta": "b"},
                {"message": None},
            ],
            "budget",
            "token-limit",
        ),
    ],
)
async def test_a_limit_ends_the_turn_and_keeps_the_partial(
    house: House, limits: Limits, steps: list[dict[str, object]], stop_reason: str, category: str
) -> None:
    async with house.worker():
        done = await house.client.run(scripted(*steps, limits=limits.model_dump()))
    assert done.result.stop_reason == stop_reason
    assert text_of(done.result.output) == "a"
    assert category in (done.result.diagnostic or "")


async def test_a_tool_over_the_limit_does_not_run(house: House, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    tool = {"name": "count", "arguments": {}, "appends_to": str(ran), "result": "ok"}
    async with house.worker():
        done = await house.client.run(
            scripted(
                {"delta": "a"}, {"message": None}, {"tool": {"id": "1", **tool}}, {"tool": {"id": "2", **tool}},
                limits={"tool_calls": 1},
            )
        )  # fmt: skip
    assert done.result.stop_reason == "budget"
    assert len(ran.read_text().splitlines()) == 1


async def test_history_has_eleven_events_however_long_the_stream(house: House) -> None:
    async with house.worker():
        id = await house.client.start(scripted({"count": {"from": 0, "to": 600, "every_ms": 2}}, {"message": None}))
        await house.client.result(id)
    history = await house.env.client.get_workflow_handle(id).fetch_history()
    assert len(history.events) == 11


async def test_ten_megabytes_come_back_bounded_and_whole_by_reference(house: House) -> None:
    size = 10_000_000
    async with house.worker():
        id = await house.client.start(
            scripted({"text": {"bytes": size, "delta_bytes": 200, "seed": 1}}, {"message": None})
        )
        async with asyncio.timeout(110):
            done = await house.client.result(id)
        assert done.result.stop_reason == "completed"
        text = text_of(done.result.output)
        assert len(text) < 256 * 1024
        assert "bytes cut" in text
        assert done.result.output_ref is not None
        assert done.result.output_ref.bytes >= size
        whole = text_of(await house.client.full_output(id))
    assert len(whole.encode()) >= size
    assert whole[:1000] == text[:1000]
    assert whole[-1000:] == text[-1000:]


async def test_the_same_id_attaches_and_never_starts_a_second_child(house: House, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    request = scripted({"tool": {"id": "1", "name": "n", "arguments": {}, "appends_to": str(runs), "result": "ok"}},
                       {"delta": "once"}, {"message": None})  # fmt: skip
    async with house.worker():
        first = await house.client.run(request, id="fixed")
        again = await house.client.run(request, id="fixed")
        with pytest.raises(RequestConflict, match="fixed"):
            await house.client.start(scripted({"delta": "other"}), id="fixed")
    assert again == first
    assert len(runs.read_text().splitlines()) == 1


async def test_a_delegation_is_started_by_name_with_plain_json(house: House) -> None:
    async with house.worker():
        result = await house.env.client.execute_workflow(
            "DelegationWorkflow",
            {"prompt": "plain words", "backend": "scripted"},
            id="by-name",
            task_queue=house.queue,
        )
    assert result["tool_result"] == {"is_error": False, "content": [{"type": "text", "text": "plain words"}]}


async def test_a_malformed_request_fails_its_workflow_with_the_reason(house: House) -> None:
    async with house.worker():
        handle = await house.env.client.start_workflow(
            "DelegationWorkflow", {"prompt": "x", "time_limit": 3}, id="malformed", task_queue=house.queue
        )
        async with asyncio.timeout(30):
            with pytest.raises(Exception, match="Workflow execution failed") as caught:
                await handle.result()
    assert "time_limit" in str(caught.value.__cause__)


async def test_watching_gives_every_event_once_and_then_the_result(house: House, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with house.worker():
        id = await house.client.start(
            scripted({"count": {"from": 0, "to": 3000}}, {"wait_for": str(gate)}, {"delta": "end"}, {"message": None})
        )
        text, seqs = "", []
        async for item in house.client.watch(id):
            if (event := getattr(item, "event", None)) is not None:
                seqs.append(event.seq)
                if event.type == "assistant/chunk":
                    text += event.data["chunk"].get("text", "")
            if text.endswith("2999 "):
                gate.touch()
    assert seqs == list(range(len(seqs)))
    assert text == "".join(f"{n} " for n in range(3000)) + "end"


async def test_the_list_tells_the_stop_reason(house: House, tmp_path: Path) -> None:
    async with house.worker():
        running = await house.client.start(scripted({"wait_for": str(tmp_path / "never")}), id="list-running")
        cut = await house.client.start(scripted({"delta": "a"}, {"end": "max-tokens"}), id="list-cut")
        await house.client.result(cut)
        async with asyncio.timeout(30):
            while True:
                rows = {row.id: row for row in await house.client.list()}
                if running in rows and cut in rows and rows[cut].stop_reason:
                    break
                await asyncio.sleep(0.1)
        assert rows[cut].stop_reason == "max-tokens"
        assert rows[running].stop_reason is None
        assert rows[running].backend == "scripted"
        await house.client.cancel(running)


async def test_a_cancel_mid_stream_returns_what_was_said(either_house: House, tmp_path: Path) -> None:
    here = tmp_path / "here"
    async with either_house.worker():
        id = await either_house.client.start(scripted({"delta": "so far"}, {"touch": str(here)}, {"fault": "hang"}))
        await until_exists(here)
        done = await either_house.client.cancel(id)
        again = await either_house.client.cancel(id)
    assert done.result.stop_reason == "aborted"
    assert text_of(done.result.output) == "so far"
    assert done.result.diagnostic is None
    assert again == done
