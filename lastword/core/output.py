"""The canonical output rule: which of a child's words are its last word.

1. The last assistant message with non-empty content wins, by the length of its content list.
2. Without one, all streamed text, joined in order without a separator, is one text block.
3. Without that, there is no output.

This is the only implementation; everything that shows, returns or publishes a child's output goes through it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from lastword.core.errors import CheckpointInvalid
from lastword.core.events import (
    ASSISTANT_ATTEMPT,
    ASSISTANT_CHUNK,
    ASSISTANT_MESSAGE,
    Block,
    JsonObject,
    SessionEvent,
    text_block,
)

_SNAPSHOT_VERSION = 1
_MAX_DEPTH = 64  # nesting of one block; deeper is malformed, for neither JSON encoders nor copies survive it
_StepKey = tuple[Any, Any]


class AssistantOutputFold:
    """The rule as an incremental fold over one turn's events.

    A push takes constant time for a delta and never raises, whatever the event holds; text is joined only by `collect`
    and `snapshot`. For every split of a sequence, folding the head, `snapshot`, `restore` and folding the tail gives
    what folding the whole gives.
    """

    __slots__ = ("_candidate", "_chunked", "_pieces", "_size")

    def __init__(self) -> None:
        self._candidate: list[Block] | None = None
        self._pieces: list[str] = []
        # Steps whose text came as chunks: their message's `stream` repeats that text and must not count again.
        self._chunked: set[_StepKey] = set()
        self._size = 0

    def push(self, event: SessionEvent | Mapping[str, Any]) -> None:
        """Take the next event. Unknown types and malformed events change nothing."""
        kind: Any
        data: Any
        if isinstance(event, SessionEvent):
            kind, data = event.type, event.data
        elif isinstance(event, Mapping):
            kind, data = event.get("type"), event.get("data")
        else:
            return
        if not isinstance(data, Mapping):
            return
        if kind == ASSISTANT_CHUNK:
            self._push_chunk(data)
        elif kind == ASSISTANT_MESSAGE:
            self._push_stream(data)
            content = _content_of(data.get("message"))
            if content:
                self._candidate = content
                # Streamed text can never be selected again.
                self._pieces.clear()
                self._chunked.clear()
                self._size = sum(_rough_size(block) for block in content)
        elif kind == ASSISTANT_ATTEMPT:
            self._push_stream(data)

    def push_text(self, text: str) -> None:
        """Take a piece of streamed text from a transport that has no events."""
        if self._candidate is None and isinstance(text, str) and text:
            self._pieces.append(text)
            self._size += len(text)

    def collect(self) -> list[Block] | None:
        """The output so far, or None. The caller owns what it gets."""
        if self._candidate is not None:
            return copy.deepcopy(self._candidate)
        if self._pieces:
            return [text_block("".join(self._pieces))]
        return None

    @property
    def size(self) -> int:
        """About how many characters a snapshot would carry; known without making one."""
        return self._size

    def snapshot(self) -> JsonObject:
        """The state as plain JSON data, for a checkpoint."""
        if self._candidate is not None:
            return {"version": _SNAPSHOT_VERSION, "candidate": copy.deepcopy(self._candidate)}
        state: JsonObject = {"version": _SNAPSHOT_VERSION, "text": "".join(self._pieces)}
        if self._chunked:
            state["chunked"] = [list(key) for key in sorted(self._chunked, key=repr)]
        return state

    @classmethod
    def restore(cls, data: Mapping[str, Any]) -> AssistantOutputFold:
        """The fold that `snapshot` was taken of.

        Raises CheckpointInvalid for data that no snapshot of a known version gives.
        """
        if not isinstance(data, Mapping) or data.get("version") != _SNAPSHOT_VERSION:
            version = data.get("version") if isinstance(data, Mapping) else type(data).__name__
            raise CheckpointInvalid(
                f"The fold snapshot has version {version!r}, this worker reads {_SNAPSHOT_VERSION}."
                " Run it on a worker of the version that wrote it."
            )
        fold = cls()
        if "candidate" in data:
            candidate = _content_of({"content": data["candidate"]})
            if not candidate:
                raise CheckpointInvalid("The fold snapshot's candidate is not a list of content blocks.")
            fold._candidate = candidate
            fold._size = sum(_rough_size(block) for block in candidate)
            return fold
        text, chunked = data.get("text", ""), data.get("chunked", [])
        if not isinstance(text, str) or not isinstance(chunked, list):
            raise CheckpointInvalid("The fold snapshot's text or list of chunked steps is malformed.")
        fold.push_text(text)
        fold._chunked = {_step_key_of(*key) for key in chunked if isinstance(key, list | tuple) and len(key) == 2}
        return fold

    def _push_chunk(self, data: Mapping[str, Any]) -> None:
        text = _delta_text(data.get("chunk"))
        if text and self._candidate is None:
            self._chunked.add(_step_key(data))
            self.push_text(text)

    def _push_stream(self, data: Mapping[str, Any]) -> None:
        stream = data.get("stream")
        if self._candidate is not None or not isinstance(stream, list | tuple) or _step_key(data) in self._chunked:
            return
        for record in stream:
            for text in _record_texts(record):
                self.push_text(text)


def final_assistant_output(events: Iterable[SessionEvent | Mapping[str, Any]]) -> list[Block] | None:
    """The output of a whole sequence of events (models or plain mappings), or None."""
    fold = AssistantOutputFold()
    for event in events:
        fold.push(event)
    return fold.collect()


def _content_of(message: Any) -> list[Block] | None:
    """The message's content, or None if the message is malformed. Empty content is an empty list."""
    if not isinstance(message, Mapping) or message.get("role", "assistant") != "assistant":
        return None
    content = message.get("content")
    if not isinstance(content, list | tuple):
        return None
    if not all(_is_block(block) for block in content):
        return None
    return [dict(block) for block in content]


