"""JSON-RPC 2.0 with a child over its stdin and stdout, one object a line: what ACP and DeepSeek Harness both speak.

Everything arrives in the order of the wire: a notification is handled before the response that follows it is seen, and
a handler that waits makes the child wait. Nothing of what a child writes is logged here.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from lastword.backends.child_process import ChildProcess

logger = logging.getLogger("lastword.child")

METHOD_NOT_FOUND = -32601
INTERNAL_ERROR = -32603


class RpcError(Exception):
    """The child answered with an error. Of its words only the code is kept: they may hold anything."""

    def __init__(self, code: int) -> None:
        super().__init__(f"JSON-RPC error {code}")
        self.code = code


class ConnectionLost(Exception):
    """The child's stdout ended, or its stdin takes nothing any more."""


class ProtocolViolated(ConnectionLost):
    """The child wrote a line longer than the limit, so what it said is not known."""


class JsonRpcPeer:
    """Our end of the conversation. `run` reads until the child is gone; requests may be made while it runs."""

    def __init__(
        self,
        process: ChildProcess,
        *,
        on_notification: Callable[[str, Mapping[str, Any]], Awaitable[None]],
        on_request: Callable[[str, Mapping[str, Any]], Awaitable[Any]] | None = None,
    ) -> None:
        self._process = process
        self._on_notification = on_notification
        self._on_request = on_request
        self._numbers = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._writing = asyncio.Lock()
        self._reader = asyncio.create_task(self._read())
        self._lost: ConnectionLost | None = None
        self.skipped = 0
        """Lines that were no JSON-RPC message."""

    async def close(self) -> None:
        """Stop reading and answering. The process is somebody else's to end."""
        for task in (self._reader, *self._answering):
            task.cancel()
        await asyncio.gather(self._reader, *self._answering, return_exceptions=True)
        self._lose(ConnectionLost())

    async def ended(self) -> None:
        """Returns when nothing more can be read."""
        await asyncio.wait([self._reader])

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        """The child's result. Raises RpcError, ConnectionLost."""
        if self._lost is not None:
            raise self._lost
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[number] = future
        try:
            await self._send({"id": number, "method": method, "params": dict(params)})
            return await future
        finally:
            self._pending.pop(number, None)

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Raises ConnectionLost."""
        await self._send({"method": method, "params": dict(params)})

    async def _send(self, message: dict[str, Any]) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n"
        try:
            async with self._writing:
                self._process.stdin.write(line)
                await self._process.stdin.drain()
        except (OSError, RuntimeError) as error:
            raise ConnectionLost from error

    async def _read(self) -> None:
        lost = ConnectionLost()
        try:
            while line := await self._process.stdout.readline():
                await self._take(line)
        except ValueError:
            lost = ProtocolViolated()
        except OSError:
            pass
        finally:
            self._lose(lost)

    async def _take(self, line: bytes) -> None:
        try:
            # A child that writes broken UTF-8 is still understood: the rest of its words is worth more.
            message = json.loads(line.decode(errors="replace"))
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            if line.strip():
                self.skipped += 1
            return
        method, number = message.get("method"), message.get("id")
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        if isinstance(method, str) and number is not None:
            task = asyncio.create_task(self._answer(number, method, params))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        elif isinstance(method, str):
            await self._on_notification(method, params)
        elif isinstance(number, int) and (future := self._pending.get(number)) is not None and not future.done():
            _settle(future, message)
        else:
            self.skipped += 1

    async def _answer(self, number: Any, method: str, params: Mapping[str, Any]) -> None:
        reply: dict[str, Any] = {"id": number}
        try:
            if self._on_request is None:
                raise RpcError(METHOD_NOT_FOUND)
            reply["result"] = await self._on_request(method, params)
        except RpcError as error:
            reply["error"] = {"code": error.code, "message": str(error)}
        except Exception as error:
            logger.error("answering a child's %s failed: %s", method, type(error).__name__)
            reply["error"] = {"code": INTERNAL_ERROR, "message": "internal error"}
        try:
            await self._send(reply)
        except ConnectionLost:
            return

    def _lose(self, why: ConnectionLost) -> None:
        self._lost = self._lost or why
        for future in self._pending.values():
            if not future.done():
                future.set_exception(self._lost)
                future.exception()  # whoever asked may be gone


def _settle(future: asyncio.Future[Any], message: Mapping[str, Any]) -> None:
    error = message.get("error")
    if error is None:
        future.set_result(message.get("result"))
        return
    code = error.get("code") if isinstance(error, dict) else None
    future.set_exception(RpcError(code if isinstance(code, int) else INTERNAL_ERROR))
