"""Throughput and latency against the bare workflow, cancel-to-result, recovery after a kill, folding."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
import uuid
from pathlib import Path
from statistics import median

from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from benchmarks.bare import BareWorkflow, bare_activity
from benchmarks.house import latencies, rate, scripted, spread, timed
from lastword.backends.scripted import ScriptedBackend
from lastword.client import DelegationClient
from lastword.core.events import text_delta
from lastword.core.output import AssistantOutputFold
from lastword.sessions import open_store
from lastword.worker import READY, open_worker

ROUNDS = 5


async def against_bare(env: WorkflowEnvironment) -> None:
    """Interleaved rounds of both, on one server, each with a worker in this process."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(folder)
        client = DelegationClient(env.client, task_queue="ours", store=store)
        request = scripted({"delta": "hello"}, {"message": None})

        async def bare() -> None:
            await env.client.execute_workflow(BareWorkflow.run, "hello", id=uuid.uuid4().hex, task_queue="bare")

        async def ours() -> None:
            await client.run(request)

        bare_worker = Worker(env.client, task_queue="bare", workflows=[BareWorkflow], activities=[bare_activity])
        backends = {"scripted": ScriptedBackend()}
        async with (
            bare_worker,
            open_worker(env.client, backends=backends, store=store, observers=[], task_queue="ours"),
        ):
            await asyncio.gather(rate(bare, count=20, at_once=10), rate(ours, count=20, at_once=10))  # warm
            rates, times = [], []
            for _ in range(ROUNDS):
                plain = await rate(bare, count=60, at_once=20)
                rates.append((await rate(ours, count=60, at_once=20), plain))
                plain_times = await latencies(bare, count=10)
                times.append((median(await latencies(ours, count=10)), median(plain_times)))
    print(f"throughput   {_pair(rates, '/s')}   goal 0.9")
    print(f"latency      {_pair([(a * 1000, b * 1000) for a, b in times], ' ms')}   goal 1.15")


def _pair(pairs: list[tuple[float, float]], unit: str) -> str:
    ratio = median(a / b for a, b in pairs)
    ours, bare = median(a for a, _ in pairs), median(b for _, b in pairs)
    return f"{ours:.1f}{unit} against {bare:.1f}{unit} bare: ratio {ratio:.2f}"


async def cancel_and_recovery(env: WorkflowEnvironment) -> None:
    """Real worker processes: how long a cancel takes, and a killed worker's child to say its next word."""
    address = env.client.service_client.config.target_host
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(str(Path(folder) / "sessions"))
        client = DelegationClient(env.client, task_queue="killed", store=store)
        worker = await _worker(address, folder)
        endless = scripted({"count": {"from": 0, "to": 10**6, "every_ms": 10}})
        cancels = []
        for _ in range(15):
            id = await client.start(endless)
            await _until_said(client, id)
            with timed() as seconds:
                await client.cancel(id)
            cancels.append(seconds())
        recoveries = []
        for _ in range(3):
            ids = [await client.start(endless) for _ in range(4)]
            for id in ids:
                await _until_said(client, id)
            worker.send_signal(signal.SIGKILL)
            await worker.wait()
            killed = time.perf_counter()
            worker = await _worker(address, folder)

            async def recovered(id: str, killed: float = killed) -> float:
                while (await client.describe(id)).attempt < 2:
                    await asyncio.sleep(0.05)
                return time.perf_counter() - killed

            recoveries += await asyncio.gather(*(recovered(id) for id in ids))
            for id in ids:
                await client.cancel(id)
        worker.send_signal(signal.SIGTERM)
        await worker.wait()
    print(f"cancel       to result: {spread(cancels)}")
    print(f"recovery     after kill -9, heartbeat timeout of 10 s included: {spread(recoveries)}")


async def _worker(address: str, folder: str) -> asyncio.subprocess.Process:
    env = {**os.environ, "TEMPORAL_ADDRESS": address, "LASTWORD_DATA_DIR": folder, "LASTWORD_TASK_QUEUE": "killed"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "lastword.worker",
        env={**env, "LASTWORD_LOG_LEVEL": "ERROR"}, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert (await process.stdout.readline()).decode().strip() == READY
    return process


async def _until_said(client: DelegationClient, id: str) -> None:
    while not (await client.describe(id)).checkpoint:
        await asyncio.sleep(0.02)


def folding() -> None:
    """Deltas a second through the output fold."""
    deltas = [text_delta("word ", turn=1, step=1) for _ in range(200_000)]
    fold = AssistantOutputFold()
    with timed() as seconds:
        for delta in deltas:
            fold.push(delta)
    print(f"folding      {len(deltas) / seconds() / 1e6:.2f} million deltas/s")
