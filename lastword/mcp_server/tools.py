"""The tools of the MCP server: their descriptions for a model, and what each does for its caller."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

from pydantic import BaseModel, Field

from lastword.client import DelegationClient
from lastword.conversing import ConversationClient
from lastword.core import names
from lastword.core.bounds import cut_text
from lastword.core.contract import DelegationResult
from lastword.core.errors import LastwordError, RequestInvalid
from lastword.core.events import ASSISTANT_CHUNK, text_of
from lastword.core.host_tools import (
    Arguments,
    BackgroundArguments,
    ChildArguments,
    SayArguments,
    TaskArguments,
    ToolSpec,
)
from lastword.core.ports import Gap
from lastword.mcp_server.calling import Caller, conversation_of, delegation_of
from lastword.settings import McpPolicy
from lastword.watching import text_so_far

_LOOK_EVERY: Final = 1.0
_TAIL: Final = 160
_SO_FAR: Final = 32 * 1024
_LOG_ROW: Final = 2_000
_MANY: Final = 100
_LISTED: Final = 200

Tell: TypeAlias = Callable[[str], Awaitable[None]]
"""Tells the client how far a call is."""


class DelegateArguments(BackgroundArguments):
    backend: str | None = Field(default=None, description="The kind of child.")
    model: str | None = Field(default=None, description="The child's model.")


class DelegateManyArguments(Arguments):
    tasks: list[TaskArguments] = Field(min_length=1, max_length=_MANY, description="One child each, at the same time.")
    background: bool = Field(default=False, description="Return the ids at once.")


class ListArguments(Arguments):
    running: bool = Field(default=False, description="Only those that have not ended.")


class LogArguments(ChildArguments):
    after: int = Field(default=0, ge=0, description="Begin at this number; the last answer says how to go on.")


DELEGATE: Final = ToolSpec(
    "delegate",
    "Hand a task to another agent and get its last word. Use it for work that stands on its own: research, a review, a"
    " change in one place, anything whose details would crowd your own context. The other agent sees nothing of this"
    " conversation. Whatever cuts it off, you get what it has said, marked with why it ended. A long one is answered"
    " with its id and what there is so far; go on with `result`.",
    DelegateArguments,
)
DELEGATE_MANY: Final = ToolSpec(
    "delegate_many",
    "Hand several independent tasks to as many agents at once; the answers come in the order of the tasks. One that"
    " fails harms no other.",
    DelegateManyArguments,
)
RESULT: Final = ToolSpec(
    "result", "Wait for a child and get its answer, or what it has said so far.", ChildArguments, acts=False
)
ASK: Final = ToolSpec("ask", "Ask a continuable child more, and get its answer.", SayArguments)
SEND: Final = ToolSpec("send", "Give a continuable child more to do; get the answer later with `result`.", SayArguments)
INTERRUPT: Final = ToolSpec("interrupt", "Stop what a child does now, and get what it has said.", ChildArguments)
CANCEL: Final = ToolSpec("cancel", "End a child for good, and get what it has said.", ChildArguments)
LIST: Final = ToolSpec("list", "Your children and theirs, and what each is doing.", ListArguments, acts=False)
READ_LOG: Final = ToolSpec(
    "read_log", "What a child said and did, step by step: messages, tool calls, reports.", LogArguments, acts=False
)

TOOLS: Final = (DELEGATE, DELEGATE_MANY, RESULT, ASK, SEND, INTERRUPT, CANCEL, LIST, READ_LOG)


def schema_of(tool: ToolSpec, policy: McpPolicy) -> dict[str, Any]:
    """A tool's arguments as this deployment offers them: what there is no choice of is not asked."""
    schema = tool.schema
    properties = schema["properties"]
    for name, offered in (("backend", policy.backends), ("model", policy.models)):
        if name in properties:
            if len(offered) > 1:
                properties[name]["enum"] = offered
            else:
                del properties[name]
    return schema


@dataclass
class Answer:
    """What a call gives. `facts` are told beside the text of a call that did not fail, the text among them."""

    text: str
    is_error: bool = False
    facts: dict[str, Any] = field(default_factory=dict)


