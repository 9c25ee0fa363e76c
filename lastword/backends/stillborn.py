"""The turn of an agent program that failed before it could take a prompt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from lastword.backends.child_process import ChildProcess, exit_facts
from lastword.backends.json_rpc import ProtocolViolated, RpcError
from lastword.core import contract, events
from lastword.core.contract import SessionRef, TurnSpec
from lastword.core.events import JsonObject, SessionEvent

AUTH_REQUIRED: Final = -32000
"""ACP's code for an agent that has to be logged in first."""
_EXIT_GRACE: Final = 2.0


async def stillborn(spec: TurnSpec, process: ChildProcess, error: Exception, *, patience: float) -> StillbornTurn:
    """The turn of an agent whose handshake failed so. `patience` is how long it was waited for, in seconds."""
    facts: JsonObject
    match error:
        case TimeoutError():
            facts = {"category": "no-answer", "limit": patience}
        case RpcError(code=code):
            facts = {"category": "authentication" if code == AUTH_REQUIRED else "agent-error", "rpc_code": code}
        case ProtocolViolated():
            facts = {"category": "protocol"}
        case _:
            facts = exit_facts(await process.wait(_EXIT_GRACE))
    return StillbornTurn(spec, facts, process.stderr_tail)


class StillbornTurn:
    """Says what was asked and why it failed. `facts` are those of a `Diagnostic`."""

    session: SessionRef | None = None

    def __init__(self, spec: TurnSpec, facts: JsonObject, stderr: Sequence[str] = ()) -> None:
        self._spec = spec
        self._facts = facts
        self._stderr = stderr

    async def events(self) -> AsyncIterator[SessionEvent]:
        turn = self._spec.turn
        yield events.user_message(self._spec.task.prompt_blocks, turn=turn)
        if self._stderr:
            yield events.agent_stderr(self._stderr, turn=turn)
        yield events.turn_end(contract.ERROR, turn=turn, diagnostic={"stage": "handshake", **self._facts})

    async def cancel(self) -> None:
        await asyncio.sleep(0)
