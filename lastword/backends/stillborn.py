"""The turn of an agent program that failed before it could take a prompt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from lastword.core import contract, events
from lastword.core.contract import SessionRef, TurnSpec
from lastword.core.events import JsonObject, SessionEvent


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
