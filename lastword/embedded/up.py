"""`lastword up`: the Temporal server, optionally the local model, and a worker, on one data directory."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from lastword.core.errors import ConfigurationError, WorkerUnavailable
from lastword.embedded.local_model import NAME as LOCAL_MODEL
from lastword.embedded.local_model import start_local_model
from lastword.embedded.owned import OwnedProcess
from lastword.embedded.server import check_port, start_server
from lastword.embedded.state import UpState, process_of, read_state, remove_state, write_state
from lastword.embedded.worker_guard import WorkerGuard

_SERVER_GRACE: Final = 10.0
_DETACH_GRACE: Final = 120.0
_DOWN_GRACE: Final = 120.0


@dataclass(frozen=True)
class UpOptions:
    """What to run, and where."""

    data_dir: Path
    port: int = 7233
    ui_port: int = 8233
    local_model: bool = False
    worker_command: Sequence[str] = (sys.executable, "-m", "lastword.worker")


class Up:
    """The running whole. `run` returns when it was told to stop and everything is gone."""

    def __init__(self, options: UpOptions, say: Callable[[str], None]) -> None:
        self._options = options
        self._say = say
        self._stop = asyncio.Event()
        self._server: OwnedProcess | None = None
        self._model_url: str | None = None
        self._worker_pid: int | None = None

    async def run(self) -> None:
        """Raises ConfigurationError, ServerUnreachable or WorkerUnavailable if something does not start."""
        options = self._options
        options.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        with _only_one(options.data_dir):
            check_port(options.port, "--port")
            check_port(options.ui_port, "--ui-port")
            async with AsyncExitStack() as stack:
                await self._start(stack)
                stack.callback(remove_state, options.data_dir)
                self._say(f"Temporal    127.0.0.1:{options.port}   UI http://127.0.0.1:{options.ui_port}")
                self._say(f"data        {options.data_dir}")
                self._say('ready       try: lastword delegate "Tell me a short story"')
                await self._watch()

    async def _start(self, stack: AsyncExitStack) -> None:
        options = self._options
        self._say("starting the Temporal server ...")
        self._server = await start_server(options.data_dir, port=options.port, ui_port=options.ui_port)
        stack.push_async_callback(self._stop_server)
        if options.local_model:
            self._say("starting the local model ...")
            port = _free_port()
            model = await start_local_model(port, log=options.data_dir / "model.log")
            stack.push_async_callback(model.stop, grace=2)
            self._model_url = f"http://127.0.0.1:{port}/v1"
        self._say("starting the worker ...")
        self._guard = WorkerGuard(
            options.worker_command,
            env=self._worker_environment(),
            log=options.data_dir / "worker.log",
            on_start=self._note_worker,
            on_end=lambda code, delay: self._say(
                f"the worker ended with code {code}; starting it again in {delay:g} s"
            ),
        )
        stack.push_async_callback(self._guard.stop)
        await self._guard.start()
        self._write_state()

    async def _watch(self) -> None:
        """Keep the worker and the server running until told to stop."""
        keeping = [asyncio.create_task(self._guard.keep()), asyncio.create_task(self._keep_server())]
        stopping = asyncio.create_task(self._stop.wait())
        try:
            done, _ = await asyncio.wait([*keeping, stopping], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopping}:
                task.result()
        finally:
            for task in (*keeping, stopping):
                task.cancel()
        self._say("stopping: the worker hands its turns over ...")

    async def _keep_server(self) -> None:
        while True:
            assert self._server is not None
            code = await self._server.wait()
            self._say(f"the Temporal server ended with code {code}; starting it again, its state is on disk")
            self._server = await start_server(
                self._options.data_dir, port=self._options.port, ui_port=self._options.ui_port
            )
            self._write_state()

    async def _stop_server(self) -> None:
        if self._server is not None:
            await self._server.stop(grace=_SERVER_GRACE)

    def _note_worker(self, pid: int) -> None:
        first = self._worker_pid is None
        self._worker_pid = pid
        if not first:
            self._say(f"worker {pid} is running")
            self._write_state()

    def _worker_environment(self) -> dict[str, str]:
        # The worker of this server: nothing of another server's configuration may lead it elsewhere.
        env = {name: value for name, value in os.environ.items() if not name.startswith("TEMPORAL_")}
        env["TEMPORAL_ADDRESS"] = f"127.0.0.1:{self._options.port}"
        env["LASTWORD_DATA_DIR"] = str(self._options.data_dir)
        if self._model_url is not None:
            env["LASTWORD_LOCAL_MODEL_URL"] = self._model_url
            env.setdefault("LASTWORD_MODEL", LOCAL_MODEL)
        return env

    def _write_state(self) -> None:
        assert self._server is not None
        write_state(
            self._options.data_dir,
            UpState(
                pid=os.getpid(),
                create_time=psutil.Process().create_time(),
                address=f"127.0.0.1:{self._options.port}",
                ui_url=f"http://127.0.0.1:{self._options.ui_port}",
                server_pid=self._server.pid,
                worker_pid=self._worker_pid,
                model_url=self._model_url,
            ),
        )


def detach(data_dir: Path, arguments: Sequence[str]) -> UpState:
    """Run `up` in the background and return when it is ready. Raises WorkerUnavailable with the end of its log."""
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = data_dir / "up.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "lastword.cli", "up", *arguments],
            stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True,
        )  # fmt: skip
    deadline = time.monotonic() + _DETACH_GRACE
    while time.monotonic() < deadline:
        state = read_state(data_dir)
        if state is not None and state.pid == process.pid:
            return state
        if process.poll() is not None:
            lines = log.read_text(errors="replace").strip().splitlines()[-6:]
            raise WorkerUnavailable("`lastword up` did not start:\n" + "\n".join(lines))
        time.sleep(0.05)
    process.terminate()
    raise WorkerUnavailable(f"`lastword up` was not ready within {_DETACH_GRACE:g} s; see {log}.")


def down(data_dir: Path) -> int | None:
    """Stop the `up` of this data directory; its pid, or None if none runs. Returns when it is gone."""
    state = read_state(data_dir)
    process = process_of(state) if state else None
    if process is None:
        return None
    process.terminate()
    try:
        process.wait(timeout=_DOWN_GRACE)
    except psutil.TimeoutExpired:
        process.kill()
        process.wait(timeout=10)
    remove_state(data_dir)
    return process.pid


@contextlib.contextmanager
def _only_one(data_dir: Path) -> Iterator[None]:
    """Hold the data directory's lock. It goes with the process, however that ends."""
    with (data_dir / "up.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            state = read_state(data_dir)
            who = f"pid {state.pid} at {state.address}" if state else "another process that is just starting"
            raise ConfigurationError(
                f"`lastword up` already runs on {data_dir} ({who}). Use it, or stop it with `lastword down`."
            ) from None
        yield


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
