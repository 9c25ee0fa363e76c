"""Session events: what a child says and does, in the order it happened.

An event is an envelope (`type`, `seq`, `time`, `data`) around free-form JSON data. Nothing here rejects an event for a
field or a type it does not know: a newer child must stay readable. The output rule (`output.py`) is strict about the
few fields that it reads.

Times are milliseconds since the Unix epoch. `seq` counts from 0 within one session, without gaps; a backend leaves both
unset and the recorder of the turn fills them in.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from pydantic import BaseModel, ConfigDict

JsonObject: TypeAlias = dict[str, Any]
Block: TypeAlias = dict[str, Any]
"""One content block: `text`, `reasoning`, `image`, `tool-call`, `tool-result`, or a type this version does not know."""

ASSISTANT_MESSAGE: Final = "assistant/message"
ASSISTANT_ATTEMPT: Final = "assistant/attempt"
ASSISTANT_CHUNK: Final = "assistant/chunk"
USER_MESSAGE: Final = "user/message"
TOOL_CALL: Final = "tool/call"
TOOL_UPDATE: Final = "tool/update"
TOOL_RESULT: Final = "tool/result"
STEP_START: Final = "step/start"
TURN_START: Final = "turn/start"
TURN_END: Final = "turn/end"
PERMISSION_REQUEST: Final = "permission/request"
PERMISSION_DECISION: Final = "permission/decision"
AGENT_NOTICE: Final = "agent/notice"
"""What an agent program says itself: a warning, an error text. Never the child's words."""
AGENT_STDERR: Final = "agent/stderr"
"""The last lines that an agent program wrote to stderr before it failed. They may hold anything; never selected."""
CHILD_REPORT: Final = "child/report"
"""What a child told its parent while it ran. Not its answer; never selected."""
BACKEND_STATE: Final = "backend/state"
"""Opaque to everyone but the backend that wrote it; it comes back to that backend on resume."""


class SessionEvent(BaseModel):
    """One entry of a session's log."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: str
    seq: int | None = None
    time: int | None = None
    data: JsonObject = {}


def text_delta(text: str, *, turn: int, step: int, index: int = 0) -> SessionEvent:
    """A piece of the answer as the model streams it."""
    return _chunk({"type": "text-delta", "index": index, "text": text}, turn, step)


def reasoning_delta(text: str, *, turn: int, step: int, index: int = 0) -> SessionEvent:
    """A piece of the model's reasoning; logged and shown, never selected as streamed text."""
    return _chunk({"type": "reasoning-delta", "index": index, "text": text}, turn, step)


def _chunk(chunk: JsonObject, turn: int, step: int) -> SessionEvent:
    return SessionEvent(type=ASSISTANT_CHUNK, data={"turn": turn, "step": step, "chunk": chunk})


def assistant_message(
    content: Sequence[Block],
    *,
    turn: int,
    step: int,
    id: str | None = None,
    stream: Sequence[JsonObject] | None = None,
    usage: Mapping[str, Any] | None = None,
    interrupted: bool = False,
) -> SessionEvent:
    """A message the child committed. `usage` is the step's usage, in the field names of `contract.Usage`."""
    message: JsonObject = {"role": "assistant", "content": list(content)}
    if id is not None:
        message["id"] = id
    data: JsonObject = {"turn": turn, "step": step, "message": message}
    if stream is not None:
        data["stream"] = list(stream)
    if usage is not None:
        data["usage"] = dict(usage)
    if interrupted:
        data["interrupted"] = True
    return SessionEvent(type=ASSISTANT_MESSAGE, data=data)


def assistant_attempt(
    *,
    turn: int,
    step: int,
    stream: Sequence[JsonObject] = (),
    usage: Mapping[str, Any] | None = None,
) -> SessionEvent:
    """A model attempt that committed no message. Leave `stream` empty if its text was already emitted as chunks."""
    data: JsonObject = {"turn": turn, "step": step, "stream": list(stream)}
    if usage is not None:
        data["usage"] = dict(usage)
    return SessionEvent(type=ASSISTANT_ATTEMPT, data=data)


def step_start(*, turn: int, step: int) -> SessionEvent:
    """A model request is about to be made. The consumer may stop the turn instead of asking for the next event."""
    return SessionEvent(type=STEP_START, data={"turn": turn, "step": step})


def tool_call(id: str, name: str, arguments: Any, *, turn: int, step: int) -> SessionEvent:
    """A tool is about to run. It may run once the consumer has asked for the next event: by then this is durable."""
    return SessionEvent(
        type=TOOL_CALL, data={"turn": turn, "step": step, "id": id, "name": name, "arguments": arguments}
    )


