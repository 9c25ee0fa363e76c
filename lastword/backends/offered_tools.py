"""The host's tools for an agent that is a program of its own, as an MCP server that it starts.

The server is in the worker; what the agent starts only relays (`tool_relay`). One socket and one token a child, made
when the child is opened and gone with it: so a call comes from that child and from no other, and neither spec nor
history holds anything by which another could make it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import importlib.util
import json
import logging
import secrets
import shutil
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from lastword.backends import tool_relay
from lastword.core.contract import ChildTask, McpServer, ToolResult
from lastword.core.ports import ChildHost

logger = logging.getLogger("lastword.child")

SERVER_NAME: Final = "lastword"
PATIENCE: Final = 50.0
"""Seconds that a call may wait for a child: clients are known to give a call up after 60."""
_ALWAYS_SHOWN: Final = {"anthropic/alwaysLoad": True}
"""Claude Code otherwise hides a server's tools behind a search (code.claude.com/docs, MCP)."""
_LINE_LIMIT: Final = 4 * 1024 * 1024
_GREETING_GRACE: Final = 10.0
_PROGRESS_EVERY: Final = 5.0


def missing_for_tools(task: ChildTask | None, install: str) -> list[str]:
    """What this machine lacks to offer the host's tools to the task's child."""
    wanted = task is not None and (task.delegation is not None or task.reports)
    if wanted and importlib.util.find_spec("mcp") is None:
        return [f"mcp is not installed where the worker runs, by which a child delegates: {install}."]
    return []


@asynccontextmanager
async def offered_tools(host: ChildHost) -> AsyncIterator[list[McpServer]]:
    """The MCP server by which a child has its host's tools; none if it has none. It answers while this is open."""
    if not host.tools:
        yield []
        return
    await asyncio.to_thread(importlib.import_module, "mcp.server.lowlevel")
    token = secrets.token_urlsafe(32)
    # Nobody else may so much as connect. Short, for a socket's path may have about a hundred bytes.
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="lw-"))
    path = folder / "tools"
    offer = _Offer(host, token)
    try:
        server = await asyncio.start_unix_server(offer.on_connect, path, limit=_LINE_LIMIT)
        try:
            yield [
                McpServer(
                    name=SERVER_NAME,
                    command=sys.executable,
                    args=["-I", tool_relay.__file__],
                    env={tool_relay.SOCKET: str(path), tool_relay.TOKEN: token},
                )
            ]
        finally:
            server.close()
            await offer.close()
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def names_at_claude(host: ChildHost) -> set[str]:
    """What Claude Code calls the host's tools."""
    return {f"mcp__{SERVER_NAME}__{tool.name}" for tool in host.tools}


class _Offer:
    """One child's side of its host."""

    def __init__(self, host: ChildHost, token: str) -> None:
        self._host = host
        self._token = token
        self._said: Counter[str] = Counter()
        self._serving: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        for task in self._serving:
            task.cancel()
        if self._serving:
            await asyncio.wait(self._serving)

    async def on_connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            if await self._is_known(reader):
                await self._serve(reader, writer)
            else:
                logger.warning("a connection to a child's tools had no right token")
        except (asyncio.CancelledError, OSError):
            pass
        except Exception:
            logger.warning("serving a child's tools failed", exc_info=True)
        finally:
            self._serving.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _is_known(self, reader: asyncio.StreamReader) -> bool:
        try:
            async with asyncio.timeout(_GREETING_GRACE):
                told = await reader.readline()
        except (TimeoutError, ValueError):
            return False
        return hmac.compare_digest(told.strip(), self._token.encode())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        import mcp_types
        from mcp.server.lowlevel import Server

        from lastword.backends.mcp_lines import mcp_lines

        async def on_list_tools(context: Any, params: Any) -> mcp_types.ListToolsResult:
            tools = [
                mcp_types.Tool(
                    name=tool.name, description=tool.description, input_schema=tool.schema, _meta=_ALWAYS_SHOWN
                )
                for tool in self._host.tools
            ]
            return mcp_types.ListToolsResult(tools=tools)

        async def on_call_tool(context: Any, params: mcp_types.CallToolRequestParams) -> mcp_types.CallToolResult:
            arguments = params.arguments or {}
            alive = asyncio.create_task(_show_life(context))
            try:
                done = await self._host.call(
                    params.name, arguments, call_id=self._call_id(params.name, arguments), patience=PATIENCE
                )
            finally:
                alive.cancel()
            return mcp_types.CallToolResult(
                content=[mcp_types.TextContent(text=text) for text in _texts(done)], is_error=done.is_error
            )

        server: Any = Server(SERVER_NAME, on_list_tools=on_list_tools, on_call_tool=on_call_tool)
        async with mcp_lines(reader, writer) as (received, sent):
            await server.run(received, sent, server.create_initialization_options())

    def _call_id(self, name: str, arguments: dict[str, Any]) -> str:
        """The same for the same call of another attempt: agents number their calls anew when they are taken up."""
        if not any(tool.name == name and tool.acts for tool in self._host.tools):
            return uuid.uuid4().hex
        text = json.dumps([name, arguments], sort_keys=True, default=str)
        fingerprint = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]
        self._said[fingerprint] += 1
        return f"{fingerprint}-{self._said[fingerprint]}"


async def _show_life(context: Any) -> None:
    """A client that is told of progress does not give the call up."""
    passed = 0.0
    with contextlib.suppress(Exception):
        while True:
            await asyncio.sleep(_PROGRESS_EVERY)
            passed += _PROGRESS_EVERY
            await context.session.report_progress(passed)


def _texts(done: ToolResult) -> list[str]:
    return [
        block["text"] if block.get("type") == "text" else json.dumps(block, ensure_ascii=False)
        for block in done.content
    ]
