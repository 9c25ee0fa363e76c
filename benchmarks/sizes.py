"""What a stream weighs: the largest heartbeat, bytes stored per byte streamed, memory per open child."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import psutil
from temporalio.testing import WorkflowEnvironment

from benchmarks.house import scripted
from lastword.activities import run_child_turn
from lastword.backends.scripted import ScriptedBackend
from lastword.client import DelegationClient
from lastword.converter import data_converter
from lastword.core.checkpoint import Checkpoint
from lastword.sessions import open_store
from lastword.worker import open_worker


class _Scale:
    """Stands in for `activity.heartbeat`, weighs what goes through, and passes it on."""

    def __init__(self) -> None:
        self.largest = 0
        self._beat = run_child_turn.activity.heartbeat

    def __call__(self, checkpoint: Checkpoint) -> None:
        (payload,) = data_converter.payload_converter.to_payloads([checkpoint])
        self.largest = max(self.largest, payload.ByteSize())
        self._beat(checkpoint)


async def storage(env: WorkflowEnvironment) -> None:
    scale = _Scale()
    run_child_turn.activity.heartbeat = scale  # type: ignore[assignment]
    try:
        for size in (10_000, 1_000_000, 10_000_000):
            with tempfile.TemporaryDirectory() as folder:
                store = open_store(folder)
                client = DelegationClient(env.client, task_queue="sizes", store=store)
                backends = {"scripted": ScriptedBackend()}
                request = scripted({"text": {"bytes": size, "delta_bytes": 8, "seed": 3}}, {"message": None})
                async with open_worker(env.client, backends=backends, store=store, observers=[], task_queue="sizes"):
                    await client.run(request)
                stored = sum(path.stat().st_size for path in Path(folder).rglob("*.lw"))
                goal = "   goal 1.2" if size >= 1_000_000 else ""
                print(f"stored       {stored / size:.2f} bytes per byte streamed, at {size:,} bytes{goal}")
    finally:
        run_child_turn.activity.heartbeat = scale._beat
    print(f"heartbeat    largest {scale.largest / 1024:.1f} KB   goal 32 KB")


async def memory(env: WorkflowEnvironment) -> None:
    """This process is the worker; its children wait, each with something said.

    Twenty delegations at once go before it: what the first ones cost once (threads, connections) is no child's.
    """
    process = psutil.Process(os.getpid())
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(folder)
        client = DelegationClient(env.client, task_queue="memory", store=store)
        request = scripted({"text": {"bytes": 2000}}, {"fault": "hang"})
        backends = {"scripted": ScriptedBackend()}
        async with open_worker(env.client, backends=backends, store=store, observers=[], task_queue="memory"):
            await asyncio.gather(*(client.run(scripted({"delta": "warm"})) for _ in range(20)))
            before, opened = process.memory_info().rss, 0
            for count in (100, 1000):
                ids = await _start(client, request, count - opened)
                opened = count
                await _until_open(client, ids)
                each = (process.memory_info().rss - before) / count
                print(f"memory       {each / 1024:.0f} KB per open child, at {count}   goal 120 KB")


async def _start(client: DelegationClient, request: object, count: int) -> list[str]:
    gate = asyncio.Semaphore(20)

    async def one() -> str:
        async with gate:
            return await client.start(request)  # type: ignore[arg-type]

    return list(await asyncio.gather(*(one() for _ in range(count))))


async def _until_open(client: DelegationClient, ids: list[str]) -> None:
    for id in ids:
        while not (await client.describe(id)).checkpoint:
            await asyncio.sleep(0.05)
