"""The writing side: one attempt's events, packed as they come, sealed a segment at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from lastword.core.events import JsonObject, SessionEvent, now_ms
from lastword.core.packing import RowPacker, head_of
from lastword.sessions.segment import Segment

PutSegment = Callable[[Segment], Awaitable[None]]
"""Makes a segment durable. Raises Fenced or LogUnavailable."""


class ObstoreAttemptLog:
    """See `core.ports.AttemptLog`."""

    def __init__(self, put: PutSegment, *, first_seq: int) -> None:
        self._put = put
        self._packer = RowPacker()
        # Cut and not yet durable, oldest first; more than one only after the store failed.
        self._cuts: list[Segment] = []
        self._sizes: list[int] = []
        self._cut_bytes = 0
        self._sealed_seq = first_seq
        self._next_seq = first_seq

    @property
    def next_seq(self) -> int:
        return self._next_seq

    @property
    def sealed_seq(self) -> int:
        return self._sealed_seq

    @property
    def unsealed_bytes(self) -> int:
        return self._cut_bytes + self._packer.bytes

    def append(self, event: SessionEvent) -> SessionEvent:
        numbered = event.model_copy(
            update={"seq": self._next_seq, "time": event.time if event.time is not None else now_ms()}
        )
        self._next_seq += 1
        self._packer.append(numbered)
        return numbered

    def tail(self, max_bytes: int) -> list[JsonObject]:
        rows = [row for segment in self._cuts for row in segment.rows] + self._packer.rows
        return head_of(rows, max_bytes, known_bytes=self.unsealed_bytes)

    async def seal(self) -> None:
        # A cut that could not be put stays a cut, and keeps its name: it may have reached the store after all. What
        # came since is cut behind it, now, so that the state the caller reads before this call is the state sealed.
        self._cut_now()
        while self._cuts:
            segment = self._cuts[0]
            await self._put(segment)
            self._sealed_seq = segment.end_seq
            self._cut_bytes -= self._sizes.pop(0)
            self._cuts.pop(0)

    def _cut_now(self) -> None:
        if not self._packer.rows:
            return
        first = self._cuts[-1].end_seq if self._cuts else self._sealed_seq
        self._sizes.append(self._packer.bytes)
        self._cut_bytes += self._packer.bytes
        self._cuts.append(Segment(first, self._next_seq, self._packer.cut()))
