"""The canonical rule: the contract's table row by row, and its laws."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastword.core import events
from lastword.core.errors import CheckpointInvalid
from lastword.core.events import SessionEvent, text_block
from lastword.core.output import AssistantOutputFold, final_assistant_output

Event = dict[str, Any]


def message(*content: Any, step: int = 1, stream: list[Any] | None = None, **data: Any) -> Event:
    fields: Event = {"turn": 1, "step": step, "message": {"role": "assistant", "content": list(content)}, **data}
    if stream is not None:
        fields["stream"] = stream
    return {"type": "assistant/message", "data": fields}


def delta(text: str, step: int = 1, kind: str = "text-delta") -> Event:
    chunk = {"type": kind, "index": 0, "text": text}
    return {"type": "assistant/chunk", "data": {"turn": 1, "step": step, "chunk": chunk}}


def attempt(*stream: Any, step: int = 1) -> Event:
    return {"type": "assistant/attempt", "data": {"turn": 1, "step": step, "stream": list(stream)}}


def texts(*pieces: str) -> Event:
    return {"type": "text-chunks", "time0": 0, "index": 0, "dt": [1] * (len(pieces) - 1), "texts": list(pieces)}


A, B = text_block("A"), text_block("B")
CALL = {"type": "tool-call", "id": "1", "name": "t", "arguments": {}}
REASONING = {"type": "reasoning", "text": "because"}
HOLOGRAM = {"type": "hologram", "depth": [1, {"a": None}]}
RESULT: Event = {"type": "tool/result", "data": {"turn": 1, "step": 1, "id": "1", "content": [text_block("r")]}}
MALFORMED: Event = {"type": "assistant/message", "data": {"turn": 1, "step": 1, "message": {"content": "words"}}}
BLOCK_END: Event = {
    "type": "assistant/chunk",
    "data": {"turn": 1, "step": 1, "chunk": {"type": "block-end", "index": 0, "text": "whole", "block": A}},
}

ROWS: list[tuple[str, list[Event], list[Any] | None]] = [
    ("1 nothing", [], None),
    ("1 empty message", [message()], None),
    ("2", [message(A), message(B, step=2)], [B]),
    ("3", [message(A, CALL), RESULT, message(step=2)], [A, CALL]),
    ("4", [delta("x"), message(A), delta("B", 2), message(step=2)], [A]),
    ("5", [message(A), delta("B", 2)], [A]),
    ("6", [message(A), delta("B", 2), message(B, step=2, interrupted=True)], [B]),
    ("7", [delta("a"), delta(""), delta("b"), message()], [text_block("ab")]),
    ("8", [delta("a"), RESULT, delta("b", 2)], [text_block("ab")]),
    ("9", [delta("hm", kind="reasoning-delta"), message()], None),
    ("10", [delta("t"), message(REASONING)], [REASONING]),
    ("11", [message(A), message(CALL, step=2)], [CALL]),
    ("12 empty text", [message(A), message(text_block(""), step=2)], [text_block("")]),
    ("12 whitespace", [message(text_block(" \n"))], [text_block(" \n")]),
    ("13", [delta(" ")], [text_block(" ")]),
    ("14", [BLOCK_END, message()], None),
    ("15", [attempt(texts("Hel")), attempt(texts("Hello w"), step=2)], [text_block("HelHello w")]),
    ("16", [], None),
    ("17", [delta("so "), delta("far"), MALFORMED], [text_block("so far")]),
    ("18", [attempt(texts("a")), message(step=2, stream=[texts("b")])], [text_block("ab")]),
    (
        "18 single records",
        [
            attempt({"type": "chunk", "time": 1, "chunk": {"type": "text-delta", "index": 0, "text": "a"}}),
            message(step=2, stream=[texts("b")]),
        ],
        [text_block("ab")],
    ),
    ("seen as chunks", [delta("a"), message(stream=[texts("a")])], [text_block("a")]),
    ("unknown types", [{"type": "new/kind", "data": {"x": 1}}, delta("a"), delta("z", 1, "new")], [text_block("a")]),
    ("unknown block", [message(HOLOGRAM)], [HOLOGRAM]),
]  # fmt: skip


@pytest.mark.parametrize(("row", "sequence", "expected"), ROWS, ids=[row[0] for row in ROWS])
def test_the_table(row: str, sequence: list[Event], expected: list[Any] | None) -> None:
    assert final_assistant_output(sequence) == expected
    assert final_assistant_output([SessionEvent.model_validate(event) for event in sequence]) == expected


@pytest.mark.parametrize("reason", ["completed", "aborted", "error", "max-tokens", "never-heard-of"])
@pytest.mark.parametrize(("row", "sequence", "expected"), ROWS, ids=[row[0] for row in ROWS])
def test_the_stop_reason_never_matters(
    row: str, sequence: list[Event], expected: list[Any] | None, reason: str
) -> None:
    end = {"type": "turn/end", "data": {"turn": 1, "reason": {"kind": reason}}}
    assert final_assistant_output([*sequence, end]) == expected


def test_text_of_a_transport_without_events_is_folded_like_deltas() -> None:
    fold = AssistantOutputFold()
    for piece in ("a", "", "b"):
        fold.push_text(piece)
    assert fold.collect() == [text_block("ab")]


def test_text_is_joined_only_when_collected() -> None:
    fold = AssistantOutputFold()
    for n in range(1000):
        fold.push(delta(str(n)))
    assert len(fold._pieces) == 1000
    assert fold.size == sum(len(str(n)) for n in range(1000))


def test_a_candidate_lets_the_streamed_text_go() -> None:
    fold = AssistantOutputFold()
    fold.push(delta("x" * 10_000))
    fold.push(message(A))
    fold.push(delta("y" * 10_000, 2))
    assert fold.size < 100
    assert "text" not in fold.snapshot()


def test_what_is_collected_belongs_to_the_caller() -> None:
    fold = AssistantOutputFold()
    fold.push(message(text_block("A")))
    collected = fold.collect()
    assert collected is not None
    collected[0]["text"] = "changed"
    assert fold.collect() == [A]


@pytest.mark.parametrize(
    "data", [{}, {"version": 99}, {"version": 1, "candidate": []}, {"version": 1, "text": 3}, None]
)
def test_a_snapshot_that_cannot_be_read_is_refused(data: Any) -> None:
    with pytest.raises(CheckpointInvalid):
        AssistantOutputFold.restore(data)


# -- laws --

words = st.text(max_size=5)
blocks = st.one_of(
    words.map(text_block),
    words.map(lambda t: {"type": "reasoning", "text": t}),
    st.just(CALL),
    st.just({"type": "hologram", "x": [1, None]}),
)


said = st.lists(words, max_size=3)
attempts = st.builds(lambda pieces: {"kind": "attempt", "said": pieces}, said)
messages = st.builds(
    lambda pieces, content: {"kind": "message", "said": pieces, "content": content}, said, st.lists(blocks, max_size=2)
)
steps_lived = st.tuples(st.lists(attempts, max_size=2), messages | st.none())
"""The failed attempts of one step and its message, if it came to one, each with what was streamed."""


def in_order(steps: list[Any]) -> list[Event]:
    """One history as it was lived."""
    return [
        {**entry, "step": step}
        for step, (failed, last) in enumerate(steps, start=1)
        for entry in [*failed, *([last] if last else [])]
    ]


def durable(lived: list[Event]) -> list[Event]:
    """The history as stream records."""
    log = []
    for entry in lived:
        stream = [texts(*entry["said"])] if entry["said"] else []
        if entry["kind"] == "attempt":
            log.append(attempt(*stream, step=entry["step"]))
        else:
            log.append(message(*entry["content"], step=entry["step"], stream=stream))
    return log


def chunked(lived: list[Event], *, with_streams: bool) -> list[Event]:
    """The same history as live chunks, its messages with or without the streams that repeat them."""
    log: list[Event] = []
    for entry, event in zip(lived, durable(lived), strict=True):
        log += [delta(piece, entry["step"]) for piece in entry["said"]]
        if not with_streams:
            event["data"].pop("stream")
        log.append(event)
    return log


@given(st.lists(steps_lived, max_size=3).map(in_order))
def test_the_event_forms_of_one_history_agree(lived: list[Event]) -> None:
    expected = final_assistant_output(durable(lived))
    assert final_assistant_output(chunked(lived, with_streams=False)) == expected
    # Chunks and streams in one log: a step that was seen as chunks does not count twice. A step whose text was seen
    # only as empty chunks was not seen.
    assert final_assistant_output(chunked(lived, with_streams=True)) == expected


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(
    ["assistant/message", "assistant/attempt", "assistant/chunk", "turn/end", "tool/call", "what/ever"]
)
keys = st.sampled_from(["turn", "step", "message", "stream", "chunk", "content", "type", "text", "texts", "role"])
messy_data = st.recursive(
    json_values | st.sampled_from(["text-delta", "text-chunks", "chunk", "text", "assistant"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=12,
)
messy_events = st.one_of(
    st.fixed_dictionaries({"type": names, "data": messy_data}), st.dictionaries(keys, json_values), json_values
)
sane_events = st.one_of(
    st.builds(delta, words, st.integers(1, 3)),
    st.builds(lambda c, s: message(*c, step=s), st.lists(blocks, max_size=2), st.integers(1, 3)),
    st.builds(lambda p, s: attempt(texts(*p), step=s), st.lists(words, min_size=1, max_size=3), st.integers(1, 3)),
    st.just(RESULT),
)


@given(st.lists(sane_events | messy_events, max_size=12), st.data())
def test_folding_goes_on_anywhere_from_a_snapshot(sequence: list[Any], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(sequence)))
    head = AssistantOutputFold()
    for event in sequence[:cut]:
        head.push(event)
    tail = AssistantOutputFold.restore(json.loads(json.dumps(head.snapshot())))
    for event in sequence[cut:]:
        tail.push(event)
    assert tail.collect() == final_assistant_output(sequence)


@given(st.lists(sane_events, max_size=8), st.data())
def test_messages_without_content_are_neutral(sequence: list[Event], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(sequence)))
    assert final_assistant_output([*sequence[:at], message(step=9), *sequence[at:]]) == final_assistant_output(sequence)


@given(st.lists(messy_events, max_size=8))
def test_no_sequence_raises_out_of_the_fold(sequence: list[Any]) -> None:
    fold = AssistantOutputFold()
    for event in sequence:
        fold.push(event)
    fold.collect()
    json.dumps(fold.snapshot())


def test_a_block_nested_without_end_is_malformed() -> None:
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    fold = AssistantOutputFold()
    fold.push(delta("kept"))
    fold.push(message({"type": "hologram", "deep": deep}))
    assert fold.collect() == [text_block("kept")]


@given(st.text())
def test_mending_makes_any_text_fit_utf_8_and_changes_no_other(text: str) -> None:
    event = events.text_delta(text, turn=1, step=1)
    assert events.mend_text(event) == event
    broken = events.text_delta(text + "\ud800", turn=1, step=1)
    assert events.mend_text(broken).data["chunk"]["text"] == text + "\ufffd"
