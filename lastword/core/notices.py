"""What a child tells its parent besides its result: reports while it runs, and the settlement of each turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from pydantic import BaseModel, Field

from lastword.core.bounds import bound_blocks
from lastword.core.contract import COMPLETED, StopReason, TurnResult, Usage
from lastword.core.events import Block, text_of
from lastword.core.tool_result import PARTIAL_LABEL, headline

MAX_REPORT_BYTES: Final = 8 * 1024
_CLOSING_BYTES: Final = 16 * 1024

NO_OUTPUT: Final = "none"
"""What a settlement says instead of an output, when there is none."""


class ReportCall(BaseModel):
    """A child's words to its parent. The same id again is the same report."""

    id: str = Field(min_length=1, max_length=200)
    text: str


class Notice(BaseModel):
    """One thing that a child told its parent.

    `seq` counts a child's notices from 1. A turn's reports come before its settlement, and that comes once.
    """

    child_id: str
    seq: int
    kind: Literal["report", "settlement"]
    turn: int = 1
    message_id: str | None = None
    """Of a conversation: the message that the turn answers."""
    text: str | None = None
    """A report's words."""
    stop_reason: StopReason | None = None
    """A settlement's; None if no child could be started, or the message was dropped: then `error` says so."""
    output: list[Block] | Literal["none"] = NO_OUTPUT
    """A settlement's closing output, head and tail of a long one."""
    error: str | None = None
    usage: Usage | None = None


def settlement(child_id: str, seq: int, result: TurnResult, *, turn: int, message_id: str | None = None) -> Notice:
    """How a turn ended, for its parent."""
    output, _ = bound_blocks(result.output, _CLOSING_BYTES)
    return Notice(
        child_id=child_id,
        seq=seq,
        kind="settlement",
        turn=turn,
        message_id=message_id,
        stop_reason=result.stop_reason,
        output=output or NO_OUTPUT,
        usage=result.usage,
    )


def told(notices: Sequence[Notice]) -> str:
    """The notices as a parent's model reads them. The child's words stand under their own label."""
    return "\n\n".join(_told(notice) for notice in notices)


def _told(notice: Notice) -> str:
    if notice.kind == "report":
        return f"Report of your child {notice.child_id}:\n{notice.text}"
    if notice.stop_reason is None:
        return f"Your child {notice.child_id} gave no answer: {notice.error}"
    said = text_of(notice.output) if notice.output != NO_OUTPUT else ""
    if notice.stop_reason == COMPLETED:
        return f"Your child {notice.child_id} is done. Its output:\n{said or '(none)'}"
    words = f"{PARTIAL_LABEL}\n{said}" if said else "It gave no output."
    return f"Your child {notice.child_id} did not finish. {headline(notice.stop_reason)}\n{words}"


def check_report(text: str) -> str:
    """The report, if it says something and is not too long. Raises ValueError."""
    if not text.strip():
        raise ValueError("the report is empty; say what the parent should know")
    if (size := len(text.encode(errors="replace"))) > MAX_REPORT_BYTES:
        raise ValueError(f"the report has {size} bytes, at most {MAX_REPORT_BYTES} are allowed; shorten it")
    return text
