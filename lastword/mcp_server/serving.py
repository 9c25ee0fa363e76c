"""An MCP server over a caller's tools: calls in, progress out, and what a client's cancel means."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any, Final, TypeAlias

import mcp_types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from lastword.core.errors import LastwordError
from lastword.core.host_tools import parse
from lastword.mcp_server.tools import TOOLS, Answer, CallerTools, schema_of, tool_named
from lastword.settings import McpPolicy

logger = logging.getLogger("lastword.mcp")

CallerOf: TypeAlias = Callable[[Any], str]
"""From a request's context to its caller's name."""
ToolsOf: TypeAlias = Callable[[str], Awaitable[CallerTools]]
"""A caller's tools. Raises LastwordError if there is no server to ask."""

_INSTRUCTIONS: Final = (
    "Delegate work that stands on its own to other agents, which go on whatever happens to you or to them. Write each"
    " prompt so that somebody who knows nothing of this conversation can do the task. A call that answers with 'Still"
    " running' is continued with `result`."
)
_GAVE_UP: Final = re.compile(r"tim(ed|e)?[ -]?out|deadline", re.IGNORECASE)
_LAST_CALLS: Final = 5.0
"""Seconds for the cancels of a client that has left to reach the server. Their outcome nobody waits for."""


class DelegationServer:
    """One MCP server for any number of connections."""

    def __init__(self, caller_of: CallerOf, tools_of: ToolsOf, policy: McpPolicy) -> None:
        self._caller_of = caller_of
        self._tools_of = tools_of
        self._policy = policy
        self._waiting: dict[tuple[Any, ...], tuple[CallerTools, list[str]]] = {}
        self._settling: set[asyncio.Task[None]] = set()
        self.server: Any = Server(
            "lastword",
            version=version("lastword"),
            instructions=_INSTRUCTIONS,
            on_list_tools=self._on_list_tools,
            on_call_tool=self._on_call_tool,
        )
        self.server.add_notification_handler(
            "notifications/cancelled", mcp_types.CancelledNotificationParams, self._on_cancelled
        )

    async def run_stdio(self) -> None:
        """Serve one client over stdin and stdout until it leaves. What it delegated goes on."""
        async with stdio_server() as (reader, writer):
            await self.server.run(reader, writer, self.server.create_initialization_options())
        await self.settled()

    async def settled(self) -> None:
        """Give what cancels have begun the time to reach the server."""
        if self._settling:
            await asyncio.wait(self._settling, timeout=_LAST_CALLS)

    async def _on_list_tools(self, context: Any, params: Any) -> mcp_types.ListToolsResult:
        return mcp_types.ListToolsResult(
            tools=[
                mcp_types.Tool(name=tool.name, description=tool.description, input_schema=schema_of(tool, self._policy))
                for tool in TOOLS
            ]
        )

    async def _on_call_tool(self, context: Any, params: mcp_types.CallToolRequestParams) -> mcp_types.CallToolResult:
        tool = tool_named(params.name)
        if tool is None:
            return _result(Answer(f"There is no tool {params.name!r}.", is_error=True))
        told = 0

        async def tell(text: str) -> None:
            nonlocal told
            told += 1
            await context.session.report_progress(told, None, text)

        key = self._key(context, context.request_id)
        try:
            arguments = parse(tool.arguments, params.arguments or {})
            tools = await self._tools_of(self._caller_of(context))
            started: list[str] = []
            self._waiting[key] = (tools, started)
            return _result(await tools.call(tool, arguments, tell, started.append))
        except (ValueError, LastwordError) as error:
            return _result(Answer(str(error), is_error=True))
        finally:
            # A moment later: the notification by which a call is cancelled is told after the call has ended.
            asyncio.get_running_loop().call_later(5, self._waiting.pop, key, None)

    async def _on_cancelled(self, context: Any, params: mcp_types.CancelledNotificationParams) -> None:
        waiting = self._waiting.pop(self._key(context, params.request_id), None)
        if waiting is None or is_time_limit(params.reason):
            return
        tools, started = waiting
        for id in started:
            task = asyncio.create_task(_settle(tools, id))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)

    def _key(self, context: Any, request_id: Any) -> tuple[Any, ...]:
        """What tells a call from others with the same number: its caller and its connection."""
        request = context.request
        session = request.headers.get("mcp-session-id") if request is not None else None
        return self._caller_of(context), session, request_id


def is_time_limit(reason: str | None) -> bool:
    """A client's own limit is no wish of its user's: what it gave up goes on, and is there for `result`."""
    return _GAVE_UP.search(reason or "") is not None


async def _settle(tools: CallerTools, id: str) -> None:
    with contextlib.suppress(LastwordError):
        await tools.settle(id)


def _result(answer: Answer) -> mcp_types.CallToolResult:
    # Some clients show a model the structured content alone, so it has the text, too, and only where nothing failed.
    structured = None if answer.is_error or not answer.facts else {**answer.facts, "text": answer.text}
    return mcp_types.CallToolResult(
        content=[mcp_types.TextContent(text=answer.text)],
        structured_content=structured,
        is_error=answer.is_error,
    )
