"""Processes that used the SDK end with the code they mean to, every time."""

from __future__ import annotations

import asyncio

from temporalio.testing import WorkflowEnvironment

from tests.integration.test_cli import Terminal, terminal

__all__ = ["terminal"]

RUNS = 50


async def test_fifty_clients_end_with_their_own_code(terminal: Terminal, dev_server: WorkflowEnvironment) -> None:
    gate = asyncio.Semaphore(2)

    async def one(n: int) -> int:
        async with gate:
            return (await terminal.run("result", "no-such-id")).code if n % 2 else (await terminal.run("list")).code

    codes = await asyncio.gather(*(one(n) for n in range(RUNS)))
    assert codes == [2 if n % 2 else 0 for n in range(RUNS)]
