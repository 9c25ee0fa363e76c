"""`lastword mcp`: the tools of delegation for agents that speak MCP."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import shutil
import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lastword.cli.connection import DataDir, connect
from lastword.cli.errors import COMPLETED
from lastword.cli.rendering import note
from lastword.core.errors import ConfigurationError, RequestInvalid
from lastword.process_exit import leave

if TYPE_CHECKING:
    from lastword.client import DelegationClient
    from lastword.mcp_server.serving import CallerOf, DelegationServer

_TOKENS = "LASTWORD_MCP_TOKEN"

app = typer.Typer(invoke_without_command=True, help="Delegation as MCP tools, over stdio or HTTP.")


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="mcp")


@app.callback()
def serve(
    context: typer.Context,
    http: Annotated[bool, typer.Option("--http", help="Serve streamable HTTP instead of stdio.")] = False,
    host: Annotated[str, typer.Option("--host", help="Of --http; the loopback unless told otherwise.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Of --http.")] = 8765,
    allow_host: Annotated[
        list[str] | None, typer.Option("--allow-host", help="Of --http: HOST:PORT by which it may be called, too.")
    ] = None,
    caller: Annotated[
        str | None, typer.Option("--caller", help="Whose children these are; the project directory without.")
    ] = None,
    wait: Annotated[
        float, typer.Option("--wait", min=1, max=3600, help="Seconds until a call answers with what there is so far.")
    ] = 50,
    data_dir: DataDir = None,
) -> int:
    """Serve the tools until the client leaves. What was delegated goes on."""
    if context.invoked_subcommand is not None:
        return COMPLETED
    if importlib.util.find_spec("mcp") is None:
        raise ConfigurationError("mcp is not installed: pip install 'lastword[mcp]'.")
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    name = caller or os.getcwd()
    if http:
        return asyncio.run(_serve_http(name, host, port, allow_host or [], wait, data_dir))
    return asyncio.run(_serve_stdio(_server(data_dir, wait, lambda context: name)))


class AgentName(StrEnum):
    claude = "claude"
    codex = "codex"
    opencode = "opencode"
    gemini = "gemini"


Chosen = Annotated[AgentName, typer.Argument(help="claude, codex, opencode or gemini.", metavar="AGENT")]
Yes = Annotated[bool, typer.Option("--yes", help="Make the change without asking.")]


@app.command()
def install(agent: Chosen, yes: Yes = False) -> int:
    """Register the server with an agent. The change is shown before it is made."""
    return _change(agent, yes, undo=False)


@app.command()
def uninstall(agent: Chosen, yes: Yes = False) -> int:
    """Take it out of the agent's configuration again."""
    return _change(agent, yes, undo=True)


def _change(agent: AgentName, yes: bool, *, undo: bool) -> int:
    from lastword.mcp_server.installing import change_for, here

    program = shutil.which("lastword") or str(Path(sys.executable).with_name("lastword"))
    change = change_for(agent.value, [program, "mcp"], project=here(), environ=os.environ, undo=undo)
    if change.is_empty:
        note(f"{change.path}: nothing to change")
        return COMPLETED
    print(change.diff, flush=True)
    if not yes and not typer.confirm(f"Change {change.path}?", err=True):
        note("nothing was changed")
        return COMPLETED
    change.make()
    other = "install" if undo else "uninstall"
    note(f"changed {change.path}; undo it with: lastword mcp {other} {agent.value}")
    return COMPLETED


async def _serve_stdio(server: DelegationServer) -> int:
    # The thread that reads stdin cannot be cancelled.
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, leave, 128 + number)
    await server.run_stdio()
    return COMPLETED


async def _serve_http(name: str, host: str, port: int, also: list[str], wait: float, data_dir: Path | None) -> int:
    from lastword.mcp_server.http import LOOPBACK, PATH, caller_of, http_app, listen, run_http, tokens_of

    tokens = tokens_of(os.environ.get(_TOKENS), name)
    if host not in LOOPBACK and not os.environ.get(_TOKENS):
        raise RequestInvalid(f"Beyond the loopback the token has to be yours: set {_TOKENS}.")
    server = _server(data_dir, wait, caller_of)
    listening = listen(host, port)
    note(f"serving http://{host}:{port}{PATH}")
    if not os.environ.get(_TOKENS):
        note(f"token (set {_TOKENS} to choose it): {next(iter(tokens))}")
    await run_http(http_app(server, tokens, host, port, also), listening)
    await server.settled()
    return COMPLETED


def _server(data_dir: Path | None, wait: float, caller_of: CallerOf) -> DelegationServer:
    from lastword.mcp_server.calling import Caller
    from lastword.mcp_server.serving import DelegationServer
    from lastword.mcp_server.tools import CallerTools
    from lastword.settings import load_settings

    policy = load_settings(data_dir=data_dir).mcp
    connected: list[DelegationClient] = []

    async def tools_of(name: str) -> CallerTools:
        # At the first call: an agent starts its servers before anybody has thought of starting ours.
        if not connected:
            connected.append(await connect(data_dir))
        return CallerTools(connected[0], policy, Caller(name, os.getcwd()), wait=wait)

    return DelegationServer(caller_of, tools_of, policy)
