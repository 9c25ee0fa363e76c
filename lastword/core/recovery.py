"""Taking a turn over from an attempt that is gone, or believed to be: fence it, read back what it left, decide."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from lastword.core.checkpoint import Checkpoint
from lastword.core.contract import OnWorkerLoss, TurnSpec
from lastword.core.events import ASSISTANT_CHUNK, TURN_END, TURN_START, SessionEvent
from lastword.core.output import AssistantOutputFold
from lastword.core.packing import RowReader
from lastword.core.ports import Gap, Resume, SessionStore
from lastword.core.tally import Tally

Plan: TypeAlias = Literal["finished", "resume", "restart", "settle"]

MAX_LOSSES = 3
"""Attempts that may be lost with their worker before the turn settles."""

GO_ON: Final = (
    "You were interrupted while you worked on the request above; nobody has seen your answer. What you did before"
    " counts: do not do it again. Finish what is left of the task, then give the whole answer, from its beginning."
)
"""What an agent is told that takes up a session whose turn was cut."""


def plan_recovery(policy: OnWorkerLoss, *, lost: bool, ended: bool, resumable: bool, tools_called: bool) -> Plan:
    """Decide from what the log shows.

    A sealed end is never run again. What cannot resume restarts only if no tool was called, for a second run could do
    the tool's work twice; `restart` as the policy asks for that. A turn that was handed over at a shutdown (`lost`
    False) goes on as well as it can: `settle` speaks of losses only.
    """
    if ended:
        return "finished"
    if lost and policy == "settle":
        return "settle"
    if resumable and not (lost and policy == "restart"):
        return "resume"
    if policy == "restart" or not tools_called:
        return "restart"
    return "settle"


@dataclass
class Recovered:
    """A turn as its log and its last checkpoint tell it."""

    fold: AssistantOutputFold = field(default_factory=AssistantOutputFold)
    tally: Tally = field(default_factory=Tally)
    next_seq: int = 0
    started: int | None = None
    end: SessionEvent | None = None
    events: list[SessionEvent] = field(default_factory=list)
    """Without deltas."""
    missing_events: int = 0
    last_step: int = 0

    @property
    def tools_called(self) -> bool:
        return self.tally.tool_calls > 0

    def resume(self, checkpoint: Checkpoint | None) -> Resume:
        return Resume(
            session=checkpoint.session if checkpoint else None, events=self.events, next_step=self.last_step + 1
        )


async def recover(store: SessionStore, spec: TurnSpec, *, attempts: int, checkpoint: Checkpoint | None) -> Recovered:
    """Close the first `attempts` attempts of the turn for ever and gather what they did.

    After it no earlier attempt can write, run a tool or report a result. Raises LogUnavailable.
    """
    position = spec.first_seq
    for attempt in range(1, attempts + 1):
        tail = checkpoint.tail if checkpoint is not None and checkpoint.attempt == attempt else []
        position = await store.fence(spec.log, turn=spec.turn, attempt=attempt, first_seq=position, tail=tail)
    recovered = Recovered(next_seq=position)
    if checkpoint is not None and checkpoint.sealed_seq > position:
        # This store has never seen what the checkpoint says is sealed; its numbers are not given again.
        recovered.missing_events = checkpoint.sealed_seq - position
        recovered.next_seq = checkpoint.sealed_seq
    # When a part of the log cannot be read, what the checkpoint carried of it is worth more than what is left.
    carried = _carried(checkpoint)
    expected = spec.first_seq
    async for item in store.read(spec.log, turn=spec.turn, from_seq=spec.first_seq, merge_deltas=True):
        if isinstance(item, Gap):
            end = item.end_seq if item.end_seq is not None else position
            recovered.missing_events += max(end - max(item.first_seq, expected), 1)
            expected = max(expected, end)
            continue
        recovered.fold.push(item)
        recovered.tally.push(item)
        if carried is not None and item.seq is not None and item.seq >= carried.sealed_seq:
            carried.fold.push(item)
            carried.tally.push(item)
        _note(recovered, item)
    if recovered.missing_events and carried is not None:
        recovered.fold, recovered.tally = carried.fold, carried.tally
    if checkpoint is not None and recovered.started is None:
        recovered.started = checkpoint.started
    return recovered


def recover_without_log(checkpoint: Checkpoint | None) -> Recovered:
    """What the checkpoint alone tells, for when the store does not answer."""
    recovered = Recovered()
    if checkpoint is None:
        return recovered
    carried = _carried(checkpoint)
    if carried is not None:
        recovered.fold, recovered.tally = carried.fold, carried.tally
    else:
        recovered.missing_events = checkpoint.sealed_seq
        recovered.tally = checkpoint.tally.model_copy()
    recovered.started = checkpoint.started
    recovered.next_seq = checkpoint.sealed_seq
    reader = RowReader()
    for row in checkpoint.tail:
        for event in reader.read(row):
            recovered.fold.push(event)
            recovered.tally.push(event)
            _note(recovered, event)
            recovered.next_seq = max(recovered.next_seq, (event.seq or 0) + 1)
    return recovered


@dataclass
class _Carried:
    sealed_seq: int
    fold: AssistantOutputFold
    tally: Tally


def _carried(checkpoint: Checkpoint | None) -> _Carried | None:
    if checkpoint is None or checkpoint.fold is None:
        return None
    return _Carried(checkpoint.sealed_seq, AssistantOutputFold.restore(checkpoint.fold), checkpoint.tally.model_copy())


def _note(recovered: Recovered, event: SessionEvent) -> None:
    if event.type == TURN_START and recovered.started is None:
        recovered.started = event.time
    elif event.type == TURN_END:
        recovered.end = event
    step = event.data.get("step")
    if isinstance(step, int):
        recovered.last_step = max(recovered.last_step, step)
    if event.type != ASSISTANT_CHUNK:
        recovered.events.append(event)
