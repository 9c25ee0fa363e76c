"""DeepSeek Harness by its SDK's runtime: the program that `deepseek-harness-sdk` brings, over its JSON-RPC.

The SDK's own client starts the program with the worker's whole environment, in the worker's process group, and reads it
in threads; so the runtime is taken from it, and the conversation is ours (decision 0004).
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from lastword.backends.agent_program import distribution_version, unmet
from lastword.backends.child_process import ChildProcess, child_environment
from lastword.backends.json_rpc import ConnectionLost, JsonRpcPeer, RpcError
from lastword.backends.stillborn import stillborn
from lastword.core.contract import Capabilities, ChildTask, SessionRef, TurnSpec
from lastword.core.errors import RequestRejected, ResumeRefused
from lastword.core.ports import ChildHost, ChildTurn, Earlier, Resume
from lastword.core.taking_up import session_to_take_up

if TYPE_CHECKING:
    from lastword.backends.deepseek_harness.turn import Inbox

PROVIDER: Final = "deepseek-official"
MODEL: Final = "deepseek-v4-flash"
_HANDSHAKE: Final = 60.0
_INSTALL: Final = "pip install --pre 'lastword[deepseek-harness]'"


class DeepSeekHarnessBackend:
    """Runs the harness. It asks for permissions by none of its SDK's ways: what needs one fails closed."""

    name = "deepseek-harness"
    capabilities = Capabilities(model=True, cwd=True, max_tokens=True, usage=True, resume="session")

    def missing(self, task: ChildTask | None = None) -> list[str]:
        found = [
            f"{module} is not installed where the worker runs: {_INSTALL}."
            for module in ("deepseek_harness_runtime", "zstandard")
            if importlib.util.find_spec(module) is None
        ]
        if not os.environ.get("DSH_HOME", "").strip():
            found.append("DSH_HOME is not set for the worker; set it to a directory for the harness's own state.")
        return found + unmet(self.name, task)

    def version(self) -> str | None:
        return distribution_version("deepseek-harness-runtime-bin")

    @asynccontextmanager
    async def open(
        self, spec: TurnSpec, resume: Resume | None, host: ChildHost, earlier: Earlier | None = None
    ) -> AsyncIterator[ChildTurn]:
        await asyncio.to_thread(importlib.import_module, "lastword.backends.deepseek_harness.turn")
        from deepseek_harness_runtime import resolve_bundled_launch_args

        from lastword.backends.deepseek_harness.turn import Inbox

        program, *args = await asyncio.to_thread(resolve_bundled_launch_args)
        env = child_environment(from_worker=["DSH_*", "DEEPSEEK_*"])
        try:
            process = await ChildProcess.spawn(str(program), [*args, "--profile", "sdk"], env=env, cwd=spec.task.cwd)
        except OSError as error:
            raise RequestRejected(
                f"DeepSeek Harness cannot be started ({error.strerror}); install it again: {_INSTALL}."
            ) from None
        inbox = Inbox()
        peer = JsonRpcPeer(process, on_notification=inbox.on_notification)
        try:
            yield await self._begin(spec, resume, earlier, process, peer, inbox)
        finally:
            try:
                await peer.close()
            finally:
                await process.close()

    async def _begin(
        self,
        spec: TurnSpec,
        resume: Resume | None,
        earlier: Earlier | None,
        process: ChildProcess,
        peer: JsonRpcPeer,
        inbox: Inbox,
    ) -> ChildTurn:
        from lastword.backends.deepseek_harness.turn import HarnessTurn

        try:
            async with asyncio.timeout(_HANDSHAKE):
                await peer.request("initialize", _hello(spec.task))
                session_id = await _session(peer, session_to_take_up(resume, earlier))
        except (TimeoutError, RpcError, ConnectionLost) as error:
            return await stillborn(spec, process, error, patience=_HANDSHAKE)
        return HarnessTurn(
            spec,
            resume,
            earlier,
            backend=self.name,
            process=process,
            peer=peer,
            inbox=inbox,
            session_id=session_id,
            home=os.environ["DSH_HOME"],
        )


def _hello(task: ChildTask) -> dict[str, object]:
    provider, _, model = (task.model or MODEL).rpartition(":")
    hello: dict[str, object] = {
        "cwd": os.path.abspath(task.cwd or os.getcwd()),
        "provider": provider or PROVIDER,
        "model": model,
    }
    if task.max_tokens is not None:
        hello["maxTokens"] = task.max_tokens
    return hello


async def _session(peer: JsonRpcPeer, kept: SessionRef | None) -> str:
    if kept is None:
        return f"lw-{uuid.uuid4().hex}"
    try:
        await peer.request("session/resume", {"sessionId": kept.id})
    except RpcError as error:
        raise ResumeRefused("DeepSeek Harness does not have its session any more.") from error
    return kept.id
