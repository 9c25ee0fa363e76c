"""What every test needs: a clean way out for a process that used Temporal's SDK."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest

from lastword.backends.orphan_guard import is_alive
from lastword.process_exit import leave
from tests.processes import living_children, mark_this_run

_status = 0


def pytest_configure(config: pytest.Config) -> None:
    mark_this_run()


@pytest.fixture(scope="session", autouse=True)
def no_child_outlives_the_tests() -> Iterator[None]:
    """By the list of processes: a child that is there at the end is an orphan."""
    yield
    _, alive = psutil.wait_procs(living_children(), timeout=10)
    left = {process for process in alive if is_alive(process)}
    told = [f"{process.pid} {' '.join(process.cmdline())[:100]}" for process in left]
    for process in left:
        process.kill()
    assert told == []


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    global _status
    _status = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    # The interpreter's own exit now and then aborts (134) after the SDK was used.
    if config.pluginmanager.hasplugin("terminalreporter"):
        leave(_status)
