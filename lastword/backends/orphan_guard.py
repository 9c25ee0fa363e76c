"""The guard: ends the children of a worker that died without closing them.

It reads marks from its stdin, whose other end the worker holds, and waits for the end of it, which comes when the
worker is gone, however it went. Then every process with a mark that is still registered is killed, and its descendants
with it. A mark is in the environment of a child and so of all that it starts, in whatever session or process group;
only a process that both left its parent and cleared its environment escapes.

A mark names its owner, the worker: host, pid and start time. So a starting worker can end what a dead one left although
its guard died with it (`reap_abandoned`), and takes no living worker's children.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import time
import uuid
from collections.abc import Iterable
from typing import Final

import psutil

MARK: Final = "LASTWORD_CHILD"
_PATIENCE: Final = 5.0
_CLOCK_SLACK_MS: Final = 2000
"""A start time is told by the boot time, which moves when the clock is set. A pid does not come back as fast."""


def new_mark() -> str:
    """A mark for one child of this process."""
    return f"{_host()}.{os.getpid()}.{_started(psutil.Process())}.{uuid.uuid4().hex}"


def reap_abandoned() -> int:
    """Kill what this host's dead workers left running, and say how many children that were."""
    owners: dict[str, bool] = {}
    marks: set[str] = set()
    for process in psutil.process_iter():
        try:
            mark = process.environ().get(MARK, "")
        except (psutil.Error, OSError):
            continue
        host, _, rest = mark.partition(".")
        owner = rest.rpartition(".")[0]
        if host != _host() or not owner:
            continue
        if owner not in owners:
            owners[owner] = _is_running(owner)
        if not owners[owner]:
            marks.add(mark)
    if marks:
        kill_marked(marks)
    return len(marks)


def _host() -> str:
    # Containers share a kernel but not their pids; they have names of their own.
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def _started(process: psutil.Process) -> int:
    return round(process.create_time() * 1000)


def _is_running(owner: str) -> bool:
    pid, _, started = owner.partition(".")
    try:
        return abs(_started(psutil.Process(int(pid))) - int(started)) <= _CLOCK_SLACK_MS
    except (psutil.NoSuchProcess, ValueError):
        return False
    except psutil.Error:
        return True


def marked_processes(marks: Iterable[str]) -> list[psutil.Process]:
    """The living processes that carry one of the marks, and their descendants."""
    wanted = set(marks)
    found: set[psutil.Process] = set()
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) in wanted:
                found.update((process, *process.children(recursive=True)))
        except (psutil.Error, OSError):
            continue  # gone meanwhile, or not ours to read
    return [process for process in found if is_alive(process)]


def is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def kill_marked(marks: Iterable[str]) -> None:
    """Kill until none is left: a process may fork while its family is being killed."""
    wanted = set(marks)
    deadline = time.monotonic() + _PATIENCE
    while (left := marked_processes(wanted)) and time.monotonic() < deadline:
        for process in left:
            try:
                process.kill()
            except psutil.Error:
                continue
        psutil.wait_procs(left, timeout=0.5)


def main() -> None:
    marks: set[str] = set()
    for line in sys.stdin:
        sign, mark = line[:1], line[1:].strip()
        if sign == "+":
            marks.add(mark)
        elif sign == "-":
            marks.discard(mark)
    if marks:
        kill_marked(marks)


if __name__ == "__main__":
    main()
