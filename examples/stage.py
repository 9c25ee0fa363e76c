"""What the demos play on: a `lastword up` of their own, on a data directory of their own, gone when they end."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn

from temporalio.client import Client

from lastword.client import DelegationClient
from lastword.converter import data_converter
from lastword.core.errors import LastwordError
from lastword.embedded.state import UpState, read_state
from lastword.embedded.up import detach, down
from lastword.process_exit import leave
from lastword.sessions import open_store

DATA = Path(".demo").absolute()


def state() -> UpState:
    """Of the `up` that the demo started."""
    found = read_state(DATA)
    assert found is not None, "lastword up is running"
    return found


def play(demo: Callable[[DelegationClient], Awaitable[int]], *options: str) -> NoReturn:
    """Start `lastword up` with the options, run the demo with its client, end everything, and leave with its code."""
    for variable in [name for name in os.environ if name.startswith(("TEMPORAL_", "LASTWORD_"))]:
        del os.environ[variable]
    down(DATA)
    shutil.rmtree(DATA, ignore_errors=True)
    ports = ["--port", str(_free_port()), "--ui-port", str(_free_port())]
    code = 1
    try:
        detach(DATA, [*ports, "--data-dir", str(DATA), *options])
        code = asyncio.run(_with_client(demo))
    except LastwordError as error:
        print(f"error: {error}", file=sys.stderr)
    finally:
        down(DATA)
    leave(code)


async def _with_client(demo: Callable[[DelegationClient], Awaitable[int]]) -> int:
    client = await Client.connect(state().address, data_converter=data_converter)
    return await demo(DelegationClient(client, store=open_store(str(DATA / "sessions"))))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
