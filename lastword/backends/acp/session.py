"""From a command to a session that takes a prompt: initialize, new or resume or load, mode and model."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from acp import PROTOCOL_VERSION
from acp.schema import (
    AgentCapabilities,
    ClientCapabilities,
    EnvVariable,
    FileSystemCapabilities,
    HttpMcpServer,
    Implementation,
    InitializeRequest,
    InitializeResponse,
    LoadSessionRequest,
    McpServerStdio,
    NewSessionRequest,
    ResumeSessionRequest,
    SetSessionModeRequest,
)
from pydantic import BaseModel, ValidationError

from lastword.backends.acp.agents import AcpAgent
from lastword.backends.child_process import child_environment
from lastword.backends.json_rpc import INTERNAL_ERROR, JsonRpcPeer, ProtocolViolated, RpcError
from lastword.core.contract import ChildTask, McpServer, SessionRef
from lastword.core.errors import RequestRejected, ResumeRefused

_BLOCK_NEEDS = {"image": "image", "audio": "audio", "resource": "embedded_context"}
_SILENT_CLIENT = ClientCapabilities(
    fs=FileSystemCapabilities(read_text_file=False, write_text_file=False), terminal=False
)


@dataclass
class AcpSession:
    """A session that is open."""

    id: str
    resumable: bool
    cwd: str
    answer: Mapping[str, Any] = field(default_factory=dict)


async def open_session(
    peer: JsonRpcPeer, agent: AcpAgent, backend: str, task: ChildTask, resume: SessionRef | None
) -> AcpSession:
    """Shake hands and open the session.

    Raises RequestRejected if the agent cannot do what the task asks, ResumeRefused if the session to resume is gone,
    TimeoutError, RpcError or ConnectionLost if the agent fails.
    """
    wait = agent.handshake_timeout
    hello = InitializeRequest(
        protocol_version=PROTOCOL_VERSION,
        client_capabilities=_SILENT_CLIENT,
        client_info=Implementation(name="lastword", version=version("lastword")),
    )
    able = _able(await _ask(peer, "initialize", hello, wait))
    _check_prompt(backend, task, able.prompt_capabilities if able else None)
    sessions = able.session_capabilities if able else None
    can_resume = sessions is not None and sessions.resume is not None
    can_load = bool(able and able.load_session)
    cwd = _directory(task)
    servers = [_mcp_server(server) for server in task.mcp_servers]
    takes_urls = able is not None and able.mcp_capabilities is not None and able.mcp_capabilities.http
    if not takes_urls and any(server.url for server in task.mcp_servers):
        raise RequestRejected(f"The agent of {backend!r} takes MCP servers by command only, not by URL.")
    if resume is None:
        answer = await _ask(peer, "session/new", NewSessionRequest(cwd=cwd, mcp_servers=servers), wait)
        id = answer.get("sessionId")
        if not isinstance(id, str) or not id:
            raise RpcError(INTERNAL_ERROR)
    else:
        id, cwd = resume.id, resume.data.get("cwd", cwd)
        if can_resume:
            again: BaseModel = ResumeSessionRequest(session_id=id, cwd=cwd, mcp_servers=servers)
        elif can_load:
            again = LoadSessionRequest(session_id=id, cwd=cwd, mcp_servers=servers)
        else:
            raise ResumeRefused(f"The agent of {backend!r} cannot take up a session any more.")
        try:
            answer = await _ask(peer, "session/resume" if can_resume else "session/load", again, wait)
        except RpcError as error:
            raise ResumeRefused(f"The agent of {backend!r} does not know its session any more.") from error
    session = AcpSession(id, can_resume or can_load, cwd, answer)
    await _set_mode(peer, agent, backend, session)
    if task.model is not None:
        await _set_model(peer, backend, session, task.model, wait)
    return session


def _able(answer: dict[str, Any]) -> AgentCapabilities | None:
    try:
        return InitializeResponse.model_validate(answer).agent_capabilities
    except ValidationError:
        raise ProtocolViolated from None


def _directory(task: ChildTask) -> str:
    return os.path.abspath(task.cwd or os.getcwd())


async def _ask(peer: JsonRpcPeer, method: str, request: BaseModel, wait: float) -> dict[str, Any]:
    params = request.model_dump(mode="json", by_alias=True, exclude_none=True)
    return await _ask_raw(peer, method, params, wait)


async def _ask_raw(peer: JsonRpcPeer, method: str, params: Mapping[str, Any], wait: float) -> dict[str, Any]:
    async with asyncio.timeout(wait):
        answer = await peer.request(method, params)
    return answer if isinstance(answer, dict) else {}


def _check_prompt(backend: str, task: ChildTask, able: Any) -> None:
    for block in task.prompt_blocks:
        need = _BLOCK_NEEDS.get(str(block.get("type")))
        if need is not None and not getattr(able, need, False):
            raise RequestRejected(
                f"The agent of {backend!r} does not take {block.get('type')} blocks in a prompt; put it into words, or"
                " choose a backend that does."
            )


def _mcp_server(server: McpServer) -> McpServerStdio | HttpMcpServer:
    if server.url is not None:
        return HttpMcpServer(type="http", name=server.name, url=server.url, headers=[])
    # The agent starts it; what it may have of the worker's environment is named here, as for every child.
    env = child_environment(server.env, server.env_from_worker)
    return McpServerStdio(
        name=server.name,
        command=str(server.command),
        args=server.args,
        env=[EnvVariable(name=name, value=value) for name, value in env.items()],
    )


async def _set_mode(peer: JsonRpcPeer, agent: AcpAgent, backend: str, session: AcpSession) -> None:
    modes = session.answer.get("modes")
    if not agent.mode or not isinstance(modes, Mapping) or modes.get("currentModeId") == agent.mode:
        return
    offered = [mode.get("id") for mode in modes.get("availableModes", []) if isinstance(mode, Mapping)]
    if agent.mode not in offered:
        # In any other one it may approve of its own doings.
        raise RequestRejected(
            f"The agent of {backend!r} has no mode {agent.mode!r}; it has: {', '.join(map(str, offered))}."
            f" Set `mode` of its entry in the settings file."
        )
    await _ask(
        peer,
        "session/set_mode",
        SetSessionModeRequest(session_id=session.id, mode_id=agent.mode),
        agent.handshake_timeout,
    )


async def _set_model(peer: JsonRpcPeer, backend: str, session: AcpSession, model: str, wait: float) -> None:
    """By the session's `model` option, or the older list of models; which of the two an agent has is up to it."""
    for option in session.answer.get("configOptions") or []:
        if isinstance(option, Mapping) and option.get("category") == "model":
            values = _values(option.get("options"))
            if model not in values:
                raise _no_such_model(backend, model, values)
            params = {"sessionId": session.id, "configId": option.get("id"), "value": model}
            await _ask_raw(peer, "session/set_config_option", params, wait)
            return
    models = session.answer.get("models")
    values = [m.get("modelId") for m in models.get("availableModels", [])] if isinstance(models, Mapping) else []
    if model not in values:
        raise _no_such_model(backend, model, values)
    await _ask_raw(peer, "session/set_model", {"sessionId": session.id, "modelId": model}, wait)


def _no_such_model(backend: str, model: str, values: list[Any]) -> RequestRejected:
    if not values:
        return RequestRejected(
            f"The agent of {backend!r} lets nobody choose its model; leave --model out, or set it in the agent's own"
            " configuration."
        )
    some = ", ".join(map(str, values[:20])) + (", ..." if len(values) > 20 else "")
    return RequestRejected(f"The agent of {backend!r} has no model {model!r}; it has: {some}.")


def _values(options: object) -> list[Any]:
    found: list[Any] = []
    for option in options if isinstance(options, list) else []:
        if isinstance(option, Mapping):
            found += _values(option["options"]) if "options" in option else [option.get("value")]
    return found
