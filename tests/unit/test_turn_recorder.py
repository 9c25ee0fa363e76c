"""The recorder and the pump: what a checkpoint holds, and when it goes out."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lastword.activities.checkpoint_pump import BeatPacer, CheckpointPump
from lastword.activities.turn_recorder import TurnRecorder
from lastword.core import events, options
from lastword.core.checkpoint import Checkpoint
from lastword.core.contract import ChildTask, LogRef, TurnSpec
from lastword.core.errors import Fenced
from lastword.core.events import text_of
from lastword.core.output import AssistantOutputFold, final_assistant_output
from lastword.core.recovery import recover, recover_without_log
from lastword.core.tally import Tally
from lastword.sessions import ObstoreSessionStore, open_store

REF = LogRef(session_id="d", run_id="r")
SPEC = TurnSpec(id="d", turn_run_id="r", log=REF, task=ChildTask(prompt="x", backend="scripted"))


@pytest.fixture
def store(tmp_path: Path) -> ObstoreSessionStore:
    return open_store(str(tmp_path))


def recorder_on(store: ObstoreSessionStore) -> TurnRecorder:
    log = store.attempt(REF, turn=1, attempt=1, first_seq=0)
    return TurnRecorder(log, attempt=1, fold=AssistantOutputFold(), tally=Tally(), started=None)


async def test_a_tool_call_is_durable_when_record_returns(store: ObstoreSessionStore) -> None:
    recorder = recorder_on(store)
    await recorder.record(events.text_delta("a", turn=1, step=1))
    assert recorder.checkpoint().sealed_seq == 0
    await recorder.record(events.tool_call("1", "t", {}, turn=1, step=1))
    assert recorder.checkpoint().sealed_seq == recorder.next_seq == 2
    await recorder.close()


async def test_a_fenced_recorder_refuses_the_tool(store: ObstoreSessionStore) -> None:
    recorder = recorder_on(store)
    await recorder.record(events.text_delta("a", turn=1, step=1))
    await store.fence(REF, turn=1, attempt=1, first_seq=0, tail=recorder.checkpoint().tail)
    with pytest.raises(Fenced):
        await recorder.record(events.tool_call("1", "t", {}, turn=1, step=1))
    await recorder.close()


@pytest.mark.parametrize("size", [10, 3000, 200_000])
async def test_log_and_checkpoint_together_are_everything_that_was_recorded(
    store: ObstoreSessionStore, size: int
) -> None:
    recorder = recorder_on(store)
    await recorder.record(events.turn_start(turn=1))
    said = "".join(f"{n} " for n in range(size))[:size]
    for n in range(0, size, 7):
        await recorder.record(events.text_delta(said[n : n + 7], turn=1, step=1))
    checkpoint = recorder.checkpoint()
    assert len(checkpoint.model_dump_json()) < 32 * 1024
    recovered = await recover(store, SPEC, attempts=1, checkpoint=checkpoint)
    assert text_of(recovered.fold.collect() or []) == said
    assert recovered.next_seq == recorder.next_seq
    if size < options.MAX_INLINE_FOLD:
        assert text_of(recover_without_log(checkpoint).fold.collect() or []) == said
    await recorder.close()


@pytest.mark.parametrize("unsealed", [True, False])
async def test_what_a_checkpoint_carries_makes_up_for_a_lost_log(tmp_path: Path, unsealed: bool) -> None:
    store = open_store(str(tmp_path / "one"))
    recorder = recorder_on(store)
    await recorder.record(events.assistant_message([events.text_block("the answer")], turn=1, step=1))
    await recorder.seal()
    if unsealed:
        await recorder.record(events.text_delta("more", turn=1, step=2))
    checkpoint = recorder.checkpoint()
    await recorder.close()
    elsewhere = open_store(str(tmp_path / "two"))
    recovered = await recover(elsewhere, SPEC, attempts=1, checkpoint=checkpoint)
    assert text_of(recovered.fold.collect() or []) == "the answer"
    assert recovered.missing_events == 1
    assert recovered.next_seq == recorder.next_seq


async def test_the_pump_sends_news_at_once_and_the_same_again_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "BEAT_INTERVAL", 0.01)
    monkeypatch.setattr(options, "KEEP_ALIVE", 0.02)
    sent: asyncio.Queue[Checkpoint] = asyncio.Queue()
    state = Checkpoint(attempt=1, sealed_seq=0)
    pump = CheckpointPump(lambda: state, pacer=BeatPacer(), heartbeat=sent.put_nowait)
    running = asyncio.create_task(pump.run())
    pump.notify()
    async with asyncio.timeout(10):
        assert await sent.get() is state
        assert await sent.get() is state
        state = Checkpoint(attempt=1, sealed_seq=5)
        pump.notify()
        while (await sent.get()).sealed_seq != 5:
            pass
    running.cancel()


def test_many_children_stretch_the_pace_to_the_workers_rate() -> None:
    pacer = BeatPacer()
    for _ in range(100):
        pacer.enter()
    assert pacer.interval == options.BEAT_INTERVAL
    for _ in range(400):
        pacer.enter()
    assert pacer.interval == 500 / options.BEATS_PER_SECOND


async def test_what_a_child_read_does_not_travel_in_a_checkpoint(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    log = store.attempt(REF, turn=1, attempt=1, first_seq=0)
    recorder = TurnRecorder(log, attempt=1, fold=AssistantOutputFold(), tally=Tally(), started=None)
    secret = "sk-canary-file"
    private = [
        events.tool_call("1", "read", {"path": secret}, turn=1, step=1),
        events.tool_update("1", "read", {"path": secret}, turn=1, step=1),
        events.tool_result("1", [events.text_block(secret)], turn=1, step=1),
        events.permission_request("q", {"kind": "read", "input": secret}, turn=1),
        events.permission_decision({"kind": "read", "input": secret}, {"decision": "allow"}, turn=1),
        events.backend_state({"history": secret}, turn=1),
    ]
    for event in private:
        log.append(event)
    log.append(events.text_delta("its own words", turn=1, step=2))
    checkpoint = recorder.checkpoint()
    assert secret not in checkpoint.model_dump_json()
    # The log itself has not got them either: only the worker had, and it is gone.
    await store.fence(REF, turn=1, attempt=1, first_seq=0, tail=checkpoint.tail)
    kept = [item async for item in store.read(REF)]
    assert [item.seq for item in kept] == list(range(7))  # type: ignore[union-attr]
    assert kept[0].type == "tool/call"  # type: ignore[union-attr]
    assert final_assistant_output(kept) == [events.text_block("its own words")]  # type: ignore[arg-type]
    await recorder.close()


async def test_what_a_child_read_is_sealed_at_once(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    log = store.attempt(REF, turn=1, attempt=1, first_seq=0)
    recorder = TurnRecorder(log, attempt=1, fold=AssistantOutputFold(), tally=Tally(), started=None)
    for n in range(3):
        await recorder.record(events.tool_result(str(n), [], turn=1, step=1))
    async with asyncio.timeout(10):
        while log.sealed_seq < 3:
            await asyncio.sleep(0.01)
    await recorder.close()
