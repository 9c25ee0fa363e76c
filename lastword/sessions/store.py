"""Session logs on an object store: a directory, S3, GCS or Azure, by obstore."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit, urlunsplit

from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, from_url

from lastword.core.contract import LogRef
from lastword.core.errors import ConfigurationError, Fenced, LogUnavailable
from lastword.core.events import JsonObject, SessionEvent
from lastword.core.names import folder_of
from lastword.core.packing import RowPacker, RowReader
from lastword.core.ports import Gap
from lastword.sessions.attempt_log import ObstoreAttemptLog
from lastword.sessions.segment import Segment, SegmentDamaged, SegmentName

_T = TypeVar("_T")

_RETRIES: Final = (0.1, 0.3, 1.0, 2.0)
"""Seconds before another try of a call that the store failed."""

_STORE_FAULTS: Final = (BaseError, OSError)


def open_store(where: str) -> ObstoreSessionStore:
    """The store in a directory (made if missing, for the owner alone) or at a URL such as `s3://bucket/prefix`.

    Raises ConfigurationError.
    """
    try:
        if "://" in where:
            return ObstoreSessionStore(from_url(where), _without_secrets(where))
        path = Path(where).expanduser().absolute()
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return ObstoreSessionStore(LocalStore(prefix=path), str(path))
    except (*_STORE_FAULTS, ValueError, TypeError) as error:
        raise ConfigurationError(
            f"The session log store {_without_secrets(where)!r} cannot be opened ({type(error).__name__})."
            " Set LASTWORD_LOG_STORE to a directory or an s3://, gs:// or az:// URL."
        ) from error


class ObstoreSessionStore:
    """See `core.ports.SessionStore`."""

    def __init__(self, store: Any, address: str) -> None:
        self._store = store
        self.address = address
        """For messages; without credentials."""

    def attempt(self, log: LogRef, *, turn: int, attempt: int, first_seq: int) -> ObstoreAttemptLog:
        async def put(segment: Segment) -> None:
            await self._create(SegmentName(turn, attempt, segment.first_seq).key(log), segment.encode())

        return ObstoreAttemptLog(put, first_seq=first_seq)

    async def fence(self, log: LogRef, *, turn: int, attempt: int, first_seq: int, tail: Sequence[JsonObject]) -> int:
        while True:
            position, closed = await self._end_of(log, turn, attempt, first_seq)
            if closed:
                return position
            rows, first, end = _beyond(tail, position)
            # Its name is the chain's end, for there the other attempt would write; its first event may be a later one,
            # if segments that the checkpoint knew are not in this store.
            segment = Segment(first, end, rows, closes=True)
            try:
                await self._create(SegmentName(turn, attempt, position).key(log), segment.encode())
            except Fenced:
                # The attempt is alive and sealed once more meanwhile; the close goes behind that segment.
                continue
            return end

    async def read(
        self, log: LogRef, *, turn: int | None = None, from_seq: int = 0, merge_deltas: bool = False
    ) -> AsyncIterator[SessionEvent | Gap]:
        pending = deque(_from(await self._names(log, turn), from_seq))
        reader, expected, closed, last = RowReader(), from_seq, (-1, -1), SegmentName(-1, -1, -1)
        while pending:
            name = pending.popleft()
            if (name.turn, name.attempt) == closed:
                continue  # written past the close of a damaged chain; it belongs to nobody
            key = name.key(log)
            segment: Segment | None = None
            # A damaged segment is told by its raising ValueError, whether its bytes or its rows are broken.
            with suppress(ValueError):
                segment = Segment.decode(await self._get(key))
                events = [event for row in segment.rows for event in reader.read(row, merge_deltas=merge_deltas)]
            first = name.first_seq if segment is None else segment.first_seq
            if first > expected:
                # A listing taken while the log is written may show a segment and not the one before. That one was
                # durable first, so a new listing has it.
                if between := [other for other in await self._names(log, turn) if last < other < name]:
                    pending.extendleft([name, *reversed(between)])
                    continue
                yield Gap(expected, first, "missing")
            last = name
            if segment is None:
                end = pending[0].first_seq if pending else None
                yield Gap(name.first_seq, end, "damaged", key)
                expected = max(expected, end if end is not None else name.first_seq + 1)
                continue
            for event in events:
                if event.seq is not None and event.seq >= from_seq:
                    yield event
            expected = max(expected, segment.end_seq)
            if segment.closes:
                closed = (name.turn, name.attempt)

    async def remove(self, log: LogRef) -> None:
        """Delete a session's log."""
        for name in await self._names(log):
            await self._store.delete_async(name.key(log))

    async def _end_of(self, log: LogRef, turn: int, attempt: int, first_seq: int) -> tuple[int, bool]:
        """Where the attempt's chain ends, and whether it is closed."""
        names = [name for name in await self._names(log, turn) if name.attempt == attempt]
        if not names:
            return first_seq, False
        try:
            last = Segment.decode(await self._get(names[-1].key(log)))
        except SegmentDamaged:
            # Its end is lost with it. The close goes right behind its name; if the attempt should still be alive it may
            # write once more at a number that nobody can tell now, and `read` leaves that out.
            return names[-1].first_seq + 1, False
        return last.end_seq, last.closes

    async def _names(self, log: LogRef, turn: int | None = None) -> list[SegmentName]:
        """In order; of one turn, or of all."""
        prefix = folder_of(log.session_id, log.run_id)

        async def listed() -> list[SegmentName]:
            found: list[SegmentName] = []
            async for batch in self._store.list(prefix=prefix):
                found += [name for meta in batch if (name := SegmentName.of_key(meta["path"]))]
            return sorted(name for name in found if turn is None or name.turn == turn)

        return await self._try(listed)

    async def _get(self, key: str) -> bytes:
        async def got() -> bytes:
            return bytes(await (await self._store.get_async(key)).bytes_async())

        return await self._try(got)

    async def _create(self, key: str, data: bytes) -> None:
        """Put a new object. Raises Fenced if the name is taken by other bytes."""
        tries = 0

        async def put() -> None:
            nonlocal tries
            tries += 1
            await self._store.put_async(key, data, mode="create", use_multipart=False)

        try:
            await self._try(put)
        except AlreadyExistsError:
            # After a failed try it may be our own object, whose answer was lost.
            if tries > 1 and await self._get(key) == data:
                return
            raise Fenced(f"Another attempt owns the turn: {key} is taken.") from None

    async def _try(self, call: Callable[[], Awaitable[_T]]) -> _T:
        for delay in (*_RETRIES, None):
            try:
                return await call()
            except AlreadyExistsError:
                raise
            except _STORE_FAULTS as error:
                if delay is None:
                    raise LogUnavailable(
                        f"The session log store {self.address!r} does not answer ({type(error).__name__})."
                        " Check that it exists and that this process may write there."
                    ) from error
                await asyncio.sleep(delay)
        raise AssertionError("unreachable: the last try returns or raises")


def _from(names: list[SegmentName], from_seq: int) -> list[SegmentName]:
    """Without the segments that end before `from_seq`, as far as their names tell."""
    start = 0
    for index, name in enumerate(names):
        if name.first_seq <= from_seq:
            start = index
    return names[start:]


def _beyond(tail: Sequence[JsonObject], position: int) -> tuple[list[JsonObject], int, int]:
    """The tail's rows from `position` on, the number of the first event in them, and the number after the last."""
    reader, packer, first, end = RowReader(), RowPacker(), position, position
    for row in tail:
        for event in reader.read(row):
            if event.seq is not None and event.seq >= position:
                first = event.seq if not packer.rows else first
                packer.append(event)
                end = event.seq + 1
    return packer.rows, first, end


def _without_secrets(where: str) -> str:
    if "://" not in where:
        return where
    parts = urlsplit(where)
    return urlunsplit((parts.scheme, parts.hostname or "", parts.path, "", ""))
