"""How the MCP server's calls end before their children do, and how it ends itself."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path

import pytest

from lastword.mcp_server.serving import is_time_limit
from tests.integration.conftest import until_exists
from tests.integration.test_cli import Terminal, terminal
from tests.integration.test_mcp_server import script, settings, stdio, text

__all__ = ["settings", "terminal"]


async def test_a_cancel_of_a_call_stops_what_the_call_has_set_to_work(
    terminal: Terminal, settings: Path, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    hanging = script({"delta": "half"}, {"touch": str(here)}, {"fault": "hang"})
    async with stdio(terminal, settings, "--wait", "10") as client:
        child = await client.call_tool("delegate", {"prompt": "one", "continuable": True})
        id = child.structured_content["id"]
        asking = asyncio.create_task(client.call_tool("ask", {"id": id, "prompt": hanging}))
        await until_exists(here)
        asking.cancel()
        await asyncio.wait([asking])
        answer = await client.call_tool("result", {"id": id})
        # A call that has only begun to start its children.
        many = asyncio.create_task(client.call_tool("delegate_many", {"tasks": [{"prompt": hanging}] * 8}))
        # Wherever in its beginning this comes, nothing may be left running.
        await asyncio.sleep(0.02)
        many.cancel()
        await asyncio.wait([many])
        async with asyncio.timeout(30):
            while (listed := await client.call_tool("list", {"running": True})).structured_content["ids"] != [id]:
                await asyncio.sleep(0.2)
        await client.call_tool("cancel", {"id": id})
    assert text(answer).endswith("half")
    assert text(answer).startswith("The child was cancelled")
    assert f"{id} idle" in text(listed)


async def test_without_a_worker_no_call_outlasts_its_client_and_the_server_leaves(
    terminal: Terminal, settings: Path, tmp_path: Path
) -> None:
    idle = Terminal(terminal.env["TEMPORAL_ADDRESS"], tmp_path)
    async with asyncio.timeout(60):
        async with stdio(idle, settings, "--wait", "2") as client:
            started = await client.call_tool("delegate", {"prompt": "x", "background": True})
            stopped = await client.call_tool("cancel", {"id": started.structured_content["id"]})
            waiting = asyncio.create_task(client.call_tool("delegate", {"prompt": "y"}))
            while len((await client.call_tool("list", {"running": True})).structured_content["ids"]) < 2:
                await asyncio.sleep(0.1)
            waiting.cancel()
            await asyncio.wait([waiting])
    assert text(stopped).startswith("Asked to stop, and not ended yet")


async def test_ctrl_c_ends_the_server_and_a_port_that_is_taken_is_told(terminal: Terminal, settings: Path) -> None:
    process = await terminal.start("mcp", LASTWORD_SETTINGS=str(settings))
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
    async with asyncio.timeout(30):
        await process.stdout.readline()
        process.send_signal(signal.SIGINT)
        await process.wait()
    assert process.returncode == 130
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = await terminal.run("mcp", "--http", "--port", port)
    assert refused.code == 2
    assert f"Cannot listen on 127.0.0.1:{port}" in refused.err
    assert "serving" not in refused.err


@pytest.mark.parametrize(
    ("reason", "limit"),
    [
        ("Request timed out", True),
        ("MCP error -32001: Request timeout", True),
        ("context deadline exceeded", True),
        ("the user pressed escape", False),
        ("AbortError: aborted", False),
        (None, False),
    ],
)
def test_a_time_limit_is_told_from_a_wish(reason: str | None, limit: bool) -> None:
    assert is_time_limit(reason) is limit
