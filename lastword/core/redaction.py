"""What of a session may leave for the server. Checkpoints get into workflow history when a worker is lost.

The child's own words may: they are what is saved. What it read, and what it gave to tools, may not: files and secrets
are among it. Events with such content are sealed in the session log at once (see `is_private`); in a checkpoint that is
quicker than the log they stand with their names and numbers alone.
"""

from __future__ import annotations

from typing import Any, Final

from lastword.core.events import (
    AGENT_STDERR,
    BACKEND_STATE,
    PERMISSION_DECISION,
    PERMISSION_REQUEST,
    TOOL_CALL,
    TOOL_RESULT,
    TOOL_UPDATE,
    JsonObject,
    SessionEvent,
)

REDACTED: Final = "redacted"
"""The type of an event of which only its place is known."""

_NAMED: Final = {TOOL_CALL: "arguments", TOOL_UPDATE: "arguments"}
_UNSAID: Final = frozenset({TOOL_RESULT, BACKEND_STATE, AGENT_STDERR})
_ASKED: Final = frozenset({PERMISSION_REQUEST, PERMISSION_DECISION})


def is_private(event: SessionEvent) -> bool:
    """It holds more than the child's own words."""
    return event.type in _NAMED or event.type in _UNSAID or event.type in _ASKED


def public_row(row: JsonObject) -> JsonObject:
    """A packed row as it may be seen: of a private event that a call was made, or that something was here."""
    event: Any = row.get("event")
    kind = event.get("type") if isinstance(event, dict) else None
    if kind in _NAMED:
        return {"event": {**event, "data": _without(event["data"], _NAMED[kind])}}
    if kind in _ASKED:
        data = event["data"]
        return {"event": {**event, "data": {**data, "request": _without(data.get("request", {}), "input")}}}
    if kind in _UNSAID:
        turn = event["data"].get("turn")
        return {"event": {**event, "type": REDACTED, "data": {"turn": turn, "type": kind}}}
    return row


def _without(data: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key != name}
