"""What a running `lastword up` says of itself, in its data directory."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
from pydantic import BaseModel, ValidationError

_FILE = "up.json"


class UpState(BaseModel):
    """`pid` and `create_time` (seconds since the epoch) together name the process; a pid alone may be another's."""

    pid: int
    create_time: float
    address: str
    ui_url: str
    server_pid: int
    worker_pid: int | None = None
    model_url: str | None = None


def write_state(data_dir: Path, state: UpState) -> None:
    """Replace the file in one step: a reader sees the old state or the new one."""
    temporary = data_dir / f"{_FILE}.{os.getpid()}"
    temporary.write_text(state.model_dump_json())
    temporary.chmod(0o600)
    temporary.replace(data_dir / _FILE)


def read_state(data_dir: Path) -> UpState | None:
    """The state of the `up` that runs on this data directory; None if none does."""
    try:
        state = UpState.model_validate_json((data_dir / _FILE).read_text())
    except (OSError, ValidationError):
        return None
    return state if process_of(state) is not None else None


def remove_state(data_dir: Path) -> None:
    (data_dir / _FILE).unlink(missing_ok=True)


def process_of(state: UpState) -> psutil.Process | None:
    """The process that wrote the state, if it still runs."""
    try:
        process = psutil.Process(state.pid)
        alive = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        return process if alive and abs(process.create_time() - state.create_time) < 1 else None
    except psutil.Error:
        return None
