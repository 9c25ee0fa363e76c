"""A child's children, as its workflow keeps them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from lastword.core.contract import StopReason
from lastword.core.notices import Notice


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
    """What of a conversation's children survives continue-as-new; none of them runs then."""

    started: int = 0
    known: list[ChildEntry] = []
    mailbox: list[Notice] = []