def tool_update(id: str, name: str, arguments: Any, *, turn: int, step: int) -> SessionEvent:
    """More is known of a tool call that was told before: what it is called, with which arguments."""
    return SessionEvent(
        type=TOOL_UPDATE, data={"turn": turn, "step": step, "id": id, "name": name, "arguments": arguments}
    )


UNKNOWN_OUTCOME: Final = "Outcome unknown: the worker was lost while this tool ran. It was not run again."
"""What a child is told of a tool call that an earlier attempt began and no result was logged of."""


def tool_result(id: str, content: Sequence[Block], *, turn: int, step: int, is_error: bool = False) -> SessionEvent:
    """What the tool call `id` gave back."""
    return SessionEvent(
        type=TOOL_RESULT, data={"turn": turn, "step": step, "id": id, "content": list(content), "is_error": is_error}
    )


def user_message(content: Sequence[Block], *, turn: int) -> SessionEvent:
    """The prompt of a turn."""
    return SessionEvent(type=USER_MESSAGE, data={"turn": turn, "message": {"role": "user", "content": list(content)}})


def turn_start(*, turn: int) -> SessionEvent:
    """The turn was accepted by its backend and published."""
    return SessionEvent(type=TURN_START, data={"turn": turn})


def turn_end(
    reason: str, *, turn: int, diagnostic: Mapping[str, Any] | None = None, structured: Any = None
) -> SessionEvent:
    """The turn is over. `diagnostic` holds the facts of a `Diagnostic`, `structured` an answer that met its schema."""
    data: JsonObject = {"turn": turn, "reason": {"kind": reason}}
    if diagnostic:
        data["diagnostic"] = dict(diagnostic)
    if structured is not None:
        data["structured"] = structured
    return SessionEvent(type=TURN_END, data=data)


def backend_state(state: Mapping[str, Any], *, turn: int) -> SessionEvent:
    """A note of the backend to itself, for resume."""
    return SessionEvent(type=BACKEND_STATE, data={"turn": turn, "state": dict(state)})


def permission_request(question_id: str, request: Mapping[str, Any], *, turn: int) -> SessionEvent:
    """A person is asked for a permission; `request` holds the fields of a `PermissionRequest`."""
    return SessionEvent(type=PERMISSION_REQUEST, data={"turn": turn, "id": question_id, "request": dict(request)})


def permission_decision(
    request: Mapping[str, Any], fact: Mapping[str, Any], *, turn: int, question_id: str | None = None
) -> SessionEvent:
    """A permission was given or refused. `fact` holds the fields of a `PermissionFact`."""
    data: JsonObject = {"turn": turn, "request": dict(request), "fact": dict(fact)}
    if question_id is not None:
        data["id"] = question_id
    return SessionEvent(type=PERMISSION_DECISION, data=data)


def agent_notice(text: str, *, turn: int) -> SessionEvent:
    """Something the agent program says that is not its model's."""
    return SessionEvent(type=AGENT_NOTICE, data={"turn": turn, "text": text})


def child_report(text: str, *, turn: int) -> SessionEvent:
    """The child tells its parent something before it is done."""
    return SessionEvent(type=CHILD_REPORT, data={"turn": turn, "text": text})


def agent_stderr(lines: Sequence[str], *, turn: int) -> SessionEvent:
    """The end of a failed agent's stderr, for whoever looks for the reason in the session log."""
    return SessionEvent(type=AGENT_STDERR, data={"turn": turn, "lines": list(lines)})


def now_ms() -> int:
    """Now, as the `time` of an event."""
    return int(time.time() * 1000)


def text_block(text: str) -> Block:
    """The plainest content block."""
    return {"type": "text", "text": text}


def text_of(blocks: Sequence[Mapping[str, Any]]) -> str:
    """The text blocks' text, joined without a separator."""
    return "".join(b["text"] for b in blocks if b.get("type") == "text" and isinstance(b.get("text"), str))


def mend_text(event: SessionEvent) -> SessionEvent:
    """The event with every lone surrogate replaced by U+FFFD.

    JSON may carry them (`"\\ud800"`), UTF-8 may not, and both the checkpoint and the log are UTF-8.
    """
    try:
        _probe(event.data)
    except UnicodeEncodeError:
        return event.model_copy(update={"data": _mended(event.data)})
    return event


def _probe(value: Any) -> None:
    if isinstance(value, str):
        if not value.isascii():
            value.encode()
    elif isinstance(value, dict):
        for key, item in value.items():
            _probe(key)
            _probe(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _probe(item)


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mended(item) for item in value]
    return value
