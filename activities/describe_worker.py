"""The activity behind the ping: what this worker is and what its backends lack."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Mapping
from importlib.metadata import version

from temporalio import activity

from lastword.core import names
from lastword.core.ports import Backend
from lastword.core.worker_report import BackendReport, WorkerReport


class DescribeWorkerActivity:
    """Reports the worker that runs it."""

    def __init__(self, *, backends: Mapping[str, Backend], log_store: str, default_model: str | None) -> None:
        self._backends = backends
        self._log_store = log_store
        self._default_model = default_model

    @activity.defn(name=names.DESCRIBE_WORKER)
    async def describe_worker(self) -> WorkerReport:
        # Looking for a backend may import a whole agent framework: not in the event loop that beats for the children.
        reports = await asyncio.to_thread(lambda: [_report(name, self._backends) for name in sorted(self._backends)])
        return WorkerReport(
            version=version("lastword"),
            pid=os.getpid(),
            host=platform.node(),
            log_store=self._log_store,
            default_model=self._default_model,
            backends=reports,
        )


def _report(name: str, backends: Mapping[str, Backend]) -> BackendReport:
    try:
        backend = backends[name]
        return BackendReport(
            name=name, capabilities=backend.capabilities, version=backend.version(), missing=backend.missing()
        )
    except Exception as error:
        return BackendReport(name=name, missing=[f"It cannot be loaded: {error}"])
