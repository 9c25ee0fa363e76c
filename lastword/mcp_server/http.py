"""The MCP server over streamable HTTP: a token for each caller, loopback unless told otherwise."""

from __future__ import annotations

import hmac
import secrets
import socket
from collections.abc import Mapping
from typing import Any, Final

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import JSONResponse

from lastword.core.errors import ConfigurationError
from lastword.mcp_server.serving import DelegationServer

PATH: Final = "/mcp"
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_SHUTDOWN_GRACE: Final = 5
_CALLER: Final = "lastword.caller"


def tokens_of(text: str | None, default_caller: str) -> dict[str, str]:
    """Caller by token, of `TOKEN` or `NAME:TOKEN,NAME:TOKEN`; a new token if there is none.

    Raises ConfigurationError for one that is too short to be a secret, or named twice.
    """
    found: dict[str, str] = {}
    for part in (text or secrets.token_urlsafe(32)).split(","):
        name, colon, token = part.strip().rpartition(":")
        if len(token) < 16:
            raise ConfigurationError(
                "A token in LASTWORD_MCP_TOKEN has less than 16 characters; make one with"
                " `python -c 'import secrets; print(secrets.token_urlsafe(32))'`."
            )
        if token in found:
            raise ConfigurationError("LASTWORD_MCP_TOKEN gives two callers the same token; give each its own.")
        found[token] = name if colon else default_caller
    return found


def caller_of(context: Any) -> str:
    """The caller whose token came with the request."""
    name: str = context.request.scope[_CALLER]
    return name


class TokenRequired:
    """Lets only requests through that come with a caller's token, and notes whose it is."""

    def __init__(self, app: Any, tokens: Mapping[str, str]) -> None:
        self._app = app
        self._tokens = {token.encode(): name for token, name in tokens.items()}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"authorization", b"")
        kind, _, token = given.partition(b" ")
        name = self._known(token.strip()) if kind.lower() == b"bearer" else None
        if name is None:
            answer = JSONResponse(
                {"error": "unauthorized", "message": "Send the server's token: Authorization: Bearer TOKEN."},
                status_code=401,
                headers={"WWW-Authenticate": 'Bearer realm="lastword"'},
            )
            await answer(scope, receive, send)
            return
        await self._app({**scope, _CALLER: name}, receive, send)

    def _known(self, token: bytes) -> str | None:
        # All are compared, so that the time tells nothing.
        found = [name for known, name in self._tokens.items() if hmac.compare_digest(known, token)]
        return found[0] if found else None


def http_app(server: DelegationServer, tokens: Mapping[str, str], host: str, port: int, also: list[str]) -> Any:
    """The ASGI application. `also` are further values of `Host` by which it may be called."""
    names = [*LOOPBACK[:2], "[::1]"] if host in LOOPBACK else [host]
    hosts = [*(f"{name}:{port}" for name in names), *also]
    security = TransportSecuritySettings(
        allowed_hosts=hosts, allowed_origins=[f"{scheme}://{name}" for name in hosts for scheme in ("http", "https")]
    )
    app = server.server.streamable_http_app(streamable_http_path=PATH, host=host, transport_security=security)
    return TokenRequired(app, tokens)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises ConfigurationError if that cannot be."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ConfigurationError(
            f"Cannot listen on {host}:{port}: {error.strerror}. Choose another --port or --host."
        ) from None


async def run_http(app: Any, listening: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT. What callers delegated goes on."""
    # Open streams of clients would hold it up for ever.
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=_SHUTDOWN_GRACE)
    await uvicorn.Server(config).serve(sockets=[listening])
