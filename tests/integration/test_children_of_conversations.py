"""A conversation's children, which may outlive its turns and the runs of its workflow."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from temporalio.testing import WorkflowEnvironment

from lastword.backends.scripted import ScriptedBackend
from tests.integration.conftest import House, until_exists
from tests.integration.test_reports import call, conversation, in_background, report, talk
from tests.integration.test_trees import WORK, hand_on, said, script


@pytest.mark.parametrize("on_end", ["cancel", "detach"])
async def test_a_continuable_child_goes_on_when_its_parent_continues_as_new(
    forgetful_server: WorkflowEnvironment, tmp_path: Path, on_end: str
) -> None:
    house = House(forgetful_server, tmp_path)
    async with house.worker():
        client = talk(house)
        id = await client.start(conversation(delegation={"on_end": on_end}))
        child = f"{id}/1"
        await client.ask(id, script({"delegate": {"id": "a", "prompt": "first", "continuable": True}}, WORK))
        parent = house.env.client.get_workflow_handle(id)
        first_run = (await parent.describe()).run_id
        async with asyncio.timeout(60):
            while (await parent.describe()).run_id == first_run:
                await client.ask(id, "more")
        done = await client.ask(id, script(call("ask", "b", id=child, prompt=script({"recall": "user"}, WORK)), WORK))
        await client.close(id)
        await client.closed(id)
        if on_end == "detach":
            assert (await client.status(child)).state == "idle"
            await client.close(child)
        ended = await client.closed(child)
    assert "first" in said(done)
    assert ended.turns == 2


@pytest.mark.parametrize("continuable", [False, True])
async def test_a_detached_child_at_work_is_heard_by_the_next_run_of_its_parent(
    forgetful_server: WorkflowEnvironment, tmp_path: Path, continuable: bool
) -> None:
    house, gate = House(forgetful_server, tmp_path), tmp_path / "gate"
    async with house.worker():
        client = talk(house)
        id = await client.start(conversation(delegation={"on_end": "detach"}))
        leaf = script({"wait_for": str(gate)}, {"delta": "leaf"}, WORK)
        await client.ask(id, script(in_background("a", leaf, continuable=continuable), WORK))
        parent = house.env.client.get_workflow_handle(id)
        first_run = (await parent.describe()).run_id
        async with asyncio.timeout(60):
            while (await parent.describe()).run_id == first_run:
                await client.ask(id, "more")
        assert [entry.state for entry in await house.client.children(id)] == ["running"]
        gate.touch()
        async with asyncio.timeout(60):
            while any(entry.state == "running" for entry in await house.client.children(id)):
                await asyncio.sleep(0.05)
        done = await client.ask(id, "what do you know?")
        again = await client.ask(id, "and now?")
        await client.close(id)
        if continuable:
            await client.close(f"{id}/1")
    assert "is done. Its output:\nleaf" in said(done)
    # Once.
    assert said(again) == "and now?"


async def test_what_children_told_is_in_front_of_the_next_message(open_house: House, tmp_path: Path) -> None:
    """A child of the background that was left to itself is not forgotten."""
    here = tmp_path / "here"
    client = talk(open_house)
    id = await client.start(conversation(delegation={"on_end": "detach"}, reports=True))
    leaf = script(report("r", "a finding"), {"touch": str(here)}, {"delta": "leaf"}, WORK)
    await client.ask(id, script(in_background("a", leaf), WORK))
    async with asyncio.timeout(60):
        while (await open_house.client.children(id))[0].state == "running":
            await asyncio.sleep(0.05)
    done = await client.ask(id, "what do you know?")
    words = said(done)
    assert words.index("Report of your child") < words.index("is done. Its output:")
    assert "a finding" in words
    assert said(done).endswith("what do you know?")
    again = await client.ask(id, "and now?")
    assert said(again) == "and now?"


async def test_a_conversation_waits_for_its_children_and_goes_on_with_what_they_said(
    either_house: House, tmp_path: Path
) -> None:
    house = either_house
    gate = tmp_path / "gate"
    async with house.worker():
        client = talk(house)
        id = await client.start(conversation(delegation={"on_end": "wait"}))
        leaf = script({"delta": "leaf"}, {"wait_for": str(gate)}, WORK)
        first = await client.ask(id, script(in_background("a", leaf), WORK))
        waiting = await client.status(id)
        gate.touch()
        async with asyncio.timeout(60):
            while (idle := await client.status(id)).state != "idle":
                await asyncio.sleep(0.05)
        second = await client.result(id, "from-children-2")
        await client.close(id)
        closed = await client.closed(id)
    assert first.result.stop_reason == "completed"
    assert (waiting.state, waiting.turn) == ("waiting", 1)
    assert "is done. Its output:\nleaf" in said(second)
    assert (idle.state, idle.turn) == ("idle", 2)
    assert closed.turns == 2


async def test_a_conversation_that_waits_is_cancelled_with_its_children(open_house: House, tmp_path: Path) -> None:
    here = tmp_path / "here"
    client = talk(open_house)
    id = await client.start(conversation(delegation={"on_end": "wait"}))
    leaf = script({"delta": "leaf"}, {"touch": str(here)}, {"fault": "hang"})
    await client.ask(id, script(in_background("a", leaf), {"wait_for": str(here)}, WORK))
    await client.close(id, "cancel")
    await client.closed(id)
    child = await open_house.client.result(f"{id}/1")
    assert (child.result.stop_reason, said(child)) == ("aborted", "leaf")


async def test_closing_does_not_wait_for_a_child_that_was_detached(open_house: House, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    client = talk(open_house)
    id = await client.start(conversation(delegation={"on_end": "detach"}))
    leaf = script({"wait_for": str(gate)}, {"delta": "leaf"}, WORK)
    await client.ask(id, script(in_background("a", leaf), WORK))
    assert (await client.status(id)).state == "idle"
    await client.close(id)
    assert (await client.closed(id)).turns == 1
    gate.touch()
    assert said(await open_house.client.result(f"{id}/1")) == "leaf"


async def test_news_that_no_turn_can_be_made_of_wait_for_the_next_message(house: House, tmp_path: Path) -> None:
    """A worker that lost its backend must not be asked over and over."""
    here = tmp_path / "here"
    client = talk(house)
    leaf = script({"delta": "leaf"}, {"touch": str(here)}, {"fault": "hang"})
    async with house.worker():
        id = await client.start(conversation(delegation={"on_end": "wait"}))
        await client.ask(id, script(in_background("a", leaf), {"wait_for": str(here)}, WORK))
    async with house.worker(ScriptedBackend("another")):
        child = await house.client.result(f"{id}/1")
        async with asyncio.timeout(60):
            while not (status := await client.status(id)).parked:
                await asyncio.sleep(0.05)
        history = await house.env.client.get_workflow_handle(id).fetch_history()
    assert (child.result.stop_reason, said(child)) == ("error", "leaf")
    assert (status.state, status.turn) == ("idle", 1)
    assert len(history.events) < 60
    async with house.worker():
        done = await client.ask(id, "go on")
    assert "did not finish" in said(done)
    assert said(done).endswith("go on")


async def test_ids_of_children_go_on_through_the_turns(open_house: House) -> None:
    client = talk(open_house)
    id = await client.start(conversation())
    for prompt in ("x", "y"):
        await client.ask(id, script(hand_on("same-call-id", prompt), WORK))
    assert [e.id for e in await open_house.client.children(id)] == [f"{id}/1", f"{id}/2"]


async def test_a_waiting_parent_shows_as_waiting(open_house: House, tmp_path: Path) -> None:
    here, gate = tmp_path / "here", tmp_path / "gate"
    client = talk(open_house)
    id = await client.start(conversation())
    leaf = script({"touch": str(here)}, {"wait_for": str(gate)}, {"delta": "leaf"}, WORK)
    accepted = await client.send(id, script(hand_on("a", leaf), WORK))
    await until_exists(here)
    assert (await client.status(id)).state == "waiting"
    gate.touch()
    assert said(await client.result(id, accepted.message_id)) == "[leaf]"
