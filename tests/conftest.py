"""What every test needs: a clean way out for a process that used Temporal's SDK."""

from __future__ import annotations

import pytest

from lastword.process_exit import leave

_status = 0


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    global _status
    _status = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    # The interpreter's own exit now and then aborts (134) after the SDK was used.
    if config.pluginmanager.hasplugin("terminalreporter"):
        leave(_status)
