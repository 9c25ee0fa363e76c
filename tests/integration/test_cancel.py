"""Cancel has one meaning, whenever it comes."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from lastword.core.events import text_of
from tests.integration.conftest import House, scripted, until_beaten, until_exists


async def test_before_pick_up_it_settles_without_edges(house: House) -> None:
    id = await house.client.start(scripted({"delta": "never said"}))
    cancelling = asyncio.create_task(house.client.cancel(id))
    await _until_in_history(house, id, "workflow_execution_cancel_requested_event_attributes")
    async with house.worker():
        done = await cancelling
    assert done.result.stop_reason == "aborted"
    assert done.result.output == []
    assert house.edges.of(id) == []


async def test_before_the_first_heartbeat_it_still_reaches_the_child(house: House, tmp_path: Path) -> None:
    here = tmp_path / "here"
    async with house.worker():
        id = await house.client.start(scripted({"touch": str(here)}, {"fault": "hang"}))
        await until_exists(here)
        done = await house.client.cancel(id)
    assert done.result.stop_reason == "aborted"
    assert [edge.type for edge in house.edges.of(id)] == ["subagent/start", "subagent/end"]


@pytest.mark.parametrize("on_cancel", ["commit", "drop", "ignore", "late-end-turn"])
async def test_it_wins_over_whatever_the_child_answers(house: House, tmp_path: Path, on_cancel: str) -> None:
    here = tmp_path / "here"
    request = scripted(
        {"delta": "text"}, {"touch": str(here)}, {"wait_for": str(tmp_path / "never")}, options={"on_cancel": on_cancel}
    )
    async with house.worker():
        id = await house.client.start(request)
        await until_exists(here)
        done = await house.client.cancel(id)
    assert done.result.stop_reason == "aborted"
    assert text_of(done.result.output) == "text"


async def test_as_an_update_it_returns_the_result_to_its_caller(house: House, tmp_path: Path) -> None:
    here = tmp_path / "here"
    async with house.worker():
        id = await house.client.start(scripted({"delta": "text"}, {"touch": str(here)}, {"fault": "hang"}))
        await until_exists(here)
        updated = await house.env.client.get_workflow_handle(id).execute_update("cancel")
        done = await house.client.result(id)
    assert updated["result"]["stop_reason"] == "aborted"
    assert updated["result"]["output"] == done.result.output


async def test_in_the_same_workflow_task_as_the_outcome_the_outcome_stands(house: House, tmp_path: Path) -> None:
    """No worker holds the workflow while the outcome and the cancel arrive, so the next one gets both at once."""
    gate, here = tmp_path / "gate", tmp_path / "here"
    async with house.worker(workflows=False):
        async with house.worker(activities=False):
            id = await house.client.start(
                scripted({"delta": "answer"}, {"touch": str(here)}, {"wait_for": str(gate)}, {"message": None})
            )
            await until_exists(here)
        gate.touch()
        await _until_in_history(house, id, "activity_task_completed_event_attributes")
        cancelling = asyncio.create_task(house.client.cancel(id))
        await _until_in_history(house, id, "workflow_execution_cancel_requested_event_attributes")
        async with house.worker(activities=False):
            done = await cancelling
    assert done.result.stop_reason == "completed"
    assert text_of(done.result.output) == "answer"


async def test_while_the_worker_is_dead_it_returns_the_last_checkpoint(house: House) -> None:
    worker = await house.worker_process().start()
    id = await house.client.start(scripted({"count": {"from": 0, "to": 100000, "every_ms": 5}}))
    await until_beaten(house, id, 10)
    await worker.kill()
    beaten = (await house.client.describe(id)).checkpoint
    assert beaten is not None
    cancelling = asyncio.create_task(house.client.cancel(id))
    await asyncio.sleep(0)
    other = await house.worker_process().start()
    try:
        done = await cancelling
    finally:
        await other.stop()
    assert done.result.stop_reason == "aborted"
    assert len(text_of(done.result.output)) >= _beaten_chars(beaten.tail)


async def test_between_attempts_it_settles_with_the_checkpoint(house: House) -> None:
    """After a hand-over no worker is left, so the next attempt waits in the queue when the cancel comes."""
    worker = await house.worker_process().start()
    id = await house.client.start(scripted({"count": {"from": 0, "to": 100000, "every_ms": 5}}))
    await until_beaten(house, id, 10)
    await worker.stop()
    cancelling = asyncio.create_task(house.client.cancel(id))
    await _until_in_history(house, id, "workflow_execution_cancel_requested_event_attributes")
    other = await house.worker_process().start()
    try:
        done = await cancelling
    finally:
        await other.stop()
    assert done.result.stop_reason == "aborted"
    assert text_of(done.result.output).startswith("0 1 2 ")


async def test_by_force_it_salvages_without_any_worker(house: House) -> None:
    worker = await house.worker_process().start()
    try:
        id = await house.client.start(scripted({"count": {"from": 0, "to": 100000, "every_ms": 5}}))
        await until_beaten(house, id, 10)
        worker.send(signal.SIGSTOP)
        beaten = (await house.client.describe(id)).checkpoint
        assert beaten is not None
        done = await house.client.cancel(id, force=True)
        assert done.result.stop_reason == "aborted"
        assert len(text_of(done.result.output)) >= _beaten_chars(beaten.tail)
        again = await house.client.result(id)
        assert text_of(again.result.output) == text_of(done.result.output)
    finally:
        await worker.stop()


def _beaten_chars(tail: list[dict[str, object]]) -> int:
    total = 0
    for row in tail:
        run = row.get("run")
        if isinstance(run, dict):
            total += sum(len(text) for text in run["stream"]["texts"])
    return total


async def _until_in_history(house: House, id: str, attributes: str) -> None:
    handle = house.env.client.get_workflow_handle(id)
    async with asyncio.timeout(30):
        while not any(event.HasField(attributes) for event in (await handle.fetch_history()).events):  # type: ignore[arg-type]
            await asyncio.sleep(0.05)