def _is_block(block: Any) -> bool:
    if not isinstance(block, Mapping) or not isinstance(block.get("type"), str):
        return False
    if block["type"] == "text" and not isinstance(block.get("text"), str):
        return False
    return _depth_is_sane(block, _MAX_DEPTH)


def _depth_is_sane(value: Any, left: int) -> bool:
    if isinstance(value, Mapping):
        return left > 0 and all(_depth_is_sane(item, left - 1) for item in value.values())
    if isinstance(value, list | tuple):
        return left > 0 and all(_depth_is_sane(item, left - 1) for item in value)
    return True


def _delta_text(chunk: Any) -> str:
    if isinstance(chunk, Mapping) and chunk.get("type") == "text-delta":
        text = chunk.get("text")
        if isinstance(text, str):
            return text
    return ""


def _record_texts(record: Any) -> Iterable[str]:
    if not isinstance(record, Mapping):
        return
    if record.get("type") == "text-chunks":
        texts = record.get("texts")
        if isinstance(texts, list | tuple):
            yield from (text for text in texts if isinstance(text, str))
    elif record.get("type") == "chunk":
        yield _delta_text(record.get("chunk"))


def _step_key(data: Mapping[str, Any]) -> _StepKey:
    return _step_key_of(data.get("turn"), data.get("step"))


def _step_key_of(turn: Any, step: Any) -> _StepKey:
    # Only plain scalars survive a snapshot as they are and can be hashed; anything else names no step.
    return (turn if isinstance(turn, (int, str)) else None, step if isinstance(step, (int, str)) else None)


def _rough_size(value: Any) -> int:
    if isinstance(value, str):
        return len(value) + 3
    if isinstance(value, Mapping):
        return 2 + sum(len(str(key)) + 4 + _rough_size(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return 2 + sum(_rough_size(item) + 1 for item in value)
    return 8
