"""Sending checkpoints: paced, coalesced, and resent when nothing is new."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from lastword.core import options
from lastword.core.checkpoint import Checkpoint


class BeatPacer:
    """One per worker: how far apart the beats of one child must be, so that all children keep to the worker's rate."""

    def __init__(self) -> None:
        self._open = 0

    def enter(self) -> None:
        self._open += 1

    def leave(self) -> None:
        self._open -= 1

    @property
    def interval(self) -> float:
        """Seconds."""
        return max(options.BEAT_INTERVAL, self._open / options.BEATS_PER_SECOND)


class CheckpointPump:
    """Beats a moment after the first news, then at most once an interval, and at least once a keep-alive.

    Every beat carries the whole checkpoint: a bare heartbeat would wipe it.
    """

    def __init__(
        self,
        checkpoint: Callable[[], Checkpoint],
        *,
        pacer: BeatPacer,
        heartbeat: Callable[[Checkpoint], None],
    ) -> None:
        self._checkpoint = checkpoint
        self._pacer = pacer
        self._heartbeat = heartbeat
        self._news = asyncio.Event()
        self.beats = 0
        self.widest = 0.0
        """The largest interval used, in seconds: what the loss bound is made of."""

    def notify(self) -> None:
        """There is something new to send."""
        self._news.set()

    async def run(self) -> None:
        """Beat until cancelled."""
        self._pacer.enter()
        try:
            silence = options.BEAT_INTERVAL
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(silence):
                        await self._news.wait()
                if not self.beats:
                    await asyncio.sleep(options.FIRST_BEAT_AFTER)
                self._news.clear()
                self.beats += 1
                self._heartbeat(self._checkpoint())
                interval = self._pacer.interval
                self.widest = max(self.widest, interval)
                silence = max(options.KEEP_ALIVE - interval, 0)
                await asyncio.sleep(interval)
        finally:
            self._pacer.leave()
