"""The processes of children that this run of the tests started: others on the machine have theirs."""

from __future__ import annotations

import os
import tempfile

import psutil

from lastword.backends.orphan_guard import MARK, is_alive

_OF_THIS_RUN = "XDG_CONFIG_HOME"


def mark_this_run() -> None:
    """Give this run a settings folder of its own: whoever runs the tests may have some. Children inherit it."""
    os.environ[_OF_THIS_RUN] = tempfile.mkdtemp(prefix="lastword-tests-")


def living_children() -> set[psutil.Process]:
    found = set()
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except (psutil.Error, OSError):
            continue
        if MARK in environment and environment.get(_OF_THIS_RUN) == os.environ[_OF_THIS_RUN] and is_alive(process):
            found.add(process)
    return found
