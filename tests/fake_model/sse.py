"""Server-sent events to one client, and the end of them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web


class Gone(Exception):
    """The client left, or was dropped."""


class EventStream:
    """Writes events at a small pace, so that a client sees them one by one."""

    def __init__(self, request: web.Request, response: web.StreamResponse, pace: float) -> None:
        self._request = request
        self._response = response
        self._pace = pace

    async def send(self, data: Any, event: str | None = None) -> None:
        text = data if isinstance(data, str) else json.dumps(data)
        head = f"event: {event}\n" if event else ""
        await self._response.write(f"{head}data: {text}\n\n".encode())
        await asyncio.sleep(self._pace)

    def drop(self) -> None:
        assert self._request.transport is not None
        self._request.transport.abort()
        raise Gone
