"""The one place that owns processes of a child: spawn, environment, teardown, and no orphans.

A child's process gets a session of its own, an environment by allow-list, and a mark in that environment by which its
descendants are found even when they left the tree. Closing returns when all of them are gone. If the worker itself is
killed, a guard process (`orphan_guard.py`) ends what it left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import psutil

from lastword.backends.orphan_guard import MARK, is_alive, marked_processes, new_mark
from lastword.core.errors import LastwordError

STDIN_GRACE: Final = 1.0
"""Seconds a process has to end by itself after its stdin was closed."""

TERM_GRACE: Final = 2.0
KILL_GRACE: Final = 5.0

_POLL: Final = 0.02
"""psutil's own wait would take the exit code of our child away from asyncio."""

_STDERR_TAIL: Final = 64
LINE_LIMIT: Final = 16 * 1024 * 1024
"""Bytes of one line that a child writes. A longer one is an error of the child's."""

ALLOWED_ENVIRONMENT: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TERM", "TZ", "NO_COLOR"),
    *("TMPDIR", "TEMP", "TMP", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    *("SYSTEMROOT", "APPDATA", "LOCALAPPDATA", "PATHEXT", "COMSPEC"),
)
"""What a child inherits of the worker's environment. Everything else, secrets first of all, has to be named."""


class TeardownFailed(LastwordError):
    """Processes of a child are still alive after they were killed."""


class CommandNotFound(LastwordError):
    """The command is not on the PATH."""


def child_environment(extra: Mapping[str, str] = {}, from_worker: Iterable[str] = ()) -> dict[str, str]:
    """The environment of a child: the allow-list, the named variables of the worker, then `extra`.

    A name of the worker's that ends with `*` stands for all that begin so.
    """
    wanted = [*ALLOWED_ENVIRONMENT, *from_worker]
    exact = {name for name in wanted if not name.endswith("*")}
    prefixes = tuple(name[:-1] for name in wanted if name.endswith("*"))
    inherited = {n: v for n, v in os.environ.items() if n in exact or (prefixes and n.startswith(prefixes))}
    return inherited | dict(extra)


def exit_facts(code: int | None) -> dict[str, Any]:
    """The facts of a process that ended before its turn did."""
    if code is None:
        return {"category": "unfinished"}
    return {"category": "crash", **({"signal": -code} if code < 0 else {"exit_code": code})}


class ChildFamily:
    """A child's processes, whoever spawned them: known by a mark in their environment, guarded, and ended together."""

    def __init__(self, mark: str, guard: _Guard) -> None:
        self._mark = mark
        self._guard = guard

    @classmethod
    async def begin(cls) -> ChildFamily:
        """A family without members yet. From here on the guard ends what carries its mark if this process is killed."""
        guard = _guards.setdefault(asyncio.get_running_loop(), _Guard())
        mark = new_mark()
        await guard.add(mark)
        return cls(mark, guard)

    @property
    def marking(self) -> dict[str, str]:
        """What the environment of the first member has to hold; the others inherit it."""
        return {MARK: self._mark}

    def forget(self) -> None:
        """There is nothing to guard: no member was started, or all are gone."""
        self._guard.discard(self._mark)

    async def end(self, known: Iterable[psutil.Process] = ()) -> None:
        """TERM, then KILL, each with a grace; returns when all are gone. Raises TeardownFailed if something survives.

        `known` are members that were seen before: what its parent's death has cut off from the mark.
        """
        survivors = await _end({*known, *await self.members()}, terminate=True, grace=TERM_GRACE)
        left = await _end({*survivors, *await self.members()}, terminate=False, grace=KILL_GRACE)
        if left:
            raise TeardownFailed(f"{len(left)} processes of a child survived SIGKILL: {sorted(p.pid for p in left)}.")
        self.forget()

    async def members(self) -> set[psutil.Process]:
        """Those that run now."""
        return set(await asyncio.to_thread(marked_processes, {self._mark}))


