"""What the MCP face adds to a delegation, and a hundred calls at once through one server: a real process over stdio."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from statistics import median

from mcp import Client, StdioServerParameters
from temporalio.testing import WorkflowEnvironment

from benchmarks.house import latencies, rate, timed
from lastword.backends.scripted import ScriptedBackend
from lastword.client import DelegationClient
from lastword.core.contract import DelegationRequest
from lastword.sessions import open_store
from lastword.worker import open_worker

ROUNDS = 4
AT_ONCE = 100


async def mcp_face(env: WorkflowEnvironment) -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "settings.toml"
        settings.write_text('[mcp]\nbackends = ["scripted"]\n')
        store = open_store(str(Path(folder) / "sessions"))
        surroundings = {
            **os.environ,
            "TEMPORAL_ADDRESS": env.client.service_client.config.target_host,
            "LASTWORD_DATA_DIR": folder,
            "LASTWORD_SETTINGS": str(settings),
        }
        server = StdioServerParameters(command=sys.executable, args=["-m", "lastword.cli", "mcp"], env=surroundings)
        direct = DelegationClient(env.client, store=store)
        backends = {"scripted": ScriptedBackend()}
        async with open_worker(env.client, backends=backends, store=store, observers=[]), Client(server) as client:

            async def by_mcp() -> None:
                done = await client.call_tool("delegate", {"prompt": "hello"})
                assert not done.is_error, done

            async def by_client() -> None:
                await direct.run(DelegationRequest(prompt="hello", backend="scripted"))

            await asyncio.gather(*(rate(one, count=10, at_once=5) for one in (by_mcp, by_client)))  # warm
            pairs = []
            for _ in range(ROUNDS):
                plain = median(await latencies(by_client, count=10))
                pairs.append((median(await latencies(by_mcp, count=10)), plain))
            with timed() as all_by_mcp:
                await asyncio.gather(*(by_mcp() for _ in range(AT_ONCE)))
            with timed() as all_direct:
                await asyncio.gather(*(by_client() for _ in range(AT_ONCE)))
    added = median(a - b for a, b in pairs) * 1000
    ratio = median(a / b for a, b in pairs)
    print(f"mcp          adds {added:.0f} ms to a delegation: ratio {ratio:.2f}")
    through, without = AT_ONCE / all_by_mcp(), AT_ONCE / all_direct()
    print(f"mcp          {AT_ONCE} calls at once: {through:.1f}/s, {without:.1f}/s directly: {through / without:.2f}")
