"""MCP's stdio transport over any pair of streams: one JSON message a line."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError


@asynccontextmanager
async def mcp_lines(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> AsyncIterator[tuple[Any, Any]]:
    """What a client or a server of the `mcp` package reads from and writes to. Closing the streams is the caller's."""
    incoming, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    sent, outgoing = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        async with incoming:
            while line := await reader.readline():
                if line.strip():
                    await incoming.send(_parsed(line))

    async def write() -> None:
        async with outgoing:
            async for message in outgoing:
                data = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                writer.write(data.encode() + b"\n")
                await writer.drain()

    tasks = [asyncio.create_task(_quietly(read())), asyncio.create_task(_quietly(write()))]
    try:
        yield received, sent
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for stream in (incoming, received, sent, outgoing):
            stream.close()


def _parsed(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except (ValidationError, ValueError) as error:
        return error


async def _quietly(work: Any) -> None:
    # The peer closing its end is how a conversation ends; the session sees its stream close.
    with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError, ValueError):
        await work
