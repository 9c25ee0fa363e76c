"""One prompt to an ACP agent, from its updates to its ending."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, Final

from lastword.backends.acp.agents import AcpAgent
from lastword.backends.acp.session import AcpSession
from lastword.backends.acp.updates import UpdateReader, kind_of, paths_of, usage_of
from lastword.backends.child_process import ChildProcess, exit_facts
from lastword.backends.json_rpc import METHOD_NOT_FOUND, ConnectionLost, JsonRpcPeer, ProtocolViolated, RpcError
from lastword.backends.offered_tools import SERVER_NAME
from lastword.backends.stillborn import AUTH_REQUIRED
from lastword.core import contract, events
from lastword.core.contract import SessionRef, TurnSpec
from lastword.core.events import Block, JsonObject, SessionEvent
from lastword.core.host_tools import parse
from lastword.core.permissions import PermissionRequest
from lastword.core.ports import ChildHost, Earlier, Resume
from lastword.core.taking_up import prompt_of

_UPDATES_AHEAD: Final = 256
_EXIT_GRACE: Final = 2.0
_STOP_REASONS: Final = {
    "end_turn": contract.COMPLETED,
    "max_tokens": contract.MAX_TOKENS,
    "max_turn_requests": contract.BUDGET,
    "refusal": contract.REFUSAL,
}


class Inbox:
    """What the agent sends, taken in order of the wire. Full, it makes the agent wait."""

    def __init__(self, host: ChildHost, host_tool: str) -> None:
        self.updates: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue(_UPDATES_AHEAD)
        self.session_id: str | None = None
        self.listening = False
        """What is replayed while a session is loaded is history, not this turn."""
        self.cancelled = asyncio.Event()
        self._host = host
        self._of_host = {host_tool.format(tool=tool.name): tool for tool in host.tools} if host_tool else {}
        self._calls: dict[str, dict[str, Any]] = {}

    async def on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        update = params.get("update")
        if method != "session/update" or not self.listening or not isinstance(update, dict):
            return
        if params.get("sessionId") in (None, self.session_id):
            if update.get("sessionUpdate") in ("tool_call", "tool_call_update"):
                self._known_call(update)
            await self.updates.put(update)

    def _known_call(self, call: Mapping[str, Any]) -> Mapping[str, Any]:
        """All that was told of the call so far: an update, and a request for it, tell only what is new."""
        known = self._calls.setdefault(str(call.get("toolCallId")), {})
        known.update({name: value for name, value in call.items() if value not in (None, [], {})})
        known.setdefault("announced", call.get("title"))
        return known

    def _is_of_host(self, call: Mapping[str, Any]) -> bool:
        """A call of a tool of the host's, by its title and by what it is given.

        A title alone may be a model's words. An agent that says which server's tool it calls is believed; of another,
        the call has to be of the kind that says nothing, and be given what that tool takes.
        """
        tool = self._of_host.get(str(call.get("title"))) or self._of_host.get(str(call.get("announced")))
        if tool is None:
            return False
        given = call.get("rawInput")
        if isinstance(given, dict) and {"server": SERVER_NAME, "tool": tool.name}.items() <= given.items():
            given = given.get("arguments")
        elif kind_of(call) != "other":
            return False
        try:
            parse(tool.arguments, given if isinstance(given, dict) else {})
        except ValueError:
            # Not every agent tells with what it calls.
            return given is None
        return True

    async def on_request(self, method: str, params: Mapping[str, Any]) -> Any:
        if method != "session/request_permission":
            raise RpcError(METHOD_NOT_FOUND)
        call = params.get("toolCall")
        known = self._known_call(call if isinstance(call, dict) else {})
        if self._is_of_host(known):
            return {"outcome": _outcome("allow", params.get("options"))}
        asking = asyncio.create_task(self._host.permission(_permission_request(known)))
        stop = asyncio.create_task(self.cancelled.wait())
        try:
            await asyncio.wait({asking, stop}, return_when=asyncio.FIRST_COMPLETED)
            if self.cancelled.is_set():
                return {"outcome": {"outcome": "cancelled"}}
            return {"outcome": _outcome((await asking).decision, params.get("options"))}
        finally:
            asking.cancel()
            stop.cancel()


class AcpTurn:
    """An agent at work on a prompt."""

    def __init__(
        self,
        spec: TurnSpec,
        resume: Resume | None,
        earlier: Earlier | None,
        *,
        backend: str,
        agent: AcpAgent,
        process: ChildProcess,
        peer: JsonRpcPeer,
        inbox: Inbox,
        opened: AcpSession,
    ) -> None:
        self._spec = spec
        self._resume = resume
        self._earlier = earlier
        self._backend = backend
        self._process = process
        self._peer = peer
        self._inbox = inbox
        self._opened = opened
        step = resume.next_step - 1 if resume else 0
        self._reader = UpdateReader(agent, turn=spec.turn, step=step)

    @property
    def session(self) -> SessionRef | None:
        if not self._opened.resumable:
            return None
        return SessionRef(backend=self._backend, id=self._opened.id, data={"cwd": self._opened.cwd})

    async def cancel(self) -> None:
        self._inbox.cancelled.set()
        with suppress(ConnectionLost):
            await self._peer.notify("session/cancel", {"sessionId": self._opened.id})

    async def events(self) -> AsyncIterator[SessionEvent]:
        prompt = prompt_of(self._spec, self._resume, self._earlier)
        if self._resume is None:
            yield events.user_message(self._spec.task.prompt_blocks, turn=self._spec.turn)
        asking = asyncio.create_task(self._ask(prompt))
        try:
            while (update := await self._inbox.updates.get()) is not None:
                for event in self._reader.read(update):
                    yield event
            *before, end = await self._ending(asking)
            for event in before:
                yield event
            if "diagnostic" in end.data and self._process.stderr_tail:
                yield events.agent_stderr(self._process.stderr_tail, turn=self._spec.turn)
            yield end
        finally:
            asking.cancel()
            await asyncio.wait([asking])

    async def _ask(self, prompt: list[Block]) -> Mapping[str, Any]:
        self._inbox.listening = True
        try:
            answer = await self._peer.request("session/prompt", {"sessionId": self._opened.id, "prompt": prompt})
        except (RpcError, ConnectionLost):
            await self._inbox.updates.put(None)
            raise
        # Everything that came before the answer is in the queue by now.
        await self._inbox.updates.put(None)
        return answer if isinstance(answer, dict) else {}

    async def _ending(self, asking: asyncio.Task[Mapping[str, Any]]) -> list[SessionEvent]:
        try:
            answer = await asking
        except RpcError as error:
            category = "authentication" if error.code == AUTH_REQUIRED else "agent-error"
            return [self._end(contract.ERROR, {"category": category, "rpc_code": error.code})]
        except ConnectionLost as error:
            return [self._end(contract.ERROR, await self._loss(error))]
        reason, facts = self._judge(answer)
        usage = usage_of(answer, self._reader.cost_usd)
        if answer.get("stopReason") == "cancelled":
            if usage is None:
                return [self._end(reason, facts)]
            # Its words stay as they were streamed; what they cost is told all the same.
            attempt = events.assistant_attempt(turn=self._spec.turn, step=self._reader.step, usage=usage)
            return [attempt, self._end(reason, facts)]
        message = events.assistant_message(
            self._reader.message, turn=self._spec.turn, step=self._reader.step, usage=usage
        )
        return [message, self._end(reason, facts)]

    def _judge(self, answer: Mapping[str, Any]) -> tuple[str, JsonObject | None]:
        """What the answer is worth: an agent's `end_turn` alone is no success."""
        told = answer.get("stopReason")
        if told == "cancelled":
            if self._inbox.cancelled.is_set():
                return contract.ABORTED, None
            # codex ends its turn so when a permission is refused.
            return contract.ERROR, {"category": "agent-cancelled"}
        if self._reader.failed:
            return contract.ERROR, {"category": "agent-error"}
        if told not in _STOP_REASONS:
            return contract.ERROR, {"category": "protocol"}
        if told == "end_turn" and not self._reader.message and not self._reader.tools_finished:
            return contract.ERROR, {"category": "empty-reply"}
        if told == "max_turn_requests":
            return contract.BUDGET, {"category": "step-limit"}
        return _STOP_REASONS[told], None

    async def _loss(self, error: ConnectionLost) -> JsonObject:
        """What is known of an agent whose connection ended: how its process did."""
        if isinstance(error, ProtocolViolated):
            return {"category": "protocol"}
        return exit_facts(await self._process.wait(_EXIT_GRACE))

    def _end(self, reason: str, facts: JsonObject | None) -> SessionEvent:
        return events.turn_end(reason, turn=self._spec.turn, diagnostic=facts)


def _permission_request(call: Mapping[str, Any]) -> PermissionRequest:
    id, title = call.get("toolCallId"), call.get("title")
    return PermissionRequest(
        kind=kind_of(call),
        tool_call_id=id if isinstance(id, str) else None,
        title=title if isinstance(title, str) else "",
        paths=paths_of(call),
        input=call.get("rawInput"),
    )


def _outcome(decision: str, options: object) -> JsonObject:
    """The option that does what was decided and nothing beyond it: once rather than always."""
    offered = [o for o in options if isinstance(o, dict)] if isinstance(options, list) else []
    for kind in (f"{decision}_once", f"{decision}_always"):
        for option in offered:
            if option.get("kind") == kind and not (decision == "allow" and kind == "allow_always"):
                return {"outcome": "selected", "optionId": option.get("optionId")}
    return {"outcome": "cancelled"}
