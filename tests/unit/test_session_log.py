"""The session log: lossless, write-once, readable while written, honest about what is missing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastword.core import events
from lastword.core.contract import LogRef
from lastword.core.errors import ConfigurationError, Fenced, LogUnavailable
from lastword.core.events import SessionEvent, text_of
from lastword.core.output import final_assistant_output
from lastword.core.packing import FILL_FROM, RowPacker, RowReader, encoded_row, head_of
from lastword.core.ports import Gap
from lastword.sessions import ObstoreSessionStore, open_store
from lastword.sessions import store as store_module
from lastword.sessions.segment import Segment, SegmentName

REF = LogRef(session_id="Some id", run_id="run")


def numbered(sequence: Sequence[SessionEvent], start: int = 0) -> list[SessionEvent]:
    return [e.model_copy(update={"seq": start + n, "time": 1000 + 3 * n}) for n, e in enumerate(sequence)]


def unpacked(rows: Sequence[dict[str, Any]], *, merge: bool = False) -> list[SessionEvent]:
    reader = RowReader()
    return [event for row in rows for event in reader.read(row, merge_deltas=merge)]


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
some_events = st.one_of(
    st.builds(lambda t, s: events.text_delta(t, turn=1, step=s), words, st.integers(1, 2)),
    st.builds(lambda t, s: events.reasoning_delta(t, turn=1, step=s), words, st.integers(1, 2)),
    st.builds(lambda t, s: events.assistant_message([events.text_block(t)], turn=1, step=s), words, st.integers(1, 2)),
    st.just(SessionEvent(type="assistant/chunk", data={"turn": 1, "step": 1, "chunk": {"type": "usage"}})),
    st.just(SessionEvent(type="assistant/chunk", data={"turn": 1, "step": 1, "chunk": {"type": "text-delta"}})),
    st.just(SessionEvent.model_validate({"type": "new/kind", "data": {"deep": [1, {"x": None}]}, "extra": True})),
)


@given(st.lists(some_events, max_size=15), st.data())
def test_packing_loses_nothing_wherever_it_is_cut(sequence: list[SessionEvent], data: st.DataObject) -> None:
    sequence = numbered(sequence)
    packer, rows = RowPacker(), []
    for event in sequence:
        packer.append(event)
        if data.draw(st.booleans()):
            rows += packer.cut()
    rows += packer.cut()
    assert unpacked([json.loads(encoded_row(row)) for row in rows]) == sequence


@given(st.lists(some_events, max_size=15), st.integers(0, 2000))
def test_a_head_is_a_prefix_that_fits_and_does_not_grow(sequence: list[SessionEvent], limit: int) -> None:
    sequence = numbered(sequence)
    packer = RowPacker()
    for event in sequence:
        packer.append(event)
    head = head_of(packer.rows, limit)
    known = head_of(packer.rows, limit, known_bytes=packer.bytes)
    # What is known to fit is taken whole; that it does not is measured as ever.
    assert known == (packer.rows if packer.bytes <= limit else head)
    before, known_before = json.dumps(head), json.dumps(known)
    assert len(before) <= limit + 400
    packer.append(events.text_delta("more", turn=1, step=1).model_copy(update={"seq": len(sequence), "time": 5000}))
    assert json.dumps(head) == before
    assert json.dumps(known) == known_before
    taken = unpacked(head)
    assert taken == sequence[: len(taken)]


def streamed(text: str, size: int = 7) -> list[SessionEvent]:
    pieces = [text[n : n + size] for n in range(0, len(text), size)]
    return [events.text_delta(piece, turn=1, step=1) for piece in pieces]


def test_a_message_that_repeats_its_stream_is_stored_once() -> None:
    text = "word " * FILL_FROM
    sequence = numbered([*streamed(text), events.assistant_message([events.text_block(text)], turn=1, step=1)])
    packer = RowPacker()
    for event in sequence:
        packer.append(event)
    *_, last = packer.rows
    assert "fill" in last
    assert len(encoded_row(last)) < 400
    assert unpacked(packer.rows) == sequence
    assert head_of(packer.rows, 10**9)[-1] is not last


def test_a_message_whose_stream_is_gone_says_so() -> None:
    text = "word " * FILL_FROM
    sequence = numbered([*streamed(text), events.assistant_message([events.text_block(text)], turn=1, step=1)])
    packer = RowPacker()
    for event in sequence:
        packer.append(event)
    (message,) = unpacked(packer.rows[1:])
    assert message.data["incomplete"] is True


@pytest.fixture
def store(tmp_path: Path) -> ObstoreSessionStore:
    return open_store(str(tmp_path / "log"))


async def write(store: ObstoreSessionStore, *pieces: str, attempt: int = 1, first_seq: int = 0) -> Any:
    """An attempt that sealed each piece as a segment of its own."""
    log = store.attempt(REF, turn=1, attempt=attempt, first_seq=first_seq)
    for piece in pieces:
        log.append(events.text_delta(piece, turn=1, step=attempt))
        await log.seal()
    return log


async def read(store: ObstoreSessionStore, **options: Any) -> list[SessionEvent | Gap]:
    return [item async for item in store.read(REF, **options)]


def text(items: Sequence[SessionEvent | Gap]) -> str:
    return text_of(final_assistant_output([i for i in items if isinstance(i, SessionEvent)]) or [])


async def test_what_is_sealed_is_readable_while_more_is_written(store: ObstoreSessionStore) -> None:
    log = await write(store, "a", "b")
    log.append(events.text_delta("c", turn=1, step=1))
    assert text(await read(store)) == "ab"
    assert (log.sealed_seq, log.next_seq) == (2, 3)
    assert [event.seq for event in unpacked(log.tail(1000))] == [2]
    await log.seal()
    assert text(await read(store)) == "abc"
    assert log.tail(1000) == []


async def test_a_missing_segment_is_named_and_the_rest_is_read(store: ObstoreSessionStore, tmp_path: Path) -> None:
    await write(store, "a", "b", "c")
    (tmp_path / "log" / SegmentName(1, 1, 1).key(REF)).unlink()
    items = await read(store)
    assert text(items) == "ac"
    assert [item for item in items if isinstance(item, Gap)] == [Gap(1, 2, "missing")]


@pytest.mark.parametrize("damage", [b"", b"not gzip", "flip"])
async def test_a_damaged_segment_is_named_and_the_rest_is_read(
    store: ObstoreSessionStore, tmp_path: Path, damage: bytes | str
) -> None:
    await write(store, "a", "b", "c")
    key = SegmentName(1, 1, 1).key(REF)
    path = tmp_path / "log" / key
    raw = path.read_bytes()
    path.write_bytes(damage if isinstance(damage, bytes) else raw[:-9] + bytes([raw[-9] ^ 1]) + raw[-8:])
    items = await read(store)
    assert text(items) == "ac"
    assert [item for item in items if isinstance(item, Gap)] == [Gap(1, 2, "damaged", key)]


async def test_a_fenced_attempt_can_write_no_more(store: ObstoreSessionStore) -> None:
    log = await write(store, "a")
    log.append(events.text_delta("beaten", turn=1, step=1))
    tail = log.tail(1000)
    end = await store.fence(REF, turn=1, attempt=1, first_seq=0, tail=tail)
    assert end == 2
    with pytest.raises(Fenced):
        await log.seal()
    await write(store, "next", attempt=2, first_seq=end)
    assert text(await read(store)) == "abeatennext"
    assert await store.fence(REF, turn=1, attempt=1, first_seq=0, tail=[]) == 2


async def test_an_attempt_that_was_faster_than_its_fence_keeps_what_it_sealed(store: ObstoreSessionStore) -> None:
    log = await write(store, "a")
    log.append(events.text_delta("b", turn=1, step=1))
    tail = log.tail(1000)
    await log.seal()  # sealed after the checkpoint, before the fence
    assert await store.fence(REF, turn=1, attempt=1, first_seq=0, tail=tail) == 2
    assert text(await read(store)) == "ab"


async def test_an_attempt_that_wrote_nothing_is_fenced_at_its_beginning(store: ObstoreSessionStore) -> None:
    log = store.attempt(REF, turn=1, attempt=1, first_seq=5)
    assert await store.fence(REF, turn=1, attempt=1, first_seq=5, tail=[]) == 5
    log.append(events.turn_start(turn=1))
    with pytest.raises(Fenced):
        await log.seal()


async def test_fence_and_writer_never_both_win(tmp_path: Path) -> None:
    for n in range(20):
        store = open_store(str(tmp_path / str(n)))
        log = await write(store, "a")
        log.append(events.text_delta("b", turn=1, step=1))
        sealed, end = await asyncio.gather(
            log.seal(), store.fence(REF, turn=1, attempt=1, first_seq=0, tail=[]), return_exceptions=True
        )
        assert end == (1 if isinstance(sealed, Fenced) else 2)
        assert text(await read(store)) == ("a" if isinstance(sealed, Fenced) else "ab")


async def test_a_damaged_last_segment_does_not_stop_the_next_attempt(
    store: ObstoreSessionStore, tmp_path: Path
) -> None:
    await write(store, "a", "b")
    (tmp_path / "log" / SegmentName(1, 1, 1).key(REF)).write_bytes(b"x")
    end = await store.fence(REF, turn=1, attempt=1, first_seq=0, tail=[])
    await write(store, "c", attempt=2, first_seq=end)
    assert text(await read(store)) == "ac"


async def test_a_put_whose_answer_was_lost_is_not_taken_for_another_attempts(
    store: ObstoreSessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = store._store

    class Forgetful:
        """Stores the object and then fails, once."""

        failed = False

        async def put_async(self, *args: Any, **options: Any) -> Any:
            await real.put_async(*args, **options)
            if not self.failed:
                self.failed = True
                raise OSError("connection reset")

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    monkeypatch.setattr(store_module, "_RETRIES", (0.0,))
    # The second try finds the name taken, by its own bytes.
    forgetful = Forgetful()
    monkeypatch.setattr(store, "_store", forgetful)
    await write(store, "a")
    assert forgetful.failed
    assert text(await read(store)) == "a"


async def test_a_store_that_does_not_answer_is_named_and_nothing_is_lost(
    store: ObstoreSessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = store._store

    class Broken:
        async def put_async(self, *args: Any, **options: Any) -> Any:
            raise OSError("no route")

    monkeypatch.setattr(store_module, "_RETRIES", (0.0,))
    monkeypatch.setattr(store, "_store", Broken())
    log = store.attempt(REF, turn=1, attempt=1, first_seq=0)
    log.append(events.text_delta("a", turn=1, step=1))
    with pytest.raises(LogUnavailable, match="does not answer"):
        await log.seal()
    log.append(events.text_delta("b", turn=1, step=1))
    assert len(unpacked(log.tail(1000))) == 2
    monkeypatch.setattr(store, "_store", real)
    await log.seal()
    assert text(await read(store)) == "ab"


async def test_a_listing_that_a_writer_overtook_makes_no_gap(
    store: ObstoreSessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(store, "a", "b", "c", "d")
    real = store._store
    hidden = {SegmentName(1, 1, 1).key(REF), SegmentName(1, 1, 2).key(REF)}

    class Overtaken:
        """Its first listing shows the last segment without two that were there before it."""

        def list(self, *args: Any, **options: Any) -> Any:
            async def batches() -> Any:
                nonlocal hidden
                unseen, hidden = hidden, set()
                async for batch in real.list(*args, **options):
                    yield [meta for meta in batch if meta["path"] not in unseen]

            return batches()

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    monkeypatch.setattr(store, "_store", Overtaken())
    items = await read(store)
    assert text(items) == "abcd"
    assert [item.seq for item in items if isinstance(item, SessionEvent)] == [0, 1, 2, 3]
    assert hidden == set()


async def test_a_log_that_nobody_wrote_is_empty(store: ObstoreSessionStore) -> None:
    assert await read(store) == []


async def test_reading_from_a_number_skips_what_was_before(store: ObstoreSessionStore) -> None:
    await write(store, "a", "b", "c")
    assert [item.seq for item in await read(store, from_seq=1) if isinstance(item, SessionEvent)] == [1, 2]


async def test_a_stream_is_stored_in_less_than_it_weighs_even_with_its_message(store: ObstoreSessionStore) -> None:
    said = "".join(f"{n * 7919 % 99991} " for n in range(150_000))[:800_000]
    log = store.attempt(REF, turn=1, attempt=1, first_seq=0)
    for event in [*streamed(said, 8), events.assistant_message([events.text_block(said)], turn=1, step=1)]:
        log.append(event)
        if log.unsealed_bytes > 8192:
            await log.seal()
    await log.seal()
    stored = sum([meta["size"] async for batch in store._store.list() for meta in batch])
    assert stored / len(said) < 1.2
    assert text(await read(store, merge_deltas=True)) == said


def test_a_segment_is_the_same_bytes_for_the_same_events() -> None:
    segment = Segment(0, 1, [{"event": {"type": "x"}}])
    assert segment.encode() == segment.encode()
    assert Segment.decode(segment.encode()) == segment


def test_a_store_that_cannot_be_is_refused_without_its_secrets(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigurationError, match="LASTWORD_LOG_STORE"):
        open_store(str(tmp_path / "file" / "below"))
    with pytest.raises(ConfigurationError) as caught:
        open_store("nonsense://user:sk-canary@host/bucket?token=sk-canary")
    assert "sk-canary" not in str(caught.value)
