"""What every test needs: a clean way out for a process that used Temporal's SDK."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import psutil
import pytest

from lastword.backends.orphan_guard import MARK, is_alive
from lastword.process_exit import leave

_status = 0


def pytest_configure(config: pytest.Config) -> None:
    # Whoever runs the tests may have settings of his own.
    os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="lastword-tests-")


@pytest.fixture(scope="session", autouse=True)
def no_child_outlives_the_tests() -> Iterator[None]:
    """By the list of processes: what carries a child's mark at the end, and did not before, is an orphan."""
    before = _marked()
    yield
    left = _marked() - before
    _, alive = psutil.wait_procs(left, timeout=10)
    left = {process for process in alive if is_alive(process)}
    told = [f"{process.pid} {' '.join(process.cmdline())[:100]}" for process in left]
    for process in left:
        process.kill()
    assert told == []


def _marked() -> set[psutil.Process]:
    found = set()
    for process in psutil.process_iter():
        try:
            if MARK in process.environ() and is_alive(process):
                found.add(process)
        except (psutil.Error, OSError):
            continue
    return found


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    global _status
    _status = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    # The interpreter's own exit now and then aborts (134) after the SDK was used.
    if config.pluginmanager.hasplugin("terminalreporter"):
        leave(_status)
