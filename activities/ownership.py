"""Whether this worker still has its server. Heartbeats are not acknowledged, so an attempt cannot tell by them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from lastword.core import options

logger = logging.getLogger("lastword.worker")


class ServerProbe:
    """Asks the server once a second, for all attempts of the worker.

    After `options.OWNERSHIP_LOST_AFTER` without an answer (the server gone, the network cut, this process stopped) the
    attempts that are open give their turns up: by then another worker may own them. Attempts that open later are not
    concerned, for the server must have answered to hand them out.
    """

    def __init__(self, ask: Callable[[], Awaitable[object]]) -> None:
        self._ask = ask
        self._last_answer = time.monotonic()
        self._waiting: set[asyncio.Future[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Probe for as long as the context is open."""
        self._last_answer = time.monotonic()
        task = asyncio.create_task(self._probe())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def lost(self) -> None:
        """Return when the worker has missed its server for too long, counted from now on."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)

    async def _probe(self) -> None:
        while True:
            await asyncio.sleep(options.OWNERSHIP_PROBE)
            # Before asking: after a SIGSTOP the server answers at once, and the turns are lost all the same.
            self._check()
            try:
                async with asyncio.timeout(options.OWNERSHIP_LOST_AFTER / 2):
                    await self._ask()
                self._last_answer = time.monotonic()
            except Exception as error:
                logger.debug("the server does not answer: %s", type(error).__name__)

    def _check(self) -> None:
        silent = time.monotonic() - self._last_answer
        if silent < options.OWNERSHIP_LOST_AFTER:
            return
        if self._waiting:
            logger.warning("no answer from the server for %.1f s: giving up %d turns", silent, len(self._waiting))
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
