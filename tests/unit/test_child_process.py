"""Processes of children: their environment, their end, and the guard that outlives the worker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from lastword.backends import orphan_guard
from lastword.backends.child_process import ChildProcess, CommandNotFound, child_environment
from lastword.backends.clean_start import clean_start, launcher
from lastword.backends.orphan_guard import is_alive, new_mark, reap_abandoned

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

# For such a worker: it kills its own guard before it tells the pids.
KILL_GUARD = """import psutil
    for p in psutil.Process().children():
        if "lastword.backends.orphan_guard" in p.cmdline():
            p.kill()
            p.wait(5)
    print(child.pid, grandchild, flush=True)"""

# A polite child with a grandchild that no mark leads to: its environment is empty, and its session its own.
UNMARKED = """
import subprocess, sys
code = "import time; time.sleep(600)"
grandchild = subprocess.Popen(["/usr/bin/env", "-i", sys.executable, "-c", code], start_new_session=True)
print(grandchild.pid, flush=True)
sys.stdin.read()
"""

# A worker that opens two of them at once and tells what it started.
TWO_CHILDREN = """
import asyncio, psutil, sys
from lastword.backends.child_process import ChildProcess, child_environment
async def main():
    env = child_environment()
    children = await asyncio.gather(*(ChildProcess.spawn("cat", env=env) for _ in range(5)))
    guards = [p for p in psutil.Process().children() if "lastword.backends.orphan_guard" in p.cmdline()]
    print(len(guards), flush=True)
    for child in children:
        await child.close()
asyncio.run(main())
"""

# A worker whose guard is killed before it opens its second child; it tells the pids of both children.
GUARD_LOST = """
import asyncio, psutil, sys
from lastword.backends.child_process import ChildProcess, child_environment
from lastword.backends.orphan_guard import is_alive
async def main():
    first = await ChildProcess.spawn(sys.executable, ["-c", sys.argv[1]], env=child_environment())
    await first.stdout.readline()
    (guard,) = [p for p in psutil.Process().children() if "lastword.backends.orphan_guard" in p.cmdline()]
    guard.kill()
    while is_alive(guard):
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)
    second = await ChildProcess.spawn(sys.executable, ["-c", sys.argv[1]], env=child_environment())
    await second.stdout.readline()
    print(first.pid, second.pid, flush=True)
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


async def test_what_a_child_started_without_a_mark_is_gone_when_close_returns() -> None:
    child = await ChildProcess.spawn(sys.executable, ["-c", UNMARKED], env=child_environment())
    grandchild = psutil.Process(int(await child.stdout.readline()))
    await child.close()
    assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE


async def test_children_that_start_together_share_one_guard() -> None:
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", TWO_CHILDREN, stdout=asyncio.subprocess.PIPE)
    told, _ = await asyncio.wait_for(worker.communicate(), 30)
    assert told.strip() == b"1"


async def test_a_new_guard_takes_over_the_children_of_a_lost_one() -> None:
    await _killed_worker_leaves_nothing(GUARD_LOST)


async def test_a_module_in_the_working_directory_does_not_blind_the_guard(tmp_path: Path) -> None:
    (tmp_path / "psutil.py").write_text("raise SystemExit('shadowed')")
    # As a console script starts: without the working directory on the path.
    await _killed_worker_leaves_nothing(WORKER, "-P", cwd=tmp_path)


async def test_stderr_is_drained_into_a_bounded_tail() -> None:
    code = "import sys; [print('line', n, file=sys.stderr) for n in range(5000)]; print('done', flush=True)"
    child = await ChildProcess.spawn(sys.executable, ["-c", code], env=child_environment())
    assert (await child.stdout.readline()).strip() == b"done"
    await child.close()
    assert len(child.stderr_tail) <= 64


async def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(CommandNotFound, match="no-such-command"):
        await ChildProcess.spawn("no-such-command", env=child_environment())


async def test_kill_9_of_the_worker_leaves_no_orphan() -> None:
    await _killed_worker_leaves_nothing(WORKER)


async def test_a_starting_worker_ends_what_a_dead_one_and_its_guard_left() -> None:
    code = WORKER.replace("print(child.pid, grandchild, flush=True)", KILL_GUARD)
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, STUBBORN, stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert worker.stdout is not None
    family = [psutil.Process(int(pid)) for pid in (await worker.stdout.readline()).split()]
    # The children of a worker that lives are nobody else's.
    await asyncio.to_thread(reap_abandoned)
    assert all(is_alive(process) for process in family)
    worker.kill()
    await worker.wait()
    assert all(is_alive(process) for process in family)
    assert await asyncio.to_thread(reap_abandoned) >= 1
    assert not [process for process in family if is_alive(process)]


def test_a_pid_that_came_back_is_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    mark = new_mark()
    host, pid, started, _ = mark.split(".")
    assert orphan_guard._is_running(f"{pid}.{started}")
    assert not orphan_guard._is_running(f"{pid}.{int(started) - 60_000}")
    assert not orphan_guard._is_running("999999999.0")
    assert host == orphan_guard._host()


async def _killed_worker_leaves_nothing(code: str, *flags: str, cwd: Path | None = None) -> None:
    """Run a worker that tells the pids of two processes of its children, kill it, and see them gone."""
    worker = await asyncio.create_subprocess_exec(
        sys.executable, *flags, "-c", code, STUBBORN, stdout=asyncio.subprocess.PIPE, cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert worker.stdout is not None
    family = [psutil.Process(int(pid)) for pid in (await worker.stdout.readline()).split()]
    worker.kill()
    await worker.wait()
    gone, left = await asyncio.to_thread(psutil.wait_procs, family, 20)
    alive = [p for p in left if p.status() != psutil.STATUS_ZOMBIE]
    for process in alive:
        process.kill()
    assert alive == []
    assert len(gone) + len(left) == 2


async def test_a_program_that_an_sdk_starts_sees_nothing_of_the_workers_environment(tmp_path: Path) -> None:
    told = "import json, os; print(json.dumps([dict(os.environ), os.getsid(0) == os.getpid()]))"
    env = {**os.environ, "WORKER_SECRET": "sk-canary", "SDK_ADDED": "1", "SDKNOT": "2"}
    env |= clean_start(sys.executable, {"MINE": "yes"}, ("SDK_",))
    process = await asyncio.create_subprocess_exec(
        str(launcher(tmp_path)), "-c", told, env=env, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(process.communicate(), 30)
    environ, own_session = json.loads(out)
    environ.pop("LC_CTYPE", None)  # Python's own
    assert environ == {"MINE": "yes", "SDK_ADDED": "1"}
    assert own_session
