"""Making a turn's result of what was folded, counted and decided. One place for every way a turn can end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from lastword.core import contract
from lastword.core.bounds import bound_blocks
from lastword.core.contract import OutputRef, SessionRef, StopReason, Timing, TurnResult, TurnSpec
from lastword.core.diagnostic import Diagnostic, PermissionFact
from lastword.core.events import PERMISSION_DECISION, Block, SessionEvent, now_ms
from lastword.core.tally import Tally


@dataclass
class Ending:
    """Why a turn ended, with what belongs to that."""

    stop_reason: StopReason
    diagnostic: Diagnostic | None = None
    structured: Any = None

    @classmethod
    def of_event(cls, event: SessionEvent, backend: str) -> Ending:
        """What a `turn/end` says; one that says nothing usable is an `error`."""
        reason = event.data.get("reason")
        kind = reason.get("kind") if isinstance(reason, dict) else None
        if not isinstance(kind, str) or not kind:
            return cls(contract.ERROR, Diagnostic(backend=backend, category="protocol"))
        facts = event.data.get("diagnostic")
        diagnostic: Diagnostic | None = None
        if isinstance(facts, dict):
            try:
                diagnostic = Diagnostic.model_validate({"backend": backend, **facts})
            except ValidationError:
                diagnostic = Diagnostic(backend=backend)
        return cls(kind, diagnostic, event.data.get("structured"))

    def facts(self) -> dict[str, Any] | None:
        """The diagnostic as a `turn/end` carries it."""
        return self.diagnostic.model_dump(exclude_none=True) if self.diagnostic else None


@dataclass
class Course:
    """How the turn went."""

    attempts: int
    tally: Tally
    started: int | None
    next_seq: int
    ended: int = field(default_factory=now_ms)
    interval: float | None = None
    session: SessionRef | None = None
    disposal_error: bool = False
    permission: PermissionFact | None = None
    """The turn's latest permission decision."""


def latest_permission(events: Sequence[SessionEvent]) -> PermissionFact | None:
    """The last permission decision among the events."""
    for event in reversed(events):
        if event.type == PERMISSION_DECISION:
            try:
                return PermissionFact.model_validate(event.data.get("fact"))
            except ValidationError:
                return None
    return None


def turn_result(spec: TurnSpec, output: list[Block] | None, ending: Ending, course: Course) -> TurnResult:
    """The result, its output within the bound of the contract."""
    blocks, whole = bound_blocks(output or [], contract.MAX_OUTPUT_BYTES)
    completed = ending.stop_reason == contract.COMPLETED
    explained = _explanation(spec, ending, course.permission)
    usage = course.tally.usage
    return TurnResult(
        output=blocks,
        output_ref=None if whole is None else OutputRef(log=spec.log, turn=spec.turn, bytes=whole),
        stop_reason=ending.stop_reason,
        structured=ending.structured if completed and spec.task.output_schema is not None else None,
        diagnostic=explained.render() if explained else None,
        usage=usage if usage.known else None,
        timing=Timing(
            started=course.started or course.ended,
            ended=course.ended,
            beat_interval_ms=round(course.interval * 1000) if course.interval else None,
        ),
        attempts=course.attempts,
        log=spec.log,
        next_seq=course.next_seq,
        session=course.session,
        disposal_error=course.disposal_error,
    )


def _explanation(spec: TurnSpec, ending: Ending, permission: PermissionFact | None) -> Diagnostic | None:
    # A caller who cancelled knows why it ended.
    if ending.stop_reason in (contract.COMPLETED, contract.ABORTED):
        return None
    if permission is None:
        return ending.diagnostic
    diagnostic = ending.diagnostic or Diagnostic(backend=spec.task.backend, category=ending.stop_reason)
    return diagnostic.model_copy(update={"permission": permission})
