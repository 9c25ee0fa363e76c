"""Session events as compact JSON rows and back, without loss. Heartbeat tails and log segments are made of them.

A row is one of

- `{"event": {...}}`: one event as it is;
- `{"run": {"seq", "turn", "step", "stream": {"type", "time0", "index", "dt", "texts"}}}`: consecutive text or reasoning
  deltas of one step, in the contract's record form (`dt` holds the times between them, one fewer than `texts`);
- `{"event": {...}, "fill": {"block", "chars", "digest"}}`: a message whose text block repeats what its step streamed;
  the block stands there without its text, which is stored once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any, Final

from lastword.core.events import ASSISTANT_CHUNK, ASSISTANT_MESSAGE, JsonObject, SessionEvent

FILL_FROM: Final = 2048
"""Characters of text from which a message refers to its stream; shorter ones are repeated."""

_RUN_TYPES: Final = {"text-delta": "text-chunks", "reasoning-delta": "reasoning-chunks"}
_DELTA_TYPES: Final = {record: delta for delta, record in _RUN_TYPES.items()}
_ROW_OVERHEAD = 120


def encoded_row(row: JsonObject) -> bytes:
    """The row as one line of JSON, without the line's end."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()


def _text_bytes(text: str) -> int:
    """Bytes of the text as a JSON string, with its quotes and a comma."""
    return len(json.dumps(text, ensure_ascii=False).encode()) + 1


class RowPacker:
    """Packs numbered events (`seq` and `time` set) in order. Appending takes time in the size of the event alone."""

    def __init__(self) -> None:
        self.rows: list[JsonObject] = []
        self.bytes = 0
        """About how long `rows` are as JSON."""
        self._open_run: _OpenRun | None = None
        # Length and digest of what the current step has streamed: constant memory however long that is.
        self._step: tuple[Any, Any] | None = None
        self._digest = hashlib.blake2b(digest_size=16)
        self._chars = 0

    def append(self, event: SessionEvent) -> None:
        delta = _delta_of(event)
        if delta is None:
            self._open_run = None
            self._append_row(self._event_row(event))
            return
        text, kind = delta["text"], _RUN_TYPES[delta["type"]]
        step = (event.data["turn"], event.data["step"])
        if kind == "text-chunks":
            self._note_streamed(step, text)
        run = self._open_run
        if run is not None and run.takes(event, step, kind, delta["index"]):
            self.bytes += run.add(event.time or 0, text)
            return
        self._open_run = _OpenRun(event, step, kind, delta["index"], text)
        self.rows.append(self._open_run.row)
        self.bytes += _ROW_OVERHEAD + _text_bytes(text)

    def cut(self) -> list[JsonObject]:
        """Take the rows out. They never change again; what the current step has streamed stays known."""
        rows, self.rows, self.bytes, self._open_run = self.rows, [], 0, None
        return rows

    def _append_row(self, row: JsonObject) -> None:
        self.rows.append(row)
        self.bytes += len(encoded_row(row)) + 1

    def _note_streamed(self, step: tuple[Any, Any], text: str) -> None:
        if step != self._step:
            self._step, self._digest, self._chars = step, hashlib.blake2b(digest_size=16), 0
        self._digest.update(text.encode())
        self._chars += len(text)

    def _event_row(self, event: SessionEvent) -> JsonObject:
        row: JsonObject = {"event": event.model_dump(mode="json", exclude_none=True)}
        index = self._streamed_block(event)
        if index is not None:
            message = row["event"]["data"]["message"]
            del message["content"][index]["text"]
            row["fill"] = {"block": index, "chars": self._chars, "digest": self._digest.hexdigest()}
        return row

    def _streamed_block(self, event: SessionEvent) -> int | None:
        """Which block of the message repeats exactly what its step streamed."""
        if event.type != ASSISTANT_MESSAGE or self._step != (event.data.get("turn"), event.data.get("step")):
            return None
        message = event.data.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        if self._chars < FILL_FROM or not isinstance(content, list):
            return None
        for index, block in enumerate(content):
            text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
            if isinstance(text, str) and len(text) == self._chars and _digest(text) == self._digest.hexdigest():
                return index
        return None


