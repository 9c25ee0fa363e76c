"""`lastword up`: server and worker that come back, state that survives, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import psutil
import pytest

from lastword.embedded.state import read_state
from tests.integration.test_cli import Terminal


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def terminal_of(folder: Path) -> Terminal:
    terminal = Terminal("", folder)
    for name in ("TEMPORAL_ADDRESS", "LASTWORD_TASK_QUEUE"):
        terminal.env.pop(name, None)
    return terminal


async def doctor(terminal: Terminal) -> Any:
    done = await terminal.run("doctor", "--json")
    return json.loads(done.out)


async def until_gone(*pids: int) -> None:
    processes = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    _, left = await asyncio.to_thread(psutil.wait_procs, processes, 30)
    assert [p for p in left if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []


async def test_the_worker_comes_back_and_delegations_survive_a_restart(tmp_path: Path) -> None:
    terminal = terminal_of(tmp_path)
    ports = ["--port", str(free_port()), "--ui-port", str(free_port())]
    started = await terminal.run("up", "--detach", *ports)
    assert started.code == 0, started.err
    try:
        done = await terminal.run("delegate", "remember me", "--backend", "scripted", "--id", "kept")
        assert (done.code, done.out) == (0, "remember me\n")
        talked = await terminal.run("chat", "talk", "--backend", "scripted", stdin="the first words\n")
        assert talked.out == "the first words\n"
        before = (await doctor(terminal))["up"]
        os.kill(before["worker_pid"], signal.SIGKILL)
        async with asyncio.timeout(60):
            while (await doctor(terminal))["up"]["worker_pid"] == before["worker_pid"]:
                await asyncio.sleep(0.1)
        assert (await terminal.run("delegate", "again", "--backend", "scripted")).out == "again\n"
        second = await terminal.run("up", *ports)
        assert second.code == 2
        assert str(before["pid"]) in second.err
    finally:
        assert (await terminal.run("down")).code == 0
    await until_gone(before["pid"], before["server_pid"])
    assert "nothing runs" in (await terminal.run("down")).err
    assert (await terminal.run("up", "--detach", *ports)).code == 0
    try:
        assert (await terminal.run("result", "kept")).out == "remember me\n"
        recalled = await terminal.run("ask", "talk", json.dumps([{"recall": "user"}, {"message": None}]))
        assert (recalled.code, recalled.out) == (0, "the first words\n")
    finally:
        await terminal.run("down")


@pytest.mark.skipif(not os.path.exists("/proc/self"), reason="the kernel ends them on Linux only")
async def test_kill_9_of_up_leaves_no_server_and_no_worker(tmp_path: Path) -> None:
    terminal = terminal_of(tmp_path)
    await terminal.run("up", "--detach", "--port", str(free_port()), "--ui-port", str(free_port()))
    state = read_state(tmp_path)
    assert state is not None
    assert state.worker_pid is not None
    os.kill(state.pid, signal.SIGKILL)
    await until_gone(state.pid, state.server_pid, state.worker_pid)


async def test_a_taken_port_is_named_with_the_remedy(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = await terminal_of(tmp_path).run("up", "--port", str(port), "--ui-port", str(free_port()))
    assert done.code == 2
    assert f"port {port}" in done.err
    assert "--port" in done.err
