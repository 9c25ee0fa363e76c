"""A real worker in a process of its own, for tests that kill it.

Run as a module it is that worker; `WorkerProcess` starts and ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections import ChainMap
from pathlib import Path

from temporalio.client import Client

from lastword.backends.registry import installed_backends
from lastword.backends.scripted import ScriptedBackend
from lastword.converter import data_converter
from lastword.core.contract import LifecycleEdge
from lastword.process_exit import leave
from lastword.sessions import open_store
from lastword.worker import READY, open_worker


class EdgeFile:
    """An observer that appends every edge to a file, one JSON line each."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def on_edge(self, edge: LifecycleEdge) -> None:
        with self._path.open("a") as file:
            file.write(edge.model_dump_json() + "\n")


class WorkerProcess:
    """One worker process. Every end is awaited, so no test leaves one behind."""

    def __init__(self, address: str, queue: str, data_dir: Path) -> None:
        self._args = (address, queue, str(data_dir))
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> WorkerProcess:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.integration.worker_process", *self._args,
            stdout=asyncio.subprocess.PIPE, stderr=None,
        )  # fmt: skip
        assert self._process.stdout is not None
        async with asyncio.timeout(60):
            line = await self._process.stdout.readline()
        assert line.decode().strip() == READY, line
        return self

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    async def wait(self) -> int:
        assert self._process is not None
        async with asyncio.timeout(90):
            return await self._process.wait()

    async def kill(self) -> None:
        self.send(signal.SIGKILL)
        await self.wait()

    async def stop(self) -> int:
        if self._process is None or self._process.returncode is not None:
            return -1
        with contextlib.suppress(ProcessLookupError):
            self.send(signal.SIGCONT)
            self.send(signal.SIGTERM)
        try:
            return await self.wait()
        except TimeoutError:
            await self.kill()
            raise


async def main(address: str, queue: str, data_dir: str) -> None:
    client = await Client.connect(address, data_converter=data_converter)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    own = {b.name: b for b in (ScriptedBackend(), ScriptedBackend(name="scripted-no-resume", resume=False))}
    installed = installed_backends(agents=json.loads(os.environ.get("LASTWORD_TEST_AGENTS", "{}")))
    async with open_worker(
        client,
        backends=ChainMap(own, installed),
        store=open_store(str(Path(data_dir) / "sessions")),
        observers=[EdgeFile(Path(data_dir) / "edges.jsonl")],
        task_queue=queue,
    ):
        print(READY, flush=True)
        await stopping.wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    asyncio.run(main(*sys.argv[1:]))
    leave(0)
