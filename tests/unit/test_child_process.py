"""Processes of children: their environment, their end, and the guard that outlives the worker."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import psutil
import pytest

from lastword.backends.child_process import ChildProcess, CommandNotFound, child_environment

# A child that starts a grandchild in a session of its own, tells its pid, and ignores the end of its stdin and SIGTERM.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(grandchild.pid, flush=True)
time.sleep(600)
"""

# A worker that opens such a child, tells both pids, and waits to be killed.
WORKER = """
import asyncio, sys
from lastword.backends.child_process import ChildProcess, child_environment
async def main():
    child = await ChildProcess.spawn(sys.executable, ["-c", sys.argv[1]], env=child_environment())
    grandchild = (await child.stdout.readline()).decode().strip()
    print(child.pid, grandchild, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def test_secrets_of_the_worker_stay_with_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    monkeypatch.setenv("WANTED", "yes")
    env = child_environment({"EXTRA": "1"}, ["WANTED", "ABSENT"])
    assert "sk-canary" not in env.values()
    assert (env["EXTRA"], env["WANTED"]) == ("1", "yes")
    assert "PATH" in env
    assert "ABSENT" not in env


async def test_a_polite_child_ends_with_its_stdin() -> None:
    child = await ChildProcess.spawn("cat", env=child_environment())
    child.stdin.write(b"hello\n")
    assert await child.stdout.readline() == b"hello\n"
    await child.close()
    await child.close()
    assert child.exit_code == 0


async def test_a_stubborn_tree_is_gone_when_close_returns() -> None:
    child = await ChildProcess.spawn(sys.executable, ["-c", STUBBORN], env=child_environment())
    grandchild = psutil.Process(int(await child.stdout.readline()))
    await child.close()
    assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE
    assert child.exit_code == -signal.SIGKILL


async def test_stderr_is_drained_into_a_bounded_tail() -> None:
    code = "import sys; [print('line', n, file=sys.stderr) for n in range(5000)]; print('done', flush=True)"
    child = await ChildProcess.spawn(sys.executable, ["-c", code], env=child_environment())
    assert (await child.stdout.readline()).strip() == b"done"
    await child.close()
    assert len(child.stderr_tail) <= 64


async def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(CommandNotFound, match="no-such-command"):
        await ChildProcess.spawn("no-such-command", env=child_environment())


async def test_kill_9_of_the_worker_leaves_no_orphan(tmp_path: Path) -> None:
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, STUBBORN, stdout=asyncio.subprocess.PIPE
    )
    assert worker.stdout is not None
    family = [psutil.Process(int(pid)) for pid in (await worker.stdout.readline()).split()]
    worker.kill()
    await worker.wait()
    gone, left = await asyncio.to_thread(psutil.wait_procs, family, 20)
    assert [p for p in left if p.status() != psutil.STATUS_ZOMBIE] == []
    assert len(gone) + len(left) == 2
