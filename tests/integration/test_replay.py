"""Recorded histories replay: what runs today must not break delegations that began yesterday.

The histories in `histories/` were recorded by `python -m tests.integration.record_histories`; a new version of a
workflow adds its own and keeps the old ones.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from lastword.plugin import LastwordPlugin
from tests.integration.conftest import House, scripted

HISTORIES = sorted((Path(__file__).parent / "histories").glob("*.json"))


def replayer() -> Replayer:
    return Replayer(workflows=[], plugins=[LastwordPlugin()])


@pytest.mark.parametrize("path", HISTORIES, ids=[path.stem for path in HISTORIES])
async def test_a_recorded_history_replays(path: Path) -> None:
    await replayer().replay_workflow(WorkflowHistory.from_json(path.stem.rpartition("-")[0], path.read_text()))


def test_there_are_histories_of_every_way_a_turn_goes() -> None:
    endings = {"completed", "cancelled", "cancel_update", "rejected", "handed_over", "lost_and_settled"}
    expected = endings | {"answered", "not_answered", "conversation", "delegated", "felled", "ping"}
    expected |= {"reporting", "reporting_child", "asked_child", "waiting"}
    assert expected <= {path.stem.partition("-")[0] for path in HISTORIES}


async def test_a_history_of_today_replays(house: House) -> None:
    async with house.worker():
        id = await house.client.start(scripted({"delta": "a"}, {"message": None}))
        await house.client.result(id)
    await replayer().replay_workflow(await house.env.client.get_workflow_handle(id).fetch_history())
