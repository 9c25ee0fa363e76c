"""Children that speak the Agent Client Protocol (agentclientprotocol.com): a program each, over stdin and stdout."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from lastword.backends.acp.agents import PRESETS, AcpAgent
from lastword.backends.acp.version import npm_version, told_version
from lastword.backends.agent_program import unmet
from lastword.backends.child_process import ChildProcess, child_environment
from lastword.backends.json_rpc import ConnectionLost, JsonRpcPeer, RpcError
from lastword.backends.offered_tools import missing_for_tools, offered_tools
from lastword.backends.stillborn import stillborn
from lastword.core.contract import Capabilities, ChildTask, TurnSpec
from lastword.core.errors import RequestRejected
from lastword.core.permissions import PermissionRequest
from lastword.core.ports import ChildHost, ChildTurn, Earlier, Resume
from lastword.core.taking_up import session_to_take_up

if TYPE_CHECKING:
    from lastword.backends.acp.turn import Inbox

__all__ = ["PRESETS", "AcpAgent", "AcpBackend"]

_CAPABILITIES = Capabilities(
    model=True,
    cwd=True,
    mcp_servers=True,
    delegation=True,
    resume="session",
    prompt_blocks=frozenset({"text", "image", "audio", "resource", "resource_link"}),
)


class AcpBackend:
    """One agent. What only the agent itself knows - its models, the blocks it takes - is decided when it is open."""

    def __init__(self, name: str, agent: AcpAgent) -> None:
        self.name = name
        self.agent = agent
        self.capabilities = _CAPABILITIES

    def missing(self, task: ChildTask | None = None) -> list[str]:
        found = []
        if importlib.util.find_spec("acp") is None:
            found.append("agent-client-protocol is not installed where the worker runs: pip install 'lastword[acp]'.")
        if self._program() is None:
            how = (
                f" Install it: {self.agent.install}." if self.agent.install else " Install it, or correct its command."
            )
            found.append(f"The command {self.agent.command[0]!r} is not on the worker's PATH.{how}")
        return found + missing_for_tools(task, "pip install 'lastword[acp]'") + unmet(self.name, task)

    def version(self) -> str | None:
        path = self._program()
        if path is None:
            return None
        if told := npm_version(path):
            return told
        return told_version([path, *self.agent.version], self.agent) if self.agent.version else None

    def _program(self) -> str | None:
        return shutil.which(self.agent.command[0], path=child_environment(self.agent.env).get("PATH"))

    @asynccontextmanager
    async def open(
        self, spec: TurnSpec, resume: Resume | None, host: ChildHost, earlier: Earlier | None = None
    ) -> AsyncIterator[ChildTurn]:
        if not self.agent.asks and resume is None:
            await self._permitted(host)
        # Imported in a thread: the schema is large, and the event loop beats for other children meanwhile.
        await asyncio.to_thread(importlib.import_module, "lastword.backends.acp.session")
        async with offered_tools(host) as servers:
            task = spec.task.model_copy(update={"mcp_servers": [*servers, *spec.task.mcp_servers]})
            async with self._open(spec.model_copy(update={"task": task}), resume, host, earlier) as turn:
                yield turn

    @asynccontextmanager
    async def _open(
        self, spec: TurnSpec, resume: Resume | None, host: ChildHost, earlier: Earlier | None
    ) -> AsyncIterator[ChildTurn]:
        from lastword.backends.acp.turn import Inbox

        env = child_environment(self.agent.env, self.agent.env_from_worker)
        try:
            process = await ChildProcess.spawn(
                self.agent.command[0], self.agent.command[1:], env=env, cwd=spec.task.cwd
            )
        except OSError as error:
            raise RequestRejected(
                f"The agent of {self.name!r} cannot be started ({error.strerror}); check its command."
            ) from None
        inbox = Inbox(host, self.agent.host_tool)
        peer = JsonRpcPeer(process, on_notification=inbox.on_notification, on_request=inbox.on_request)
        try:
            yield await self._begin(spec, resume, earlier, process, peer, inbox)
        finally:
            try:
                await peer.close()
            finally:
                await process.close()

    async def _permitted(self, host: ChildHost) -> None:
        """An agent that asks for nothing is asked for: once, as a whole."""
        asked = PermissionRequest(
            kind="other", title=f"let {self.name}, which asks for nothing, do what its model says"
        )
        if (await host.permission(asked)).decision == "reject":
            raise RequestRejected(
                f"The agent of {self.name!r} asks for no permissions: it does what its model says, which the policy"
                " rejects. Run it with --permissions allow, or choose a backend that asks."
            )

    async def _begin(
        self,
        spec: TurnSpec,
        resume: Resume | None,
        earlier: Earlier | None,
        process: ChildProcess,
        peer: JsonRpcPeer,
        inbox: Inbox,
    ) -> ChildTurn:
        from lastword.backends.acp.session import open_session
        from lastword.backends.acp.turn import AcpTurn

        try:
            opened = await open_session(peer, self.agent, self.name, spec.task, session_to_take_up(resume, earlier))
        except (TimeoutError, RpcError, ConnectionLost) as error:
            return await stillborn(spec, process, error, patience=self.agent.handshake_timeout)
        inbox.session_id = opened.id
        return AcpTurn(
            spec,
            resume,
            earlier,
            backend=self.name,
            agent=self.agent,
            process=process,
            peer=peer,
            inbox=inbox,
            opened=opened,
        )
