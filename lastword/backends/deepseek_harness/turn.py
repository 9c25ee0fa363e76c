"""One prompt to DeepSeek Harness. Its session events are the contract's own; they are folded as they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, Final

from lastword.backends.child_process import ChildProcess, exit_facts
from lastword.backends.deepseek_harness.disk_log import events_on_disk
from lastword.backends.json_rpc import ConnectionLost, JsonRpcPeer, RpcError
from lastword.core import contract, events
from lastword.core.contract import SessionRef, TurnSpec
from lastword.core.events import JsonObject, SessionEvent
from lastword.core.ports import Earlier, Resume
from lastword.core.taking_up import prompt_of

_EXIT_GRACE: Final = 5.0
_EVENTS_AHEAD: Final = 256
_KEPT: Final = frozenset(
    {
        events.ASSISTANT_MESSAGE,
        events.ASSISTANT_ATTEMPT,
        events.ASSISTANT_CHUNK,
        events.STEP_START,
        events.TOOL_CALL,
        events.TOOL_RESULT,
        "step/end",
        "llm/retry",
    }
)
"""What of its events is the child's. The others are its bookkeeping: prompts, tool lists, titles."""

_USAGE: Final = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "cacheReadTokens": "cache_read_tokens",
    "cacheWriteTokens": "cache_write_tokens",
}


class Inbox:
    """What the harness sends, in order. It knows which sessions are the turn's: the root's and its children's."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue(_EVENTS_AHEAD)
        self.root: str | None = None
        self._running: set[str] = set()
        self._began = False

    async def on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        if self.root is None:
            return
        session, event = params.get("sessionId"), params.get("event")
        if method == "session.event" and session == self.root and isinstance(event, dict):
            self._began = self._began or event.get("type") == events.TURN_START
            await self.events.put(event)
        elif method == "subagent.started" and isinstance(child := params.get("childSessionId"), str):
            self._running.add(child)
        elif method == "subagent.finished":
            self._running.discard(str(params.get("childSessionId")))
            await self._end_if_idle()
        elif method == "session.status" and isinstance(session, str):
            (self._running.discard if params.get("status") == "idle" else self._running.add)(session)
            await self._end_if_idle()

    async def _end_if_idle(self) -> None:
        if self._began and not self._running:
            await self.events.put(None)


class HarnessTurn:
    """The harness at work on a prompt."""

    def __init__(
        self,
        spec: TurnSpec,
        resume: Resume | None,
        earlier: Earlier | None,
        *,
        backend: str,
        process: ChildProcess,
        peer: JsonRpcPeer,
        inbox: Inbox,
        session_id: str,
        home: str,
    ) -> None:
        self._spec = spec
        self._resume = resume
        self._earlier = earlier
        self._process = process
        self._peer = peer
        self._inbox = inbox
        self._home = home
        self._steps_before = resume.next_step - 1 if resume else 0
        self._last_seq = -1
        self._cancelled = False
        self._end: SessionEvent | None = None
        self.session = SessionRef(backend=backend, id=session_id, data={"cwd": spec.task.cwd})

    async def cancel(self) -> None:
        """There is no cancel on its wire; a shutdown makes it write down what it has, which is read from its disk."""
        self._cancelled = True
        with suppress(ConnectionLost, RpcError):
            await self._peer.request("shutdown", {})
        # It may still say something; then its stdout ends.
        self._process.stdin.close()

    async def events(self) -> AsyncIterator[SessionEvent]:
        if self._resume is None:
            yield events.user_message(self._spec.task.prompt_blocks, turn=self._spec.turn)
        self._inbox.root = self.session.id
        prompt = prompt_of(self._spec, self._resume, self._earlier)
        failure: JsonObject | None = None
        gone = asyncio.create_task(self._watch())
        try:
            await self._peer.request("session/prompt", {"sessionId": self.session.id, "contentBlocks": prompt})
        except RpcError as error:
            failure = {"category": "agent-error", "rpc_code": error.code}
        except ConnectionLost:
            pass  # told by the watch, after what is still in the queue
        try:
            while failure is None and (event := await self._inbox.events.get()) is not None:
                for ours in self._take(event):
                    yield ours
            if gone.done() or self._cancelled:
                failure = failure or await self._lost()
                on_disk = await asyncio.to_thread(events_on_disk, self._home, self.session.id, after_seq=self._last_seq)
                for event in on_disk:
                    for ours in self._take(event):
                        yield ours
            end = self._ending(failure)
            if "diagnostic" in end.data and self._process.stderr_tail:
                yield events.agent_stderr(self._process.stderr_tail, turn=self._spec.turn)
            yield end
        finally:
            gone.cancel()
            await asyncio.wait([gone])

    async def _watch(self) -> None:
        """End the turn when the connection does."""
        await self._peer.ended()
        await self._inbox.events.put(None)

    def _take(self, event: Mapping[str, Any]) -> list[SessionEvent]:
        seq, kind, data = event.get("seq"), event.get("type"), event.get("data")
        if isinstance(seq, int):
            if seq <= self._last_seq:
                return []
            self._last_seq = seq
        if kind == events.TURN_END and isinstance(data, dict):
            self._end = _turn_end(data, self._spec.turn)
        if kind not in _KEPT or not isinstance(data, dict):
            return []
        return [SessionEvent(type=str(kind), data=self._ours(data))]

    def _ours(self, data: Mapping[str, Any]) -> JsonObject:
        """Its data with this turn's numbers, our names for a call's id and for usage."""
        ours = {**data, "turn": self._spec.turn}
        if isinstance(step := data.get("step"), int):
            ours["step"] = step + self._steps_before
        message = data.get("message")
        id = data.get("callId") or (message.get("toolCallId") if isinstance(message, dict) else None)
        if isinstance(id, str):
            ours["id"] = id
        usage = data.get("usage")
        if isinstance(usage, dict):
            ours["usage"] = {ours_: usage[its] for its, ours_ in _USAGE.items() if isinstance(usage.get(its), int)}
        return ours

    async def _lost(self) -> JsonObject | None:
        code = await self._process.wait(_EXIT_GRACE)
        return None if self._cancelled else exit_facts(code)

    def _ending(self, failure: JsonObject | None) -> SessionEvent:
        turn = self._spec.turn
        if self._cancelled:
            return events.turn_end(contract.ABORTED, turn=turn)
        if failure is not None:
            return events.turn_end(contract.ERROR, turn=turn, diagnostic=failure)
        return self._end or events.turn_end(contract.ERROR, turn=turn, diagnostic={"category": "unfinished"})


def _turn_end(data: Mapping[str, Any], turn: int) -> SessionEvent:
    """Its reason, without the words of its error; `aborted` without a cancel of ours is an error."""
    reason = data.get("reason")
    kind = reason.get("kind") if isinstance(reason, dict) else None
    if kind == contract.ABORTED:
        return events.turn_end(contract.ERROR, turn=turn, diagnostic={"category": "agent-cancelled"})
    if not isinstance(kind, str) or not kind:
        return events.turn_end(contract.ERROR, turn=turn, diagnostic={"category": "protocol"})
    facts = {"category": "agent-error"} if kind == contract.ERROR else None
    return events.turn_end(kind, turn=turn, diagnostic=facts)
