"""A server and requests for the benchmarks, and how they are timed."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from temporalio.testing import WorkflowEnvironment

from lastword.converter import data_converter
from lastword.core.contract import DelegationRequest


async def start_server() -> WorkflowEnvironment:
    beside = Path(sys.executable).with_name("temporal")
    return await WorkflowEnvironment.start_local(
        data_converter=data_converter,
        dev_server_existing_path=str(beside) if beside.exists() else shutil.which("temporal"),
        dev_server_extra_args=["--sqlite-pragma", "journal_mode=WAL", "--sqlite-pragma", "synchronous=NORMAL"],
        dev_server_log_level="error",
    )


def scripted(*steps: dict[str, Any], **fields: Any) -> DelegationRequest:
    return DelegationRequest.model_validate(
        {"prompt": "go", "backend": "scripted", "options": {"script": list(steps)}, **fields}
    )


@contextmanager
def timed() -> Iterator[Callable[[], float]]:
    """Seconds since the context was entered, and for ever the whole once it was left."""
    begun = time.perf_counter()
    ended: list[float] = []
    yield lambda: (ended[0] if ended else time.perf_counter()) - begun
    ended.append(time.perf_counter())


async def rate(one: Callable[[], Awaitable[object]], *, count: int, at_once: int) -> float:
    """Calls a second."""
    gate = asyncio.Semaphore(at_once)

    async def gated() -> None:
        async with gate:
            await one()

    with timed() as seconds:
        await asyncio.gather(*(gated() for _ in range(count)))
    return count / seconds()


async def latencies(one: Callable[[], Awaitable[object]], *, count: int) -> list[float]:
    """Seconds of each of `count` calls, one after the other."""
    taken = []
    for _ in range(count):
        with timed() as seconds:
            await one()
        taken.append(seconds())
    return taken


def spread(values: list[float]) -> str:
    """p50 and p95 in milliseconds."""
    ordered = quantiles(values, n=20) if len(values) > 1 else values * 19
    return f"p50 {median(values) * 1000:.0f} ms, p95 {ordered[18] * 1000:.0f} ms"