class RowReader:
    """Reads rows in order; keeps the text of the current step, for messages that refer to it."""

    def __init__(self) -> None:
        self._step: tuple[Any, Any] | None = None
        self._pieces: list[str] = []

    def read(self, row: Mapping[str, Any], *, merge_deltas: bool = False) -> Iterator[SessionEvent]:
        """The row's events. With `merge_deltas` a run is one delta event, numbered as its first.

        A message whose stream was not wholly read gets the text that was, and `incomplete: true` in its data. Raises
        ValueError for a malformed row.
        """
        try:
            if "run" in row:
                yield from self._run(row["run"], merge_deltas)
            else:
                yield self._event(row["event"], row.get("fill"))
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"malformed row: {type(error).__name__}") from error

    def _run(self, run: Mapping[str, Any], merge: bool) -> Iterator[SessionEvent]:
        stream, step = run["stream"], (run["turn"], run["step"])
        texts: list[str] = stream["texts"]
        if stream["type"] == "text-chunks":
            if step != self._step:
                self._step, self._pieces = step, []
            self._pieces.extend(texts)
        kind, index, time = _DELTA_TYPES[stream["type"]], stream["index"], stream["time0"]
        if merge:
            texts = ["".join(texts)]
        for n, text in enumerate(texts):
            if n:
                time += stream["dt"][n - 1]
            chunk = {"type": kind, "index": index, "text": text}
            data = {"turn": step[0], "step": step[1], "chunk": chunk}
            yield SessionEvent(type=ASSISTANT_CHUNK, seq=run["seq"] + n, time=time, data=data)

    def _event(self, data: Mapping[str, Any], fill: Mapping[str, Any] | None) -> SessionEvent:
        event = SessionEvent.model_validate(data)
        if fill is None:
            return event
        streamed = self._step == (event.data.get("turn"), event.data.get("step"))
        text = "".join(self._pieces) if streamed else ""
        event.data["message"]["content"][fill["block"]]["text"] = text
        if len(text) != fill["chars"] or _digest(text) != fill["digest"]:
            event.data["incomplete"] = True
        return event


class _OpenRun:
    """The row that still grows."""

    def __init__(self, event: SessionEvent, step: tuple[Any, Any], kind: str, index: int, text: str) -> None:
        self._texts, self._dt = [text], list[int]()
        self._key = (step, kind, index)
        self._next_seq = (event.seq or 0) + 1
        self._time = event.time or 0
        stream = {"type": kind, "time0": self._time, "index": index, "dt": self._dt, "texts": self._texts}
        self.row: JsonObject = {"run": {"seq": event.seq, "turn": step[0], "step": step[1], "stream": stream}}

    def takes(self, event: SessionEvent, step: tuple[Any, Any], kind: str, index: int) -> bool:
        return event.seq == self._next_seq and (step, kind, index) == self._key

    def add(self, time: int, text: str) -> int:
        gap = time - self._time
        self._texts.append(text)
        self._dt.append(gap)
        self._time = time
        self._next_seq += 1
        return _text_bytes(text) + len(str(gap)) + 1


def head_of(rows: list[JsonObject], max_bytes: int, *, known_bytes: int | None = None) -> list[JsonObject]:
    """A copy of the longest prefix of the rows that fits, cut before the first one that refers to its stream.

    A prefix is always a consistent state. A run may be cut within. The copy does not change when a run goes on.
    `known_bytes` is the size of all rows where the caller knows it: when that fits, nothing is measured again, which is
    what a beat five times a second can afford.
    """
    if known_bytes is not None and known_bytes <= max_bytes:
        return [_copy_of(row) for row in takewhile(lambda row: "fill" not in row, rows)]
    head: list[JsonObject] = []
    left = max_bytes
    for row in takewhile(lambda row: "fill" not in row, rows):
        if "run" in row:
            taken, size = _head_of_run(row["run"], left)
            if taken is not None:
                head.append({"run": taken})
            if taken is None or len(taken["stream"]["texts"]) < len(row["run"]["stream"]["texts"]):
                break
        else:
            size = len(encoded_row(row)) + 1
            if size > left:
                break
            head.append(row)
        left -= size
    return head


def _copy_of(row: JsonObject) -> JsonObject:
    if "run" not in row:
        return row
    stream = row["run"]["stream"]
    return {"run": {**row["run"], "stream": {**stream, "texts": stream["texts"][:], "dt": stream["dt"][:]}}}


def _head_of_run(run: JsonObject, left: int) -> tuple[JsonObject | None, int]:
    stream = run["stream"]
    size, count = _ROW_OVERHEAD, 0
    for n, text in enumerate(stream["texts"]):
        size += _text_bytes(text) + (len(str(stream["dt"][n - 1])) + 1 if n else 0)
        if size > left:
            break
        count += 1
    if count == 0:
        return None, size
    cut = {**stream, "texts": stream["texts"][:count], "dt": stream["dt"][: count - 1]}
    return {**run, "stream": cut}, size


def _delta_of(event: SessionEvent) -> JsonObject | None:
    """The chunk of an event that a run can hold without losing a field of it."""
    data = event.data
    if event.type != ASSISTANT_CHUNK or event.model_extra or len(data) != 3:
        return None
    chunk = data.get("chunk")
    if not isinstance(chunk, dict) or len(chunk) != 3 or chunk.get("type") not in _RUN_TYPES:
        return None
    plain = type(chunk.get("index")) is int and type(data.get("turn")) is int and type(data.get("step")) is int
    return chunk if plain and isinstance(chunk.get("text"), str) else None


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