class CallerTools:
    """The tools for one caller. `wait` is how many seconds a call may take before it answers with what there is."""

    def __init__(self, client: DelegationClient, policy: McpPolicy, caller: Caller, *, wait: float) -> None:
        self._client = client
        self._talk = ConversationClient(client.client, task_queue=client.task_queue, store=client.store)
        self._policy = policy
        self._caller = caller
        self._wait = wait
        self._starting: dict[str, asyncio.Task[None]] = {}
        self._asked: dict[str, str] = {}
        """By conversation the message that a call waits for."""

    async def call(
        self, tool: ToolSpec, arguments: BaseModel, tell: Tell, began: Callable[[str], object] = lambda id: None
    ) -> Answer:
        """Do what the tool says. `began` is told of each child that the call sets to work. Raises LastwordError."""
        until = asyncio.get_running_loop().time() + self._wait
        match tool.name:
            case DELEGATE.name:
                return await self._delegate(cast(DelegateArguments, arguments), tell, began, until)
            case DELEGATE_MANY.name:
                return await self._delegate_many(cast(DelegateManyArguments, arguments), tell, began, until)
            case ASK.name | SEND.name:
                said = cast(SayArguments, arguments)
                id = await self._of_kind(said.id, names.CONVERSATION_WORKFLOW)
                accepted = await self._talk.send(id, said.prompt)
                if tool is SEND:
                    return _started(id, f"Accepted; {accepted.ahead} before it. Get its answer with `result`.")
                self._asked[id] = accepted.message_id
                began(id)
                return await self._waited(id, accepted.message_id, tell, until)
            case RESULT.name:
                id = self._caller.check(cast(ChildArguments, arguments).id)
                return await self._waited(id, await self._message(id), tell, until)
            case INTERRUPT.name | CANCEL.name:
                id = self._caller.check(cast(ChildArguments, arguments).id)
                return await self._stop(id, until, for_good=tool is CANCEL)
            case LIST.name:
                return await self._list(running=cast(ListArguments, arguments).running)
            case _:
                log = cast(LogArguments, arguments)
                return await self._read_log(self._caller.check(log.id), log.after)

    async def settle(self, id: str) -> None:
        """The client has cancelled the call that set this child to work: it settles to its partial."""
        if (start := self._starting.get(id)) is not None:
            await asyncio.wait([start])
        if (asked := self._asked.get(id)) is not None and (await self._talk.status(id)).message_id != asked:
            # What runs is the answer to another call.
            return
        await self._stop(id, asyncio.get_running_loop().time() + self._wait, for_good=False)

    async def _delegate(
        self, asked: DelegateArguments, tell: Tell, began: Callable[[str], object], until: float
    ) -> Answer:
        id = self._new_id()
        if not asked.background:
            began(id)
        await self._start(id, asked.model_dump(), continuable=asked.continuable)
        if asked.background:
            return _started(id, f"Started; its id is {id}. Get its answer with `result`.")
        return await self._waited(id, "m-1" if asked.continuable else None, tell, until)

    def _new_id(self) -> str:
        return f"{self._caller.prefix}{uuid.uuid4().hex[:12]}"

    async def _start(self, id: str, chosen: dict[str, Any], *, continuable: bool = False) -> None:
        """Once begun, a start is carried through: a cancel of the call finds the child and not half a start."""
        start = self._starting[id] = asyncio.create_task(self._begin(id, chosen, continuable))
        start.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(start)

    async def _begin(self, id: str, chosen: dict[str, Any], continuable: bool) -> None:
        if continuable:
            await self._talk.start(conversation_of(self._policy, self._caller, chosen), id=id)
        else:
            await self._client.start(delegation_of(self._policy, self._caller, chosen), id=id)

    async def _delegate_many(
        self, asked: DelegateManyArguments, tell: Tell, began: Callable[[str], object], until: float
    ) -> Answer:
        chosen = [self._new_id() for _ in asked.tasks]
        for id in chosen if not asked.background else ():
            began(id)
        # One that cannot be started harms no other, nor loses the ids of those that were.
        starts = (self._start(id, task.model_dump()) for id, task in zip(chosen, asked.tasks, strict=True))
        begun = await asyncio.gather(*starts, return_exceptions=True)
        for error in begun:
            if isinstance(error, BaseException) and not isinstance(error, LastwordError):
                raise error
        ids = [id for id, one in zip(chosen, begun, strict=True) if not isinstance(one, BaseException)]
        await tell(f"started {', '.join(ids)}")
        done = 0

        async def one(id: str) -> Answer:
            nonlocal done
            try:
                answer = await self._waited(id, None, _silent, until)
            except LastwordError as error:
                answer = Answer(str(error), is_error=True)
            done += 1
            await tell(f"{done} of {len(ids)} answered")
            return answer

        async def of(id: str, error: BaseException | None) -> tuple[str, Answer]:
            if error is not None:
                return "not started", Answer(str(error), is_error=True)
            return id, _started(id, "Started. Get its answer with `result`.") if asked.background else await one(id)

        answers = await asyncio.gather(*(of(id, error) for id, error in zip(chosen, begun, strict=True)))
        parts = [f"## {n}. {id}\n{answer.text}" for n, (id, answer) in enumerate(answers, 1)]
        return Answer("\n\n".join(parts), is_error=all(answer.is_error for _, answer in answers), facts={"ids": ids})

    async def _waited(self, id: str, message_id: str | None, tell: Tell, until: float) -> Answer:
        """The child's answer, or when the call has taken the time that it may, what there is so far."""
        waiting = asyncio.create_task(
            self._client.result(id) if message_id is None else self._talk.result(id, message_id)
        )
        try:
            await tell(f"id: {id}")
            async with asyncio.timeout_at(until):
                while not (await asyncio.wait([waiting], timeout=_LOOK_EVERY))[0]:
                    if tail := (await self._so_far(id))[-_TAIL:]:
                        await tell(tail)
        except TimeoutError:
            so_far = cut_text(await self._so_far(id), _SO_FAR)
            told = f"Still running; its id is {id}. Go on with `result`.\nSo far:\n{so_far or '(nothing)'}"
            return Answer(told, facts={"id": id, "state": "running"})
        finally:
            waiting.cancel()
            await asyncio.wait([waiting])
        if waiting.cancelled():
            raise RequestInvalid(f"Waiting for {id} was given up.")
        return _rendered(waiting.result())

    async def _so_far(self, id: str) -> str:
        try:
            return text_so_far((await self._client.describe(id)).checkpoint)
        except LastwordError:
            return ""

    async def _message(self, id: str) -> str | None:
        """Of a conversation the message whose answer is the newest, or comes next."""
        if await self._kind(id) != names.CONVERSATION_WORKFLOW:
            return None
        return await self._talk.newest(id)

    async def _stop(self, id: str, until: float, *, for_good: bool) -> Answer:
        try:
            async with asyncio.timeout_at(until):
                return await self._stopped(id, for_good=for_good)
        except TimeoutError:
            told = f"Asked to stop, and not ended yet; its id is {id}. Get its last word with `result`."
            return _started(id, told)

    async def _stopped(self, id: str, *, for_good: bool) -> Answer:
        if await self._kind(id) != names.CONVERSATION_WORKFLOW:
            return _rendered(await self._client.cancel(id))
        if for_good:
            last = (await self._talk.status(id)).message_id
            closing = await self._talk.close(id, "cancel")
            await self._talk.closed(id)
            if last is None:
                return Answer(f"The child {id} has ended; {len(closing.dropped)} messages were dropped.")
            return _rendered(await self._talk.result(id, last))
        ended = await self._talk.interrupt(id)
        if ended.message_id is None:
            return Answer(f"The child {id} was doing nothing.")
        return _rendered(await self._talk.result(id, ended.message_id))

    async def _list(self, *, running: bool) -> Answer:
        rows = await self._client.list(limit=_LISTED, under=self._caller.prefix, not_closed=running)
        lines = [" ".join(part for part in (r.id, r.state, r.stop_reason, r.backend, r.label) if part) for r in rows]
        if len(rows) == _LISTED:
            lines.append(f"(the newest {_LISTED}; there may be older ones)")
        return Answer("\n".join(lines) or "You have no children.", facts={"ids": [row.id for row in rows]})

    async def _read_log(self, id: str, after: int) -> Answer:
        lines, size, reached = [], 0, after
        async for item in self._client.log(id, merge_deltas=True):
            if isinstance(item, Gap):
                lines.append(f"(a part is {item.reason})")
                continue
            if item.type == ASSISTANT_CHUNK or item.seq is None or item.seq < after:
                continue
            line = f"{item.seq} {item.type} {cut_text(str(item.data), _LOG_ROW)}"
            size += len(line.encode(errors="replace"))
            if size > _SO_FAR:
                lines.append(f"(more: read_log with after={item.seq})")
                break
            lines.append(line)
            reached = item.seq + 1
        return Answer("\n".join(lines) or "(nothing)", facts={"next": reached})

    async def _of_kind(self, asked: str, kind: str) -> str:
        id = self._caller.check(asked)
        if await self._kind(id) != kind:
            raise RequestInvalid(f"The child {id!r} was not started as continuable; delegate to a new one.")
        return id

    async def _kind(self, id: str) -> str:
        return await self._client.kind(id)


def _rendered(done: DelegationResult) -> Answer:
    """As the contract renders it."""
    text = text_of(done.tool_result.content)
    return Answer(text, done.tool_result.is_error, {"id": done.id, "state": done.result.stop_reason})


def _started(id: str, text: str) -> Answer:
    return Answer(text, facts={"id": id, "state": "running"})


async def _silent(text: str) -> None:
    return None


def tool_named(name: str, tools: Sequence[ToolSpec] = TOOLS) -> ToolSpec | None:
    return next((tool for tool in tools if tool.name == name), None)
