"""Keeps a worker process running: starts it again when it dies, more slowly when it keeps dying."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from lastword.core import options
from lastword.core.errors import WorkerUnavailable
from lastword.embedded.owned import OwnedProcess
from lastword.worker import READY

_START_GRACE: Final = 60.0
_SLOWEST: Final = 10.0
_STEADY_AFTER: Final = 30.0
"""Seconds of life after which an end is no longer counted as part of a crash loop."""


class WorkerGuard:
    """One worker, whichever process it is just now."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: dict[str, str],
        log: Path,
        on_start: Callable[[int], None] = lambda pid: None,
        on_end: Callable[[int, float], None] = lambda code, delay: None,
    ) -> None:
        """`on_start(pid)` when one is ready, `on_end(exit code, seconds until the next)` when one has ended."""
        self._command = command
        self._env = env
        self._log = log
        self._on_start = on_start
        self._on_end = on_end
        self._worker: OwnedProcess | None = None

    async def start(self) -> None:
        """Start the first one. Raises WorkerUnavailable with the end of its log if it does not get ready."""
        if not await self._start_one():
            assert self._worker is not None
            raise WorkerUnavailable(
                f"The worker did not get ready and ended with code {self._worker.exit_code}; the end of {self._log}:\n"
                f"{self._worker.last_lines()}"
            )

    async def keep(self) -> None:
        """Start it again whenever it ends, until cancelled."""
        failures = 0
        while True:
            assert self._worker is not None
            born = time.monotonic()
            code = await self._worker.wait()
            failures = 1 if time.monotonic() - born > _STEADY_AFTER else failures + 1
            delay = restart_delay(failures)
            self._on_end(code, delay)
            await asyncio.sleep(delay)
            await self._start_one()

    async def stop(self) -> None:
        """Let it hand its turns over, and return when it is gone."""
        if self._worker is not None:
            await self._worker.stop(grace=options.SHUTDOWN_GRACE + 5)

    async def _start_one(self) -> bool:
        # Ours from the moment it exists, so that `stop` ends one that is only half up.
        self._worker = worker = await OwnedProcess.start(self._command, log=self._log, env=self._env, until=READY)
        try:
            async with asyncio.timeout(_START_GRACE):
                ready = await worker.until_said()
        except TimeoutError:
            await worker.stop(grace=2)
            return False
        if ready:
            self._on_start(worker.pid)
        return ready


def restart_delay(failures: int) -> float:
    """Seconds before the next start: none after a single end, then doubling up to a bound."""
    return 0.0 if failures <= 1 else min(0.5 * 2.0 ** min(failures - 2, 10), _SLOWEST)
