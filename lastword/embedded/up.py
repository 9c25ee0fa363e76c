"""`lastword up`: the Temporal server, optionally the local model, and a worker, on one data directory."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from lastword.core.errors import ConfigurationError, WorkerUnavailable
from lastword.embedded.local_model import NAME as LOCAL_MODEL
from lastword.embedded.local_model import start_local_model
from lastword.embedded.owned import PYTHON, OwnedProcess
from lastword.embedded.server import check_port, start_server
from lastword.embedded.state import UpState, process_of, read_state, remove_state, write_state
from lastword.embedded.worker_guard import WorkerGuard
from lastword.settings import load_settings

_LOCK: Final = "up.lock"
_SERVER_GRACE: Final = 10.0
_DETACH_GRACE: Final = 120.0
_DOWN_GRACE: Final = 120.0
_USAGE: Final = 2
"""The exit code of `up` for what its caller has to correct."""


@dataclass(frozen=True)
class UpOptions:
    """What to run, and where."""

    data_dir: Path
    port: int = 7233
    ui_port: int = 8233
    local_model: bool = False
    worker_command: Sequence[str] = (*PYTHON, "lastword.worker")


class Up:
    """The running whole. `run` returns when it was told to stop and everything is gone.

    What dies is started again: the worker, the server (its state is on disk) and the local model, each on its own port.
    """

    def __init__(self, options: UpOptions, say: Callable[[str], None]) -> None:
        self._options = options
        self._say = say
        self._stop = asyncio.Event()
        self._server: OwnedProcess | None = None
        self._model: OwnedProcess | None = None
        self._model_port = 0
        self._worker_pid: int | None = None

    async def run(self) -> None:
        """Raises ConfigurationError, ServerUnreachable or WorkerUnavailable if something does not start."""
        options = self._options
        options.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._listen()
        with _only_one(options.data_dir):
            check_port(options.port, "--port")
            check_port(options.ui_port, "--ui-port")
            async with AsyncExitStack() as stack:
                # Pushed first and so done last: as long as anything runs, `down` and `doctor` must find it.
                stack.callback(remove_state, options.data_dir)
                await self._until_told(self._start(stack))
                if not self._stop.is_set():
                    self._announce()
                    await self._until_told(self._keep())
                self._say("stopping: the worker hands its turns over ...")

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # not so under nohup, which must go on working
            loop.add_signal_handler(signal.SIGHUP, self._stop.set)

    async def _until_told(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work, or leave it when told to stop. Raises what the work raises."""
        tasks = [asyncio.create_task(work), asyncio.create_task(self._stop.wait())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if tasks[0] in done:
            tasks[0].result()

    def _announce(self) -> None:
        options = self._options
        self._say(f"Temporal    127.0.0.1:{options.port}   UI http://127.0.0.1:{options.ui_port}")
        if self._model is not None:
            self._say(f"model       {LOCAL_MODEL} at {self._model_url}")
        self._say(f"data        {options.data_dir}")
        settings = load_settings()
        where = "" if settings.data_dir == options.data_dir else f" --data-dir {shlex.quote(str(options.data_dir))}"
        model = "" if self._model is not None or settings.default_model else " --model PROVIDER:NAME"
        self._say(f'ready       try: lastword delegate "Tell me a short story"{model}{where}')

    async def _start(self, stack: AsyncExitStack) -> None:
        options = self._options
        self._say("starting the Temporal server ...")
        self._server = await start_server(options.data_dir, port=options.port, ui_port=options.ui_port)
        stack.push_async_callback(self._stop_server)
        if options.local_model:
            self._say("starting the local model ...")
            self._model_port = _free_port()
            await self._start_model()
            stack.push_async_callback(self._stop_model)
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

    async def _keep(self) -> None:
        """Keep everything running, until cancelled. Raises when something does not start again."""
        keeping = [asyncio.create_task(work) for work in (self._guard.keep(), self._keep_server(), self._keep_model())]
        try:
            await asyncio.gather(*keeping)
        finally:
            for task in keeping:
                task.cancel()
            await asyncio.gather(*keeping, return_exceptions=True)

    async def _keep_server(self) -> None:
        while True:
            assert self._server is not None
            code = await self._server.wait()
            self._say(f"the Temporal server ended with code {code}; starting it again, its state is on disk")
            self._server = await start_server(
                self._options.data_dir, port=self._options.port, ui_port=self._options.ui_port
            )
            self._write_state()

    async def _keep_model(self) -> None:
        while self._model is not None:
            code = await self._model.wait()
            self._say(f"the local model ended with code {code}; starting it again")
            await self._start_model()

    async def _start_model(self) -> None:
        self._model = await start_local_model(self._model_port, log=self._options.data_dir / "model.log")

    @property
    def _model_url(self) -> str | None:
        return None if self._model is None else f"http://127.0.0.1:{self._model_port}/v1"

    async def _stop_model(self) -> None:
        if self._model is not None:
            await self._model.stop(grace=2)

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
        env["TEMPORAL_CONFIG_FILE"] = os.devnull
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
    """Run `up` in the background and return when it is ready.

    Raises what made it fail, ConfigurationError or WorkerUnavailable, with the end of its log. Interrupted while it
    waits, it stops what it started.
    """
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = data_dir / "up.log"
    # Appended: it may be the log of an `up` that runs, which this one will be refused for.
    with log.open("ab") as sink:
        begin = sink.tell()
        process = subprocess.Popen(
            [*PYTHON, "lastword.cli", "up", *arguments],
            stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True,
        )  # fmt: skip
    try:
        return _ready_state(process, data_dir, log, begin)
    except BaseException:
        process.terminate()
        raise


def _ready_state(process: subprocess.Popen[bytes], data_dir: Path, log: Path, begin: int) -> UpState:
    deadline = time.monotonic() + _DETACH_GRACE
    while time.monotonic() < deadline:
        state = read_state(data_dir)
        if state is not None and state.pid == process.pid:
            return state
        if (code := process.poll()) is not None:
            lines = "\n".join(log.read_bytes()[begin:].decode(errors="replace").strip().splitlines()[-6:])
            kind = ConfigurationError if code == _USAGE else WorkerUnavailable
            raise kind(f"`lastword up` did not start (exit code {code}); the end of {log}:\n{lines}")
        time.sleep(0.05)
    raise WorkerUnavailable(f"`lastword up` was not ready within {_DETACH_GRACE:g} s; see {log}.")


def down(data_dir: Path) -> int | None:
    """Stop the `up` of this data directory, ready or still starting; its pid, or None if none runs.

    Returns when it is gone, with all that it started.
    """
    state = read_state(data_dir)
    process = process_of(state) if state else _starting(data_dir)
    if process is None:
        return None
    process.terminate()
    try:
        process.wait(timeout=_DOWN_GRACE)
    except psutil.TimeoutExpired:
        process.kill()
        process.wait(timeout=10)
    return process.pid


@contextlib.contextmanager
def _only_one(data_dir: Path) -> Iterator[None]:
    """Hold the data directory's lock. It goes with the process, however that ends."""
    with (data_dir / _LOCK).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            state = read_state(data_dir)
            where = f" at {state.address}" if state else ", which is starting"
            lock.seek(0)
            raise ConfigurationError(
                f"`lastword up` already runs on {data_dir} (pid {lock.read()}{where})."
                " Use it, or stop it with `lastword down`."
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _starting(data_dir: Path) -> psutil.Process | None:
    """The process that holds the lock. While it is held its pid is nobody else's."""
    try:
        with (data_dir / _LOCK).open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return psutil.Process(int(lock.read()))
    except (OSError, ValueError, psutil.Error):
        pass
    return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
