"""The tools of an in-process child: MCP servers, their processes owned by `child_process.py`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import anyio
import mcp_types
from mcp import Client
from pydantic_ai.tools import ToolDefinition

from lastword.backends.child_process import ChildProcess, CommandNotFound, child_environment
from lastword.backends.mcp_lines import mcp_lines
from lastword.core.contract import ChildTask, McpServer, ToolFilter
from lastword.core.errors import RequestRejected
from lastword.core.events import Block, text_block
from lastword.core.ports import ChildHost

START_GRACE: Final = 30.0
"""Seconds a server has to answer its handshake."""


@dataclass(frozen=True)
class ToolOutcome:
    """What a call gave back, as content blocks, and as text for the model."""

    content: list[Block]
    is_error: bool

    @property
    def text(self) -> str:
        return "\n".join(block["text"] if block["type"] == "text" else json.dumps(block) for block in self.content)


class ToolBox:
    """The tools a child may call, by name. A name that two servers have gets the server's as a prefix."""

    def __init__(self, host: ChildHost) -> None:
        self._host = host
        self.of_host = {tool.name for tool in host.tools}
        """The names of the host's own tools. A call of one that was cut is made again: it is the same call."""
        self.definitions: list[ToolDefinition] = []
        self._calls: dict[str, tuple[Client, str]] = {}

    @classmethod
    @asynccontextmanager
    async def open(cls, task: ChildTask, host: ChildHost) -> AsyncIterator[ToolBox]:
        """Start the task's servers; leaving ends them with their whole trees.

        Raises RequestRejected if a server cannot be started.
        """
        box = cls(host)
        permitted = task.tool_filter or ToolFilter()
        async with AsyncExitStack() as stack:
            for server in task.mcp_servers:
                try:
                    async with asyncio.timeout(START_GRACE):
                        client = await stack.enter_async_context(Client(_transport(server, task.cwd)))
                        listed = await _all_tools(client)
                except CommandNotFound as error:
                    raise RequestRejected(f"The MCP server {server.name!r} cannot be started. {error}") from None
                except Exception as error:
                    raise RequestRejected(
                        f"The MCP server {server.name!r} did not start ({_root(error)});"
                        " run its command by hand to see why."
                    ) from error
                for tool in listed:
                    box._add(server, client, tool, permitted)
            box.definitions += [
                ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=tool.schema)
                for tool in host.tools
            ]
            yield box

    async def call(self, name: str, arguments: dict[str, Any], *, call_id: str) -> ToolOutcome:
        """Run the tool. A failure is an outcome, never an exception."""
        if name in self.of_host:
            done = await self._host.call(name, arguments, call_id=call_id)
            return ToolOutcome(list(done.content), done.is_error)
        known = self._calls.get(name)
        if known is None:
            known_ones = ", ".join(sorted(self._calls)) or "none"
            return _error(f"There is no tool {name!r}. Tools: {known_ones}.")
        client, tool = known
        try:
            result = await client.call_tool(tool, arguments)
        except Exception as error:
            return _error(f"The tool {name!r} failed ({_root(error)}).")
        content = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
        if not content and result.structured_content is not None:
            content = [text_block(json.dumps(result.structured_content))]
        return ToolOutcome(content, bool(result.is_error))

    def _add(self, server: McpServer, client: Client, tool: mcp_types.Tool, permitted: ToolFilter) -> None:
        taken = tool.name in self._calls or tool.name in self.of_host
        name = tool.name if not taken else f"{server.name}_{tool.name}"
        if not permitted.permits(name):
            return
        self._calls[name] = (client, tool.name)
        self.definitions.append(
            ToolDefinition(name=name, description=tool.description, parameters_json_schema=tool.input_schema)
        )


async def _all_tools(client: Client) -> list[mcp_types.Tool]:
    page = await client.list_tools()
    tools = list(page.tools)
    while page.next_cursor:
        page = await client.list_tools(cursor=page.next_cursor)
        tools += page.tools
    return tools


def _error(text: str) -> ToolOutcome:
    return ToolOutcome([text_block(text)], is_error=True)


def _root(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return type(error).__name__


def _transport(server: McpServer, cwd: str | None) -> Any:
    return server.url if server.url is not None else _owned_stdio(server, cwd)


@asynccontextmanager
async def _owned_stdio(server: McpServer, cwd: str | None) -> AsyncIterator[tuple[Any, Any]]:
    """An MCP transport over a process that `child_process` owns: one JSON message a line."""
    assert server.command is not None
    env = child_environment(server.env, server.env_from_worker)
    process = await ChildProcess.spawn(server.command, server.args, env=env, cwd=cwd)
    try:
        async with mcp_lines(process.stdout, process.stdin) as streams:
            yield streams
    finally:
        # Not to be cut short by whatever ends the turn: it returns when the server's whole tree is gone.
        with anyio.CancelScope(shield=True):
            await process.close()
