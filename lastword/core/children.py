"""A child's children, as its workflow keeps them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from lastword.core.contract import CheckedPrompt, SeedMessage, StopReason, Usage
from lastword.core.notices import Notice


class DelegateCall(BaseModel):
    """What a child's worker asks of the child's workflow: a turn of a child's child. The same id again is the same."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(min_length=1, max_length=200)
    prompt: CheckedPrompt
    label: str | None = Field(default=None, max_length=200)
    background: bool = False
    """The asking child does not wait for it."""
    continuable: bool = False
    child: str | None = None
    """An earlier, continuable child of its own that is asked more; None for a new one."""
    seed: list[SeedMessage] = []
    spent: Usage | None = None
    """By the asking child itself in this turn so far."""


class Delegated(BaseModel):
    """The child that a call got, and of a continuable one the message that it answers."""

    id: str
    message_id: str | None = None


class ChildEntry(BaseModel):
    """One child of a child."""

    id: str
    label: str | None = None
    continuable: bool = False
    state: Literal["running", "idle", "settled"] = "running"
    """`idle`: a continuable one that can be asked more; `settled`: it is over."""
    stop_reason: StopReason | None = None
    """Of its latest turn."""
    messages: int = 1
    """It was given by its parent."""
    heard: int = 0
    """The number of its latest notice."""


class CollectCall(BaseModel):
    """What a child is to be told of one of its children, or of all of them."""

    child: str | None = None


class ChildrenState(BaseModel):
    """What of a conversation's children survives continue-as-new; of those that run only detached ones."""

    started: int = 0
    known: list[ChildEntry] = []
    mailbox: list[Notice] = []