class ChildProcess:
    """A running process with its tree. Use `spawn`, talk over `stdin` and `stdout`, and `close` it."""

    def __init__(self, process: asyncio.subprocess.Process, family: ChildFamily) -> None:
        self._process = process
        self._family = family
        self._stderr: deque[str] = deque(maxlen=_STDERR_TAIL)
        self._drain = asyncio.create_task(self._drain_stderr())
        assert process.stdin is not None
        assert process.stdout is not None
        self.stdin: asyncio.StreamWriter = process.stdin
        self.stdout: asyncio.StreamReader = process.stdout

    @classmethod
    async def spawn(
        cls, command: str, args: Sequence[str] = (), *, env: Mapping[str, str], cwd: str | None = None
    ) -> ChildProcess:
        """Start the command. Raises CommandNotFound, or OSError if it cannot be started."""
        path = shutil.which(command, path=env.get("PATH"))
        if path is None:
            raise CommandNotFound(f"The command {command!r} is not on the worker's PATH; install it or give its path.")
        # Known to the guard before it runs: a worker that is killed in between leaves no orphan.
        family = await ChildFamily.begin()
        try:
            process = await asyncio.create_subprocess_exec(
                path, *args, env={**env, **family.marking}, cwd=cwd, start_new_session=True, limit=LINE_LIMIT,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
        except BaseException:
            family.forget()
            raise
        return cls(process, family)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    @property
    def stderr_tail(self) -> list[str]:
        """The last lines. For a log that stays on this machine; never for a diagnostic."""
        return list(self._stderr)

    async def close(self) -> None:
        """End the whole tree: stdin's end, TERM, KILL, each with a grace. Returns when it is gone; may be called again.

        Raises TeardownFailed if something survives.
        """
        try:
            # Taken before each rung: a process that dies takes the link to its own children with it.
            family = await self._family.members()
            self.stdin.close()
            await self.wait(STDIN_GRACE)
            await self._family.end(family)
            await self.wait(KILL_GRACE)
        finally:
            self._drain.cancel()
            transport = getattr(self._process, "_transport", None)
            if transport is not None:
                transport.close()

    async def wait(self, grace: float) -> int | None:
        """The exit code of the process, negative for a signal; None if it still runs after `grace` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._process.wait()
        return self._process.returncode

    async def _drain_stderr(self) -> None:
        assert self._process.stderr is not None
        while True:
            try:
                line = await self._process.stderr.readline()
            except ValueError:
                continue  # a line over the limit; the reader has dropped it
            if not line:
                return
            self._stderr.append(line.decode(errors="replace").rstrip())


async def _end(processes: Iterable[psutil.Process], *, terminate: bool, grace: float) -> list[psutil.Process]:
    """Signal them and give back who is left after the grace."""
    alive = list(processes)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate() if terminate else process.kill()
    deadline = time.monotonic() + grace
    while (alive := [process for process in alive if is_alive(process)]) and time.monotonic() < deadline:
        await asyncio.sleep(_POLL)
    return alive


class _Guard:
    """This worker's guard process, started with the first child, and again if it is lost; and what it has to know."""

    def __init__(self) -> None:
        self._marks: set[str] = set()
        self._process: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()

    async def add(self, mark: str) -> None:
        """Returns when a guard runs and was told of the mark."""
        self._marks.add(mark)
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                self._process = await _start_guard()
                for known in self._marks:
                    self._send(f"+{known}")
            else:
                self._send(f"+{mark}")

    def discard(self, mark: str) -> None:
        self._marks.discard(mark)
        self._send(f"-{mark}")

    def _send(self, line: str) -> None:
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(OSError, RuntimeError):
            self._process.stdin.write(f"{line}\n".encode())


_guards: dict[asyncio.AbstractEventLoop, _Guard] = {}


async def _start_guard() -> asyncio.subprocess.Process:
    # Its modules come from where the worker's came from (-P): not from whatever the working directory holds.
    return await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "lastword.backends.orphan_guard",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, start_new_session=True,
        env=child_environment() | {"PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)},
    )  # fmt: skip
