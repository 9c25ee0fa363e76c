"""Claude Code by the Claude Agent SDK: partial messages, interrupt, resume, permission callbacks."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import logging
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from lastword.backends.agent_program import distribution_version, unmet
from lastword.backends.child_process import ChildFamily, child_environment
from lastword.backends.clean_start import clean_start, launcher
from lastword.backends.offered_tools import missing_for_tools, names_at_claude, offered_tools
from lastword.backends.stillborn import StillbornTurn
from lastword.core.contract import Capabilities, ChildTask, McpServer, SessionRef, TurnSpec
from lastword.core.errors import ResumeRefused
from lastword.core.ports import ChildHost, ChildTurn, Earlier, Resume
from lastword.core.taking_up import session_to_take_up

logger = logging.getLogger("lastword.child")

_INSTALL: Final = "pip install 'lastword[claude-agent]'"
_HANDSHAKE: Final = 60.0
_DISCONNECT_GRACE: Final = 3.0
_FROM_WORKER: Final = ("ANTHROPIC_*", "CLAUDE_*", "IS_SANDBOX")
_SET_BY_SDK: Final = ("CLAUDE_CODE_ENTRYPOINT", "CLAUDE_AGENT_SDK_", "CLAUDE_CODE_SDK_")


class ClaudeAgentBackend:
    """Runs Claude Code.

    It reads no settings of the user's or the project's, for they may grant what the policy does not.
    """

    name = "claude-agent"
    capabilities = Capabilities(
        model=True,
        persona=True,
        cwd=True,
        mcp_servers=True,
        delegation=True,
        usage=True,
        cost=True,
        resume="session",
        prompt_blocks=frozenset({"text", "image"}),
    )

    def missing(self, task: ChildTask | None = None) -> list[str]:
        found = []
        if importlib.util.find_spec("claude_agent_sdk") is None:
            found.append(f"claude-agent-sdk is not installed where the worker runs: {_INSTALL}.")
        elif _program() is None:
            found.append(
                f"The claude-agent-sdk here brings no program: install it again ({_INSTALL}), or claude itself."
            )
        return found + missing_for_tools(task, _INSTALL) + unmet(self.name, task)

    def version(self) -> str | None:
        return distribution_version("claude-agent-sdk")

    @asynccontextmanager
    async def open(
        self, spec: TurnSpec, resume: Resume | None, host: ChildHost, earlier: Earlier | None = None
    ) -> AsyncIterator[ChildTurn]:
        await asyncio.to_thread(importlib.import_module, "lastword.backends.claude_agent.turn")
        from claude_agent_sdk import ClaudeSDKClient

        family = await ChildFamily.begin()
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="lastword-"))
        try:
            kept = session_to_take_up(resume, earlier)
            async with offered_tools(host) as servers:
                options = _options(spec.task, kept, host, family, launcher(folder), servers)
                client = ClaudeSDKClient(options)
                try:
                    yield await self._begin(spec, resume, earlier, kept, client)
                finally:
                    await _disconnect(client)
        finally:
            await family.end()
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _begin(
        self, spec: TurnSpec, resume: Resume | None, earlier: Earlier | None, kept: SessionRef | None, client: Any
    ) -> ChildTurn:
        from claude_agent_sdk import ClaudeSDKError

        from lastword.backends.claude_agent.turn import ClaudeTurn

        try:
            async with asyncio.timeout(_HANDSHAKE):
                await client.connect()
        except TimeoutError:
            return StillbornTurn(spec, {"category": "no-answer", "limit": _HANDSHAKE})
        except ClaudeSDKError:
            if kept is not None:
                # Of a session that it does not have, it only says so and leaves.
                raise ResumeRefused("Claude Code does not have its session any more.") from None
            return StillbornTurn(spec, {"category": "crash"})
        return ClaudeTurn(spec, resume, earlier, backend=self.name, client=client, session_id=kept.id if kept else None)


def _options(
    task: ChildTask,
    kept: SessionRef | None,
    host: ChildHost,
    family: ChildFamily,
    start: Path,
    of_host: Sequence[McpServer],
) -> Any:
    from claude_agent_sdk import ClaudeAgentOptions

    from lastword.backends.claude_agent.turn import PermissionRelay

    program = _program()
    assert program is not None, "admission has checked it"
    env = child_environment({"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}, _FROM_WORKER)
    return ClaudeAgentOptions(
        cli_path=str(start),
        env={**clean_start(program, {**env, **family.marking}, _SET_BY_SDK), **family.marking},
        system_prompt=task.persona or {"type": "preset", "preset": "claude_code"},
        model=task.model,
        cwd=task.cwd or os.getcwd(),
        mcp_servers={server.name: _mcp_server(server) for server in (*task.mcp_servers, *of_host)},
        strict_mcp_config=True,
        setting_sources=[],
        permission_mode="default",
        can_use_tool=PermissionRelay(host, names_at_claude(host)),
        include_partial_messages=True,
        max_turns=task.limits.steps,
        max_budget_usd=task.limits.cost_usd,
        resume=kept.id if kept else None,
        stderr=lambda line: logger.debug("a line of stderr, %d characters", len(line)),
    )


def _mcp_server(server: McpServer) -> dict[str, Any]:
    if server.url is not None:
        return {"type": "http", "url": server.url}
    env = child_environment(server.env, server.env_from_worker)
    return {"type": "stdio", "command": server.command, "args": server.args, "env": env}


def _program() -> str | None:
    """The program that the SDK brings, else the one on the PATH."""
    spec = importlib.util.find_spec("claude_agent_sdk")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "_bundled" / "claude"
        if bundled.exists():
            return str(bundled)
    return shutil.which("claude")


async def _disconnect(client: Any) -> None:
    """Ask it to leave. What it leaves undone, and whatever it raises, is settled by ending its processes."""
    try:
        async with asyncio.timeout(_DISCONNECT_GRACE):
            await client.disconnect()
    except Exception as error:
        logger.debug("leaving Claude Code: %s", type(error).__name__)
