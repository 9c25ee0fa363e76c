"""Whoever has a child's id can follow it, cancel it and get its result: a conversation's as a delegation's."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from lastword.conversing import ConversationClient
from lastword.core.conversation import ConversationRequest
from lastword.core.errors import ConversationClosed, MessageDropped, RequestInvalid
from lastword.core.events import text_of
from lastword.trees import tree
from lastword.watching import Closed, EventSeen
from tests.integration.conftest import House, until_exists
from tests.integration.test_trees import WORK, said, script


def talk(house: House) -> ConversationClient:
    return ConversationClient(house.env.client, task_queue=house.queue, store=house.store)


async def conversation(house: House, **fields: object) -> str:
    return await talk(house).start(ConversationRequest.model_validate({"backend": "scripted", **fields}))


def hanging(here: Path) -> str:
    return script({"delta": "half"}, {"touch": str(here)}, {"fault": "hang"})


async def eventually(asked: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await asked():
            await asyncio.sleep(0.05)


async def test_the_result_of_a_conversation_answers_its_newest_message(open_house: House, tmp_path: Path) -> None:
    client, gate = open_house.client, tmp_path / "gate"
    id = await conversation(open_house)
    with pytest.raises(RequestInvalid, match="not asked anything yet"):
        await client.result(id)
    await talk(open_house).ask(id, "one")
    assert said(await client.result(id)) == "one"
    await talk(open_house).send(id, script({"delta": "two"}, {"wait_for": str(gate)}))
    waiting = asyncio.create_task(client.result(id))
    gate.touch()
    assert said(await waiting) == "two"
    await talk(open_house).close(id)
    await talk(open_house).closed(id)
    assert said(await client.result(id)) == "two"
    assert [type(item) for item in [item async for item in client.watch(id)]] == [Closed]


async def test_watching_a_conversation_shows_its_turn(open_house: House, tmp_path: Path) -> None:
    here, gate = tmp_path / "here", tmp_path / "gate"
    id = await conversation(open_house)
    await talk(open_house).ask(id, "one")
    await talk(open_house).send(id, script({"delta": "two"}, {"touch": str(here)}, {"wait_for": str(gate)}))
    await until_exists(here)
    seen = []
    async for item in open_house.client.watch(id):
        seen.append(item)
        gate.touch()
    events = [item.event for item in seen if isinstance(item, EventSeen)]
    assert {event.data.get("turn") for event in events} == {2}
    assert "two" in str([event.data for event in events])
    assert isinstance(seen[-1], Closed)
    assert said(seen[-1].result) == "two"


async def test_a_cancel_closes_a_conversation_and_gives_the_partial(open_house: House, tmp_path: Path) -> None:
    here = tmp_path / "here"
    id = await conversation(open_house)
    await talk(open_house).send(id, hanging(here))
    await until_exists(here)
    done = await open_house.client.cancel(id)
    assert (done.result.stop_reason, said(done)) == ("aborted", "half")
    with pytest.raises(ConversationClosed):
        await talk(open_house).send(id, "more")
    # Cancelled again it gives the same.
    assert await open_house.client.cancel(id) == done
    never_asked = await conversation(open_house)
    with pytest.raises(MessageDropped, match="never had a turn"):
        await open_house.client.cancel(never_asked)


async def test_by_force_a_conversation_settles_without_any_worker(house: House, tmp_path: Path) -> None:
    here, client = tmp_path / "here", talk(house)
    worker = await house.worker_process().start()
    try:
        id = await conversation(house)
        await client.ask(id, "one")
        running = (await client.send(id, hanging(here))).message_id
        queued = (await client.send(id, "never")).message_id
        await until_exists(here)

        async def beaten() -> bool:
            return (await house.client.describe(id)).checkpoint is not None

        await eventually(beaten)
        worker.send(signal.SIGSTOP)
        done = await house.client.cancel(id, force=True)
        assert (done.result.stop_reason, said(done)) == ("aborted", "half")
        assert said(await house.client.result(id)) == "half"
        worker.send(signal.SIGCONT)
        # Those who wait for an answer are told, too.
        assert said(await client.result(id, running)) == "half"
        with pytest.raises(MessageDropped, match="ended before"):
            await client.result(id, queued)
    finally:
        await worker.stop()


async def test_by_force_an_idle_conversation_gives_what_it_said_last(open_house: House) -> None:
    id = await conversation(open_house)
    await talk(open_house).ask(id, "one")
    await talk(open_house).ask(id, "two")
    done = await open_house.client.cancel(id, force=True)
    assert (done.result.stop_reason, said(done)) == ("completed", "two")


@pytest.mark.parametrize("on_end", ["cancel", "detach"])
async def test_by_force_the_children_of_a_conversation_end_unless_detached(open_house: House, on_end: str) -> None:
    id = await conversation(open_house, delegation={"on_end": on_end})
    child = f"{id}/1"
    await talk(open_house).ask(id, script({"delegate": {"id": "a", "prompt": "leaf", "continuable": True}}, WORK))

    async def listed() -> bool:
        return [row.id for row in await tree(open_house.client, id)] == [id, child]

    await eventually(listed)
    rows = await tree(open_house.client, id)
    assert [(row.state, row.stop_reason, row.last_line) for row in rows[1:]] == [("idle", "completed", "leaf")]
    await open_house.client.cancel(id, force=True)
    if on_end == "detach":
        assert said(await talk(open_house).ask(child, "still here")) == "still here"
        await talk(open_house).close(child)
    assert (await talk(open_house).closed(child)).turns == (2 if on_end == "detach" else 1)


async def test_the_whole_output_of_a_later_turn(open_house: House) -> None:
    id = await conversation(open_house)
    for seed in (1, 2):
        text = {"text": {"bytes": 300_000, "delta_bytes": 200, "seed": seed}}
        done = await talk(open_house).ask(id, script(text, {"message": None}))
        assert done.result.output_ref is not None
        assert done.result.output_ref.turn == seed
    whole = [text_of(await open_house.client.full_output(id, turn=turn)) for turn in (1, 2)]
    assert all(len(text) >= 300_000 for text in whole)
    assert whole[0][:1000] != whole[1][:1000]
    assert whole[1][:1000] == said(done)[:1000]
