"""Workers that die, stop and come back: nothing that was beaten is lost, nothing runs twice."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from pathlib import Path

from lastword.core.contract import DelegationResult
from lastword.core.events import text_of
from tests.integration.conftest import House, last_seq, scripted, until_beaten
from tests.integration.worker_process import WorkerProcess

NUMBERS = 400


def _counting(every_ms: int = 5) -> dict[str, object]:
    return {"count": {"from": 0, "to": NUMBERS, "every_ms": every_ms}}


async def _logged_seqs(house: House, id: str) -> list[int]:
    # A Gap has no seq, and fails the test.
    return [item.seq async for item in house.client.log(id)]  # type: ignore[union-attr]


async def test_kill_9_at_random_points_loses_nothing_that_was_beaten(house: House) -> None:
    """Settled after each loss, so that what comes back is exactly what survived."""
    random.seed(7)
    for _ in range(2):
        worker = await house.worker_process().start()
        ids = [
            await house.client.start(scripted(_counting(), {"fault": "hang"}, on_worker_loss="settle"))
            for _ in range(6)
        ]
        await until_beaten(house, ids[0], random.randint(3, 200))
        await worker.kill()
        shown = {id: last_seq(await house.client.describe(id)) for id in ids}
        other = await house.worker_process().start()
        try:
            for id in ids:
                done = await house.client.result(id)
                assert done.result.stop_reason == "error"
                assert "worker-lost" in (done.result.diagnostic or "")
                numbers = text_of(done.result.output).split()
                assert numbers == [str(n) for n in range(len(numbers))]
                assert (await _logged_seqs(house, id))[: shown[id]] == list(range(shown[id]))
        finally:
            await other.stop()


async def test_a_resumed_child_answers_exactly_once(house: House, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = [_counting(), {"message": None}, {"wait_for": str(gate)}, {"delta": "the answer"}, {"message": None}]
    worker = await house.worker_process().start()
    ids = [await house.client.start(scripted(*script)) for _ in range(3)]
    for id in ids:
        await until_beaten(house, id, 50)
    await worker.kill()
    gate.touch()
    other = await house.worker_process().start()
    try:
        for id in ids:
            done = await house.client.result(id)
            assert done.result.stop_reason == "completed"
            assert text_of(done.result.output) == "the answer"
            assert done.result.attempts == 2
            seqs = await _logged_seqs(house, id)
            assert seqs == list(range(len(seqs)))
            edges = _edges(house.data_dir, id)
            assert edges[-1] == "subagent/end"
            assert edges.count("subagent/end") == 1
    finally:
        await other.stop()


async def test_sigterm_hands_over_and_is_never_aborted(house: House) -> None:
    worker = await house.worker_process().start()
    ids = [await house.client.start(scripted(_counting(), {"message": None})) for _ in range(4)]
    progress = [await until_beaten(house, id, 30) for id in ids]
    other = await house.worker_process().start()
    try:
        assert await worker.stop() == 0
        for id, before in zip(ids, progress, strict=True):
            done = await house.client.result(id)
            assert done.result.stop_reason == "completed"
            assert text_of(done.result.output).split() == [str(n) for n in range(NUMBERS)]
            assert len(await _logged_seqs(house, id)) >= last_seq(before)
    finally:
        await other.stop()


async def test_a_stopped_worker_that_comes_back_owns_nothing(house: House, tmp_path: Path) -> None:
    ran, gate = tmp_path / "ran", tmp_path / "gate"
    script = [
        {"delta": "before"},
        {"message": None},
        {"wait_for": str(gate)},
        {"tool": {"id": "1", "name": "count", "arguments": {}, "appends_to": str(ran), "result": "ok"}},
        {"delta": "after"},
        {"message": None},
    ]
    first = await house.worker_process().start()
    other: WorkerProcess | None = None
    try:
        id = await house.client.start(scripted(*script))
        await until_beaten(house, id, 3)
        first.send(signal.SIGSTOP)
        other = await house.worker_process().start()
        await _until_attempt(house, id, 2)
        gate.touch()
        done = await house.client.result(id)
        first.send(signal.SIGCONT)
        assert done.result.stop_reason == "completed"
        assert text_of(done.result.output) == "after"
        assert await first.stop() == 0
        assert len(ran.read_text().splitlines()) == 1
        assert _edges(house.data_dir, id).count("subagent/end") == 1
        seqs = await _logged_seqs(house, id)
        assert seqs == list(range(len(seqs)))
    finally:
        await first.stop()
        if other is not None:
            await other.stop()


async def test_a_tool_that_was_killed_is_not_run_again(house: House, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    tool = {"id": "1", "name": "count", "arguments": {}, "appends_to": str(ran), "waits_for": str(tmp_path / "never")}
    worker = await house.worker_process().start()
    resumed = await house.client.start(
        scripted({"delta": "a"}, {"message": None}, {"tool": tool}, {"delta": "b"}, {"message": None})
    )
    settled = await house.client.start(
        scripted({"delta": "a"}, {"message": None}, {"tool": tool}, {"delta": "b"}, backend="scripted-no-resume")
    )
    async with asyncio.timeout(60):
        while not ran.exists() or len(ran.read_text().splitlines()) < 2:
            await asyncio.sleep(0.02)
    await worker.kill()
    other = await house.worker_process().start()
    try:
        one, two = await house.client.result(resumed), await house.client.result(settled)
    finally:
        await other.stop()
    assert (one.result.stop_reason, text_of(one.result.output)) == ("completed", "b")
    assert (two.result.stop_reason, text_of(two.result.output)) == ("error", "a")
    assert len(ran.read_text().splitlines()) == 2


async def test_restart_prompts_again_and_the_new_message_is_the_output(house: House, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    worker = await house.worker_process().start()
    id = await house.client.start(
        scripted({"delta": "half "}, {"wait_for": str(gate)}, {"delta": "whole"}, {"message": None},
                 on_worker_loss="restart")
    )  # fmt: skip
    await until_beaten(house, id, 3)
    await worker.kill()
    gate.touch()
    other = await house.worker_process().start()
    try:
        done = await house.client.result(id)
    finally:
        await other.stop()
    assert done.result.stop_reason == "completed"
    assert text_of(done.result.output) == "half whole"


async def test_what_keeps_killing_its_worker_settles_after_three_losses(house: House) -> None:
    id = await house.client.start(scripted({"delta": "x "}, {"fault": "hang"}))
    for attempt in (1, 2, 3):
        worker = await house.worker_process().start()
        await _until_attempt(house, id, attempt)
        await until_beaten(house, id, 1)
        await worker.kill()
    other = await house.worker_process().start()
    try:
        done: DelegationResult = await house.client.result(id)
    finally:
        await other.stop()
    assert done.result.stop_reason == "error"
    assert "attempts=3" in (done.result.diagnostic or "")
    assert text_of(done.result.output).startswith("x ")


async def _until_attempt(house: House, id: str, attempt: int) -> None:
    async with asyncio.timeout(60):
        while (await house.client.describe(id)).attempt < attempt:
            await asyncio.sleep(0.05)


def _edges(data_dir: Path, id: str) -> list[str]:
    lines = (data_dir / "edges.jsonl").read_text().splitlines()
    return [edge["type"] for edge in map(json.loads, lines) if edge["id"] == id]
