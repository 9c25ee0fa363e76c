"""Servers, workers and clients that the integration tests share."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from temporalio.testing import WorkflowEnvironment

from lastword.backends.scripted import ScriptedBackend
from lastword.client import DelegationClient
from lastword.core.contract import DelegationRequest, LifecycleEdge
from lastword.core.packing import RowReader
from lastword.core.ports import Backend, SessionStore
from lastword.sessions import open_store
from lastword.watching import Progress
from lastword.worker import open_worker
from tests.integration.servers import start_dev_server, start_skipping_server
from tests.integration.worker_process import WorkerProcess


class Edges:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.seen: list[LifecycleEdge] = []

    async def on_edge(self, edge: LifecycleEdge) -> None:
        self.seen.append(edge)

    def of(self, id: str) -> list[LifecycleEdge]:
        return [edge for edge in self.seen if edge.id == id]


@dataclass
class House:
    """One server, one queue, one data directory: what a delegation needs, less the worker."""

    env: WorkflowEnvironment
    data_dir: Path
    queue: str = field(default_factory=lambda: f"q-{uuid.uuid4().hex[:8]}")
    edges: Edges = field(default_factory=Edges)

    @property
    def store(self) -> SessionStore:
        return open_store(str(self.data_dir / "sessions"))

    @property
    def client(self) -> DelegationClient:
        return DelegationClient(self.env.client, task_queue=self.queue, store=self.store)

    def worker_process(self) -> WorkerProcess:
        address = self.env.client.service_client.config.target_host
        return WorkerProcess(address, self.queue, self.data_dir)

    @asynccontextmanager
    async def worker(self, *backends: Backend, workflows: bool = True, activities: bool = True) -> AsyncIterator[None]:
        """A worker in this process."""
        chosen = backends or (ScriptedBackend(), ScriptedBackend(name="scripted-no-resume", resume=False))
        async with open_worker(
            self.env.client,
            backends={b.name: b for b in chosen},
            store=self.store,
            observers=[self.edges],
            task_queue=self.queue,
            workflows=workflows,
            activities=activities,
        ):
            yield


def scripted(*steps: dict[str, object], **fields: object) -> DelegationRequest:
    """A request to a scripted child."""
    options = fields.pop("options", {})
    assert isinstance(options, dict)
    data = {"prompt": "go", "backend": "scripted", "options": {"script": list(steps), **options}, **fields}
    return DelegationRequest.model_validate(data)


async def until_exists(path: Path) -> None:
    """Return when a child has touched the file."""
    async with asyncio.timeout(60):
        while not path.exists():
            await asyncio.sleep(0.01)


async def until_beaten(house: House, id: str, events: int) -> Progress:
    """Return when the server shows a checkpoint that reaches so many events."""
    async with asyncio.timeout(60):
        while True:
            progress = await house.client.describe(id)
            if progress.checkpoint and last_seq(progress) >= events:
                return progress
            await asyncio.sleep(0.02)


def last_seq(progress: Progress) -> int:
    """The number after the last event that the checkpoint reaches."""
    assert progress.checkpoint is not None
    seq = progress.checkpoint.sealed_seq
    reader = RowReader()
    for row in progress.checkpoint.tail:
        for event in reader.read(row):
            seq = max(seq, (event.seq or 0) + 1)
    return seq


@pytest.fixture(scope="session")
async def dev_server() -> AsyncIterator[WorkflowEnvironment]:
    async with await start_dev_server() as env:
        yield env


@pytest.fixture(scope="session")
async def skipping_server() -> AsyncIterator[WorkflowEnvironment]:
    async with await start_skipping_server() as env:
        yield env


@pytest.fixture(scope="session")
async def forgetful_server() -> AsyncIterator[WorkflowEnvironment]:
    """A server that suggests continuing as new after a few turns."""
    limits = ["--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=60"]
    async with await start_dev_server(more=limits) as env:
        yield env


@pytest.fixture
async def house(dev_server: WorkflowEnvironment, tmp_path: Path) -> House:
    return House(dev_server, tmp_path)


@pytest.fixture
async def open_house(house: House) -> AsyncIterator[House]:
    """A house with a worker in this process."""
    async with house.worker():
        yield house


@pytest.fixture(params=["dev", "time-skipping"])
async def either_house(
    request: pytest.FixtureRequest,
    dev_server: WorkflowEnvironment,
    skipping_server: WorkflowEnvironment,
    tmp_path: Path,
) -> House:
    return House(dev_server if request.param == "dev" else skipping_server, tmp_path)
