"""A long-running process of `lastword up`: started, watched, stopped, and never left behind.

On Linux the kernel ends it when `up` dies in any way. Elsewhere (macOS) it outlives a `kill -9` of `up`; the next `up`
on the data directory finds the port taken and says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

PYTHON: Final = (sys.executable, "-P", "-m")
"""Runs a module of ours. `-P` keeps the current directory off the path, where a user's `queue.py` may lie."""

_PR_SET_PDEATHSIG: Final = 1


class OwnedProcess:
    """One process, its output in a file. The event loop that started it must run for as long as it does."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self.log = log
        self._said = asyncio.Event()
        self._copying: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls, command: Sequence[str], *, log: Path, env: dict[str, str] | None = None, until: str | None = None
    ) -> OwnedProcess:
        """Start the command; its stdout and stderr go to the end of `log`. With `until`, see `until_said`."""
        with log.open("ab") as sink:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stderr=sink, env=env, start_new_session=True,
                stdout=sink if until is None else asyncio.subprocess.PIPE, preexec_fn=_die_with_parent(),
            )  # fmt: skip
        owned = cls(process, log)
        if until is not None:
            assert process.stdout is not None
            owned._copying = asyncio.create_task(owned._copy(process.stdout, until.encode()))
        return owned

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    async def until_said(self) -> bool:
        """True once the line `until` came on its stdout, False if it ended without."""
        waits = [asyncio.create_task(self._said.wait()), asyncio.create_task(self._process.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return self._process.returncode is None

    async def wait(self) -> int:
        return await self._process.wait()

    async def stop(self, *, grace: float) -> None:
        """SIGTERM, and SIGKILL after the grace (seconds). Returns when it is gone."""
        for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
            if self._process.returncode is not None:
                break
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._process.wait()
        if self._copying is not None:
            # Its last words; bounded, for something that it left behind may hold the pipe.
            await asyncio.wait([self._copying], timeout=1.0)
            self._copying.cancel()

    def last_lines(self, count: int = 5) -> str:
        """The end of its log, for a message."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])
        return ""

    async def _copy(self, stdout: asyncio.StreamReader, until: bytes) -> None:
        # To the end, not only up to the line: a pipe that nobody reads blocks its writer when it is full.
        line = b""
        with self.log.open("ab", buffering=0) as sink:
            while piece := await stdout.read(65536):
                sink.write(piece)
                if not self._said.is_set():
                    *whole, line = (line + piece).split(b"\n")
                    if any(candidate.strip() == until for candidate in whole):
                        self._said.set()


def _die_with_parent() -> Callable[[], None] | None:
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # it died between the fork and the call

    return in_child
