"""`lastword up` when things go wrong around it: a dead server, a start that hangs, another server's configuration."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
from temporalio.client import Client

from lastword.embedded.state import UpState, read_state

HANGING_WORKER = """
import asyncio, sys
from pathlib import Path
from lastword.embedded.up import Up, UpOptions
from lastword.process_exit import leave

port, ui_port, data_dir = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
worker = [sys.executable, "-c", "import time; time.sleep(600)"]
options = UpOptions(data_dir=data_dir, port=port, ui_port=ui_port, worker_command=worker)
say = lambda text: print(text, flush=True)
asyncio.run(Up(options, say).run())
leave(0)
"""


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


async def run(folder: Path, *words: str, **env: str) -> tuple[int, str]:
    """`lastword WORDS` on the data directory: its exit code and what it said on stderr."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "LASTWORD_"))}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "lastword.cli", *words, stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE, env={**clean, "LASTWORD_DATA_DIR": str(folder), **env},
    )  # fmt: skip
    async with asyncio.timeout(90):
        _, err = await process.communicate()
    assert process.returncode is not None
    assert b"Traceback" not in err, err.decode()
    return process.returncode, err.decode()


async def state_when(folder: Path, condition: Callable[[UpState], bool]) -> UpState:
    async with asyncio.timeout(60):
        while (state := read_state(folder)) is None or not condition(state):
            await asyncio.sleep(0.02)
    return state


async def test_a_killed_server_comes_back_with_what_it_knew(tmp_path: Path) -> None:
    # The user's own profile points to another server: it is not for what `up` starts.
    profile = tmp_path / "config" / "temporalio" / "temporal.toml"
    profile.parent.mkdir(parents=True)
    profile.write_text('[profile.default]\naddress = "elsewhere.invalid:7233"\nnamespace = "n.a"\napi_key = "k"\n')
    ports = ("--port", free_port(), "--ui-port", free_port())
    code, err = await run(tmp_path, "up", "--detach", *ports, XDG_CONFIG_HOME=str(tmp_path / "config"))
    assert code == 0, err
    try:
        before = await state_when(tmp_path, lambda _: True)
        client = await Client.connect(before.address)
        await client.start_workflow("Nobody", id="kept", task_queue="nobody")
        os.kill(before.server_pid, signal.SIGKILL)
        after = await state_when(tmp_path, lambda state: state.server_pid != before.server_pid)
        assert after.address == before.address
        client = await Client.connect(after.address)
        assert (await client.get_workflow_handle("kept").describe()).workflow_type == "Nobody"
        code, err = await run(tmp_path, "delegate", "hello", "--backend", "scripted")
        assert code == 0, err
        # A second one, refused, takes nothing from the first.
        code, err = await run(tmp_path, "up", "--detach", "--port", free_port(), "--ui-port", free_port())
        assert code == 2
        assert f"pid {before.pid} at {before.address}" in err
        assert "lastword down" in err
        assert read_state(tmp_path) is not None
    finally:
        code, err = await run(tmp_path, "down")
    assert (code, err) == (0, f"stopped pid {before.pid}\n")
    assert not any(psutil.pid_exists(pid) for pid in (after.server_pid, after.worker_pid or 0) if pid)
    assert read_state(tmp_path) is None


async def test_down_ends_an_up_whose_worker_never_gets_ready(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HANGING_WORKER, free_port(), free_port(), str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            while b"starting the worker" not in await process.stdout.readline():
                assert process.returncode is None
        children = psutil.Process(process.pid).children()
        code, err = await run(tmp_path, "down")
        assert (code, err) == (0, f"stopped pid {process.pid}\n")
        async with asyncio.timeout(30):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert [child for child in children if child.is_running()] == []


async def test_a_detached_up_that_cannot_start_says_why(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, err = await run(tmp_path, "up", "--detach", "--port", str(port), "--ui-port", free_port())
    assert code == 2
    assert f"The port {port} is taken" in err
    assert "--port" in err
    assert read_state(tmp_path) is None


async def test_a_port_out_of_range_is_a_usage_error(tmp_path: Path) -> None:
    code, err = await run(tmp_path, "up", "--port", "70000")
    assert code == 2
    assert "65535" in err
