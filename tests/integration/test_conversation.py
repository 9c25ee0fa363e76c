"""A child that goes on: order, sameness, interrupts, closing, memory, and what no crash may lose."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from lastword.conversing import ConversationClient
from lastword.core.conversation import ConversationRequest
from lastword.core.errors import (
    ConversationClosed,
    MessageDropped,
    RequestConflict,
    RequestInvalid,
    RequestRejected,
    WorkerUnavailable,
)
from lastword.core.events import text_of
from tests.integration.conftest import House, until_exists


def talk(house: House) -> ConversationClient:
    return ConversationClient(house.env.client, task_queue=house.queue)


def scripted(**fields: Any) -> ConversationRequest:
    return ConversationRequest.model_validate({"backend": "scripted", **fields})


def script(*steps: dict[str, Any]) -> str:
    return json.dumps(steps)


RECALL = script({"recall": "user"}, {"message": None})


async def test_messages_become_turns_in_order_and_the_child_remembers(either_house: House) -> None:
    house = either_house
    async with house.worker():
        client = talk(house)
        id = await client.start(scripted())
        first = await client.ask(id, "one")
        second = await client.ask(id, "two")
        third = await client.ask(id, RECALL)
        status = await client.status(id)
        turns = await client.turns(id)
    assert [text_of(done.result.output) for done in (first, second)] == ["one", "two"]
    assert text_of(third.result.output) == "one | two"
    assert (status.state, status.turn, status.queued) == ("idle", 3, 0)
    assert [(turn.turn, turn.stop_reason) for turn in turns] == [(1, "completed"), (2, "completed"), (3, "completed")]


async def test_each_turn_has_its_own_edges_and_the_log_goes_on(open_house: House) -> None:
    client = talk(open_house)
    id = await client.start(scripted())
    await client.ask(id, "one")
    await client.ask(id, "two")
    edges = open_house.edges.of(id)
    assert [edge.type for edge in edges] == ["subagent/start", "subagent/end"] * 2
    assert len({edge.run_id for edge in edges}) == 2
    seqs = [item.seq async for item in open_house.client.log(id)]  # type: ignore[union-attr]
    assert seqs == list(range(len(seqs)))


async def accepted_in(house: House, id: str) -> list[str]:
    """The messages' ids as the workflow's history has them accepted."""
    history = await house.env.client.get_workflow_handle(id).fetch_history()
    updates = [
        event.workflow_execution_update_accepted_event_attributes.accepted_request.meta.update_id
        for event in history.events
        if event.HasField("workflow_execution_update_accepted_event_attributes")
    ]
    return [update.removeprefix("send-") for update in updates if update.startswith("send-")]


async def test_concurrent_sends_are_answered_in_the_order_they_were_accepted(open_house: House) -> None:
    client = talk(open_house)
    id = await client.start(scripted())
    accepted = await asyncio.gather(*(client.send(id, f"message {n}") for n in range(20)))
    done = await asyncio.gather(*(client.result(id, a.message_id) for a in accepted))
    assert [text_of(d.result.output) for d in done] == [f"message {n}" for n in range(20)]
    turns = {turn.message_id: turn.turn for turn in await client.turns(id)}
    assert sorted(turns, key=lambda message_id: turns[message_id]) == await accepted_in(open_house, id)


async def test_the_same_message_twice_is_one_message(open_house: House, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    words = script({"tool": {"id": "1", "appends_to": str(ran)}}, {"delta": "once"}, {"message": None})
    client = talk(open_house)
    id = await client.start(scripted())
    both = await asyncio.gather(*(client.ask(id, words, message_id="same") for _ in range(2)))
    again = await client.ask(id, words, message_id="same")
    assert both[0] == both[1] == again
    assert ran.read_text() == "1\n"
    assert (await client.status(id)).turn == 1


async def test_an_interrupt_ends_the_turn_and_parks_the_queue(open_house: House, tmp_path: Path) -> None:
    here = tmp_path / "here"
    client = talk(open_house)
    id = await client.start(scripted())
    running = await client.send(id, script({"delta": "partial"}, {"touch": str(here)}, {"fault": "hang"}))
    waiting = await client.send(id, "afterwards")
    await until_exists(here)
    ended = await client.interrupt(id)
    assert (ended.message_id, ended.parked) == (running.message_id, 1)
    cut = await client.result(id, running.message_id)
    assert (cut.result.stop_reason, text_of(cut.result.output)) == ("aborted", "partial")
    status = await client.status(id)
    assert (status.state, status.queued, status.parked) == ("idle", 1, True)
    assert [message.id for message in await client.inbox(id)] == [waiting.message_id]
    last = await client.ask(id, "now go on")
    assert text_of((await client.result(id, waiting.message_id)).result.output) == "afterwards"
    assert text_of(last.result.output) == "now go on"
    assert (await client.interrupt(id)).message_id is None


@pytest.mark.parametrize("reason", ["max-tokens", "refusal", "error", "budget", "moonphase"])
async def test_a_child_goes_on_after_any_ending(open_house: House, reason: str) -> None:
    client = talk(open_house)
    id = await client.start(scripted())
    cut = await client.ask(id, script({"delta": "half"}, {"end": reason}))
    assert (cut.result.stop_reason, cut.tool_result.is_error) == (reason, True)
    assert text_of((await client.ask(id, "still here")).result.output) == "still here"


@pytest.mark.parametrize(("mode", "turns"), [("finish", 3), ("abandon", 1), ("cancel", 1)])
async def test_closing_says_what_will_never_be_a_turn(open_house: House, tmp_path: Path, mode: Any, turns: int) -> None:
    here, gate = tmp_path / "here", tmp_path / "gate"
    client = talk(open_house)
    id = await client.start(scripted())
    running = await client.send(id, script({"delta": "a"}, {"touch": str(here)}, {"wait_for": str(gate)}))
    queued = [(await client.send(id, f"{n}")).message_id for n in range(2)]
    await until_exists(here)
    closing = await client.close(id, mode)
    assert closing.dropped == ([] if mode == "finish" else queued)
    with pytest.raises(ConversationClosed):
        await client.send(id, "too late")
    if mode != "cancel":
        gate.touch()
    closed = await client.closed(id)
    assert (closed.turns, closed.dropped) == (turns, closing.dropped)
    done = await client.result(id, running.message_id)
    assert done.result.stop_reason == ("aborted" if mode == "cancel" else "completed")
    if mode != "finish":
        with pytest.raises(MessageDropped):
            await client.result(id, queued[0])
    with pytest.raises(ConversationClosed):
        await client.send(id, "much too late")


async def test_a_cancel_of_the_workflow_closes_it_and_keeps_the_partial(open_house: House, tmp_path: Path) -> None:
    here = tmp_path / "here"
    client = talk(open_house)
    id = await client.start(scripted())
    running = await client.send(id, script({"delta": "partial"}, {"touch": str(here)}, {"fault": "hang"}))
    await until_exists(here)
    await open_house.env.client.get_workflow_handle(id).cancel()
    assert (await client.closed(id)).turns == 1
    done = await client.result(id, running.message_id)
    assert (done.result.stop_reason, text_of(done.result.output)) == ("aborted", "partial")
    idle = await client.start(scripted())
    await client.ask(idle, "x")
    await open_house.env.client.get_workflow_handle(idle).cancel()
    assert (await client.closed(idle)).turns == 1


async def test_a_message_that_no_child_can_be_started_for_is_rejected_and_harms_nothing(open_house: House) -> None:
    client = talk(open_house)
    id = await client.start(scripted(backend="nope"))
    with pytest.raises(RequestRejected, match="has no backend 'nope'"):
        await client.ask(id, "x")
    assert (await client.status(id)).state == "idle"
    with pytest.raises(RequestInvalid, match="no message 'never'"):
        await client.result(id, "never")


async def test_a_fork_knows_its_seed_and_does_not_say_it(open_house: House) -> None:
    client = talk(open_house)
    seed = [{"role": "user", "content": "the question"}, {"role": "assistant", "content": "the answer"}]
    id = await client.start(scripted(seed=seed))
    assert text_of((await client.ask(id, RECALL)).result.output) == "the question"
    said = await client.ask(id, script({"recall": "assistant"}, {"message": None}))
    assert text_of(said.result.output) == "the answer | the question"
    silent = await client.ask(id, script({"end": "error"}))
    assert silent.result.output == []


async def test_the_same_id_for_another_request_is_a_conflict(open_house: House) -> None:
    client = talk(open_house)
    id = await client.start(scripted(), id=f"talk-{open_house.queue}")
    assert await client.start(scripted(), id=id) == id
    with pytest.raises(RequestConflict):
        await client.start(scripted(label="other"), id=id)


async def test_a_message_that_was_accepted_survives_its_worker(house: House, tmp_path: Path) -> None:
    here, gate = tmp_path / "here", tmp_path / "gate"
    client = talk(house)
    worker = await house.worker_process().start()
    id = await client.start(scripted())
    first = await client.send(id, script({"delta": "a"}, {"touch": str(here)}, {"wait_for": str(gate)}))
    second = await client.send(id, "b")
    await until_exists(here)
    await worker.kill()
    gate.touch()
    other = await house.worker_process().start()
    try:
        done = [await client.result(id, m.message_id) for m in (first, second)]
        recalled = await client.ask(id, script({"recall": "assistant"}, {"message": None}))
    finally:
        await other.stop()
    assert [text_of(d.result.output) for d in done] == ["a", "b"]
    assert [d.result.attempts for d in done] == [2, 1]
    assert text_of(recalled.result.output).endswith("b")


async def test_nothing_is_lost_or_doubled_when_it_continues_as_new(
    forgetful_server: WorkflowEnvironment, tmp_path: Path
) -> None:
    house = House(forgetful_server, tmp_path)
    async with house.worker():
        client = talk(house)
        id = await client.start(scripted())
        gate = asyncio.Semaphore(8)

        async def ask(n: int) -> str:
            async with gate:
                return text_of((await client.ask(id, f"message {n}", message_id=f"m{n}")).result.output)

        answers = await asyncio.gather(*(ask(n) for n in range(60)))
        # The same message again, runs later, is still the same message.
        again = await client.send(id, "another text", message_id="m0")
        recalled = text_of((await client.ask(id, RECALL)).result.output).split(" | ")
        status = await client.status(id)
        handle = house.env.client.get_workflow_handle(id)
        current = (await handle.describe()).run_id
    assert answers == [f"message {n}" for n in range(60)]
    assert again.message_id == "m0"
    assert status.turn == 61
    assert sorted(recalled) == sorted(answers)
    # It did continue as new, more than once.
    runs = [row async for row in house.env.client.list_workflows(f"WorkflowId = '{id}'")]
    assert len(runs) > 2
    assert current in {row.run_id for row in runs}
    # One log through all of them.
    past = await house.client.transcript(id)
    spoken = [text_of(said.blocks) for said in past if said.role == "assistant"]
    assert sorted(spoken[:-1]) == sorted(answers)


@pytest.mark.timeout(240)
async def test_an_exact_ledger_of_a_thousand_messages_with_workers_killed(
    forgetful_server: WorkflowEnvironment, tmp_path: Path
) -> None:
    """Every message is one turn, and in its order, whatever was killed when."""
    house = House(forgetful_server, tmp_path)
    client = talk(house)
    worker = await house.worker_process().start()
    ids = [await client.start(scripted()) for _ in range(20)]
    sent = [f"m{n}" for n in range(50)]

    async def tell(id: str, message_id: str) -> None:
        while True:
            try:
                await client.send(id, message_id, message_id=message_id)
                return
            except WorkerUnavailable:
                continue

    async def tell_all(id: str) -> None:
        for message_id in sent:
            await tell(id, message_id)

    sending = asyncio.gather(*(tell_all(id) for id in ids))
    for reached in (8, 24):
        await _until_turn(client, ids[0], reached)
        await worker.kill()
        worker = await house.worker_process().start()
    try:
        await sending
        for id in ids:
            last = await client.result(id, sent[-1])
            turns = await client.turns(id)
            assert [turn.message_id for turn in turns] == sent
            assert [turn.turn for turn in turns] == list(range(1, 51))
            assert {turn.stop_reason for turn in turns} == {"completed"}
            assert text_of(last.result.output) == sent[-1]
            runs = [row async for row in house.env.client.list_workflows(f"WorkflowId = '{id}'")]
            assert len(runs) > 2
    finally:
        await worker.stop()


async def _until_turn(client: ConversationClient, id: str, turn: int) -> None:
    async with asyncio.timeout(90):
        while True:
            with contextlib.suppress(WorkerUnavailable):
                if (await client.status(id)).turn >= turn:
                    return
            await asyncio.sleep(0.05)


async def test_what_waits_is_bounded_and_a_message_over_it_is_refused(open_house: House, tmp_path: Path) -> None:
    here, gate = tmp_path / "here", tmp_path / "gate"
    client = talk(open_house)
    id = await client.start(scripted())
    await client.send(id, script({"touch": str(here)}, {"wait_for": str(gate)}, {"delta": "x"}))
    await until_exists(here)
    large = "x" * 170_000
    for _ in range(3):
        await client.send(id, large)
    with pytest.raises(RequestInvalid, match=r"3 messages wait already.*Send it when some are answered"):
        await client.send(id, large)
    gate.touch()
    assert text_of((await client.ask(id, "small")).result.output) == "small"


async def test_with_no_room_for_old_results_what_waits_is_carried(
    forgetful_server: WorkflowEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lastword.core.carried.MAX_PAYLOAD", 14_000)
    house, gate = House(forgetful_server, tmp_path), tmp_path / "gate"
    async with house.worker():
        client = talk(house)
        id = await client.start(scripted())
        await client.send(id, script({"wait_for": str(gate)}, {"delta": "go"}))
        sent = [(await client.send(id, f"message {n} {'x' * 500}", message_id=f"m{n}")).message_id for n in range(12)]
        gate.touch()
        last = await client.result(id, sent[-1])
        turns = await client.turns(id)
        early = await client.message(id, "m0")
    assert [turn.message_id for turn in turns][1:] == sent
    assert text_of(last.result.output).startswith("message 11")
    assert (early.state, early.result) == ("settled", None)


async def test_of_old_messages_it_is_known_that_they_were(open_house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lastword.workflows.conversation._KEPT_RESULTS", 2)
    client = talk(open_house)
    id = await client.start(scripted())
    for n in range(4):
        await client.ask(id, f"message {n}", message_id=f"m{n}")
    assert (await client.send(id, "again", message_id="m0")).message_id == "m0"
    assert (await client.status(id)).turn == 4
    with pytest.raises(RequestInvalid, match="not kept any more"):
        await client.result(id, "m0")
    assert text_of((await client.result(id, "m3")).result.output) == "message 3"
