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
        self._command = command
        self._env = env
        self._log = log
        self._on_start = on_start
        self._on_end = on_end
        self._worker: OwnedProcess | None = None

    async def start(self) -> None:
        """Start the first one. Raises WorkerUnavailable with the end of its log if it does not get ready."""
        worker = await self._spawn()
        if worker.exit_code is not None or await _ended_at_once(worker):
            raise WorkerUnavailable(
                f"The worker ended with code {worker.exit_code}; the end of {self._log}:\n{worker.last_lines()}"
            )

    async def keep(self) -> None:
        """Start it again whenever it ends, until cancelled."""
        failures = 0
        while True:
            assert self._worker is not None
            born = time.monotonic()
            code = await self._worker.wait()
            failures = 1 if time.monotonic() - born > _STEADY_AFTER else failures + 1
            delay = 0.0 if failures == 1 else min(0.5 * 2 ** (failures - 2), _SLOWEST)
            self._on_end(code, delay)
            await asyncio.sleep(delay)
            await self._spawn()

    async def stop(self) -> None:
        """Let it hand its turns over, and return when it is gone."""
        if self._worker is not None:
            await self._worker.stop(grace=options.SHUTDOWN_GRACE + 5)

    async def _spawn(self) -> OwnedProcess:
        self._worker = await OwnedProcess.start(self._command, log=self._log, env=self._env, until=READY)
        self._on_start(self._worker.pid)
        return self._worker


async def _ended_at_once(worker: OwnedProcess) -> bool:
    # Its stdout may end a moment before the process does.
    try:
        async with asyncio.timeout(0.2):
            await worker.wait()
    except TimeoutError:
        return False
    return True
