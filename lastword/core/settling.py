"""Settling: turning what dead or cancelled attempts left into the turn's result."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from lastword.core.contract import TurnResult
from lastword.core.diagnostic import Diagnostic
from lastword.core.errors import Fenced, LogUnavailable
from lastword.core.events import Block, turn_end
from lastword.core.inputs import SettleInput
from lastword.core.ports import SessionStore
from lastword.core.recovery import Recovered, recover, recover_without_log
from lastword.core.results import Course, Ending, latest_permission, turn_result

logger = logging.getLogger("lastword.turn")


@dataclass
class Settled:
    """The result, the whole output, and whether the turn's start was published (so its end must be)."""

    result: TurnResult
    output: list[Block] | None
    published: bool


async def settle_turn(store: SessionStore | None, input: SettleInput) -> Settled:
    """The result of a turn that no attempt goes on with.

    A sealed `turn/end` stands, whatever the caller would settle with. Without a store, or when it does not answer, the
    checkpoint has to do. Idempotent: the end is sealed as the attempt after the last, and found there when this runs
    again.
    """
    spec = input.spec
    try:
        recovered = recover_without_log(input.checkpoint) if store is None else await _recover_and_seal(store, input)
    except LogUnavailable as error:
        logger.error("settling %s from its checkpoint alone: %s", spec.id, error)
        recovered = recover_without_log(input.checkpoint)
    ending = Ending.of_event(recovered.end, spec.task.backend) if recovered.end else _ending(input, recovered)
    output = recovered.fold.collect()
    interval = input.checkpoint.interval_ms if input.checkpoint else None
    course = Course(
        attempts=max(input.attempt, 1),
        tally=recovered.tally,
        started=recovered.started,
        next_seq=recovered.next_seq,
        interval=interval / 1000 if interval else None,
        session=input.checkpoint.session if input.checkpoint else None,
        permission=latest_permission(recovered.events),
    )
    if recovered.end is not None and recovered.end.time is not None:
        course.ended = recovered.end.time
    return Settled(turn_result(spec, output, ending, course), output, published=recovered.started is not None)


async def _recover_and_seal(store: SessionStore, input: SettleInput) -> Recovered:
    spec = input.spec
    while True:
        recovered = await recover(store, spec, attempts=input.attempt, checkpoint=input.checkpoint)
        if recovered.end is not None or recovered.started is None:
            return recovered
        ending = _ending(input, recovered)
        log = store.attempt(spec.log, turn=spec.turn, attempt=input.attempt + 1, first_seq=recovered.next_seq)
        log.append(turn_end(ending.stop_reason, turn=spec.turn, diagnostic=ending.facts()))
        try:
            await log.seal()
        except Fenced:
            # Another run of this settling was first; its end stands and is read now.
            continue
        recovered.next_seq = log.next_seq
        return recovered


def _ending(input: SettleInput, recovered: Recovered) -> Ending:
    if input.category is None:
        return Ending(input.stop_reason)
    limits = input.spec.task.limits
    return Ending(
        input.stop_reason,
        Diagnostic(
            backend=input.spec.task.backend,
            stage="recovery",
            category=input.category,
            attempts=input.losses or None,
            limit=limits.wall_clock if input.category == "wall-clock-limit" else None,
            missing_events=recovered.missing_events or None,
        ),
    )
