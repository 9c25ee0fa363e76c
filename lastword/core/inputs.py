"""What the workflow hands to its activities."""

from __future__ import annotations

from pydantic import BaseModel

from lastword.core.checkpoint import Checkpoint
from lastword.core.contract import StopReason, TurnSpec


class AttemptInput(BaseModel):
    """One attempt at a turn."""

    spec: TurnSpec
    attempt: int = 1
    losses: int = 0
    """Earlier attempts that were lost with their worker; hand-overs are not counted."""
    lost: bool = False
    """The attempt before this one was lost, not handed over."""
    remaining: float | None = None
    """Seconds of wall clock left for the turn when the attempt was scheduled."""
    checkpoint: Checkpoint | None = None
    """The latest known one of the earlier attempts."""


class SettleInput(BaseModel):
    """A turn that no attempt will go on with."""

    spec: TurnSpec
    attempt: int
    """The last one that was scheduled."""
    losses: int = 0
    checkpoint: Checkpoint | None = None
    stop_reason: StopReason
    category: str | None = None
    """For the diagnostic; None for a stop that needs no explanation."""
