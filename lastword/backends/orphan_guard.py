"""The guard: ends the children of a worker that died without closing them.

It reads marks from its stdin, whose other end the worker holds, and waits for the end of it, which comes when the
worker is gone, however it went. Then every process with a mark that is still registered is killed, and its descendants
with it. A mark is in the environment of a child and so of all that it starts, in whatever session or process group;
only a process that both left its parent and cleared its environment escapes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import Final

import psutil

MARK: Final = "LASTWORD_CHILD"
_PATIENCE: Final = 5.0


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
