"""A long-running process of `lastword up`: started, watched, stopped, and never left behind.

On Linux the kernel ends it when `up` dies in any way. Elsewhere it outlives a `kill -9` of `up`; the next `up` on the
data directory finds the port taken and says so.
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

_PR_SET_PDEATHSIG: Final = 1


class OwnedProcess:
    """One process, its output in a file."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self.log = log

    @classmethod
    async def start(
        cls, command: Sequence[str], *, log: Path, env: dict[str, str] | None = None, until: str | None = None
    ) -> OwnedProcess:
        """Start the command; its stdout and stderr go to the end of `log`.

        With `until` this returns when that line came on its stdout (which then is not logged), or when it ended.
        """
        with log.open("ab") as sink:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stderr=sink, env=env, start_new_session=True,
                stdout=sink if until is None else asyncio.subprocess.PIPE, preexec_fn=_die_with_parent(),
            )  # fmt: skip
        owned = cls(process, log)
        if until is not None:
            assert process.stdout is not None
            while (line := await process.stdout.readline()) and line.decode().strip() != until:
                pass
        return owned

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    async def wait(self) -> int:
        return await self._process.wait()

    async def stop(self, *, grace: float) -> None:
        """SIGTERM, and SIGKILL after the grace (seconds). Returns when it is gone."""
        for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
            if self._process.returncode is not None:
                return
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._process.wait()

    def last_lines(self, count: int = 5) -> str:
        """The end of its log, for a message."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])
        return ""


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
