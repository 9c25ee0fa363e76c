"""The one way of a child's events: numbered, folded, counted, logged, and summed up in a checkpoint."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from lastword.core import options
from lastword.core.checkpoint import Checkpoint
from lastword.core.contract import SessionRef
from lastword.core.events import ASSISTANT_MESSAGE, TOOL_CALL, TURN_END, JsonObject, SessionEvent, mend_text
from lastword.core.output import AssistantOutputFold
from lastword.core.ports import AttemptLog
from lastword.core.redaction import is_private, public_row
from lastword.core.tally import Tally


class TurnRecorder:
    """Records one attempt's events.

    The checkpoint's fold and tally stand at the last sealed event, where the tail begins; so each segment that is cut
    takes a snapshot of both with it, which becomes the checkpoint's when the segment is durable.
    """

    def __init__(
        self,
        log: AttemptLog,
        *,
        attempt: int,
        fold: AssistantOutputFold,
        tally: Tally,
        started: int | None,
    ) -> None:
        self.fold = fold
        self.tally = tally
        self.started = started
        self.on_news: Callable[[], None] = lambda: None
        """Called after every event; must be cheap."""
        self.last_event_at = time.monotonic()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails with Fenced or LogUnavailable when the log cannot go on; never completes otherwise."""
        self._log = log
        self._attempt = attempt
        self._session: Callable[[], SessionRef | None] = lambda: None
        self._seal_lock = asyncio.Lock()
        self._sealing: asyncio.Task[None] | None = None
        self._seal_wanted = False
        self._sealed_fold = self._small_fold()
        self._sealed_tally = tally.model_copy()

    @property
    def next_seq(self) -> int:
        return self._log.next_seq

    @property
    def session(self) -> SessionRef | None:
        return self._session()

    def watch_session(self, session: Callable[[], SessionRef | None]) -> None:
        """Where the checkpoint gets the backend's own session from, which may become known late."""
        self._session = session

    async def record(self, event: SessionEvent) -> SessionEvent:
        """Take the next event.

        Returns when a `tool/call` or `turn/end` is durable; for others at once, unless so much is unsealed that the
        child has to wait. Raises what `failed` holds.
        """
        event = self._log.append(mend_text(event))
        self.fold.push(event)
        self.tally.push(event)
        self.last_event_at = time.monotonic()
        self.on_news()
        if event.type in (TOOL_CALL, TURN_END) or self._log.unsealed_bytes > options.MAX_TAIL:
            await self.seal()
        elif event.type == ASSISTANT_MESSAGE or is_private(event) or self._log.unsealed_bytes >= options.SEAL_AT:
            self._seal_soon()
        return event

    async def seal(self) -> None:
        """Make everything recorded so far durable. Raises Fenced or LogUnavailable."""
        async with self._seal_lock:
            fold, tally = self._small_fold(), self.tally.model_copy()
            try:
                await self._log.seal()
            except Exception as error:
                self._fail(error)
                raise
            self._sealed_fold, self._sealed_tally = fold, tally

    def checkpoint(self, *, beats: int = 0, interval: float | None = None) -> Checkpoint:
        """The state now, as plain data that no later event changes."""
        tail = self._log.tail(options.MAX_TAIL)
        return Checkpoint(
            attempt=self._attempt,
            sealed_seq=self._log.sealed_seq,
            fold=self._sealed_fold,
            tally=self._sealed_tally,
            tail=[public_row(row) for row in tail],
            session=self._session(),
            started=self.started,
            beats=beats,
            interval_ms=round(interval * 1000) if interval else None,
        )

    def _seal_soon(self) -> None:
        self._seal_wanted = True
        if self._sealing is None or self._sealing.done():
            self._sealing = asyncio.create_task(self._seal_quietly())

    async def _seal_quietly(self) -> None:
        # The error reaches the turn through `failed`; nobody awaits this task.
        try:
            while self._seal_wanted:
                # What is recorded while this runs wants a seal of its own.
                self._seal_wanted = False
                await self.seal()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)

    def _small_fold(self) -> JsonObject | None:
        return self.fold.snapshot() if self.fold.size <= options.MAX_INLINE_FOLD else None

    async def close(self) -> None:
        """Stop sealing in the background and forget an error that nobody asked for."""
        if self._sealing is not None:
            await asyncio.wait([self._sealing])
        if self.failed.done():
            self.failed.exception()
        else:
            self.failed.cancel()
