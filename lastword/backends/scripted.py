"""Scripted children: a deterministic list of deltas, messages, tool calls, pauses and faults, for tests and demos.

The script is `options["script"]` of the task, a list of steps (see `script_steps`). Without one the prompt is echoed
word by word. `options["on_cancel"]` says how the child takes a cancel.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from lastword.backends import script_steps as steps
from lastword.core import contract, events
from lastword.core.contract import Capabilities, ChildTask, SessionRef, TurnSpec
from lastword.core.errors import RequestRejected
from lastword.core.events import Block, SessionEvent
from lastword.core.permissions import PermissionRequest
from lastword.core.ports import ChildHost, Earlier, Resume
from lastword.core.transcript import messages

_POLL = 0.01
_BREATHE_EVERY = 256


class _Options(BaseModel):
    model_config = ConfigDict(extra="forbid")

    script: list[steps.Step] | None = None
    on_cancel: Literal["commit", "drop", "ignore", "late-end-turn"] = "commit"


class ScriptedBackend:
    """Runs scripts. With `resume=False` it is a backend whose children cannot be continued."""

    def __init__(self, name: str = "scripted", *, resume: bool = True) -> None:
        self.name = name
        self.capabilities = Capabilities(
            model=True, cwd=True, usage=True, delegation=True, resume="log" if resume else None
        )

    def missing(self, task: ChildTask | None = None) -> list[str]:
        return []

    def version(self) -> str | None:
        return None

    @asynccontextmanager
    async def open(
        self, spec: TurnSpec, resume: Resume | None, host: ChildHost, earlier: Earlier | None = None
    ) -> AsyncIterator[ScriptedTurn]:
        try:
            options = _Options.model_validate(spec.task.options)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise RequestRejected(
                f"The script is wrong at {where} ({first['msg']}); see docs/children.md for its steps."
            ) from None
        text = events.text_of(spec.task.prompt_blocks)
        script = options.script if options.script is not None else _script_in(text) or _echo(text)
        yield ScriptedTurn(spec, script, options.on_cancel, resume, host, earlier)


def _script_in(prompt: str) -> list[steps.Step] | None:
    """A prompt that is a script plays itself: a conversation has a script a message."""
    try:
        return _Options.model_validate({"script": json.loads(prompt)}).script if prompt.startswith("[") else None
    except ValueError:
        return None


def _echo(prompt: str) -> list[steps.Step]:
    words = prompt.split(" ")
    deltas: list[steps.Step] = [steps.Delta(delta=word if n == 0 else " " + word) for n, word in enumerate(words)]
    return [*deltas, steps.Message(message=None)]


class ScriptedTurn:
    """A scripted child at work."""

    session: SessionRef | None = None

    def __init__(
        self,
        spec: TurnSpec,
        script: list[steps.Step],
        on_cancel: str,
        resume: Resume | None,
        host: ChildHost,
        earlier: Earlier | None,
    ) -> None:
        self._turn = spec.turn
        self._script = script
        self._prompt = spec.task.prompt_blocks
        self._on_cancel = on_cancel
        self._cancelled = asyncio.Event()
        self._resume = resume
        self._host = host
        self._earlier = earlier or Earlier()
        self._step = resume.next_step - 1 if resume else 0
        self._in_step = False
        self._streamed: list[str] = []

    async def cancel(self) -> None:
        if self._on_cancel != "ignore":
            self._cancelled.set()

    async def events(self) -> AsyncIterator[SessionEvent]:
        position = 0
        if self._resume is None:
            yield events.user_message(self._prompt, turn=self._turn)
        else:
            position = _position(self._resume)
            for call in _unanswered(self._resume, {tool.name for tool in self._host.tools}):
                content = [events.text_block(events.UNKNOWN_OUTCOME)]
                yield events.tool_result(call, content, turn=self._turn, step=self._step, is_error=True)
                position += 1
        for index in range(position, len(self._script)):
            step = self._script[index]
            async for event in self._play(step):
                yield event
            if self._cancelled.is_set():
                for event in self._last_words():
                    yield event
                return
            if isinstance(step, steps.Fault | steps.End):
                return
            if isinstance(step, steps.Message | steps.ToolStep | steps.Attempt):
                yield events.backend_state({"position": index + 1}, turn=self._turn)
        yield events.turn_end(contract.COMPLETED, turn=self._turn)

    async def _play(self, step: steps.Step) -> AsyncIterator[SessionEvent]:
        match step:
            case steps.Delta() | steps.Count() | steps.Text():
                async for event in self._say(step):
                    yield event
            case steps.Reasoning():
                for event in self._begin_step():
                    yield event
                yield events.reasoning_delta(step.reasoning, turn=self._turn, step=self._step)
            case steps.Message():
                for event in self._begin_step():
                    yield event
                yield self._commit(step.blocks("".join(self._streamed)), usage=step.usage)
            case steps.Attempt():
                for event in self._begin_step():
                    yield event
                yield events.assistant_attempt(turn=self._turn, step=self._step)
                self._end_step()
            case steps.ToolStep():
                async for event in self._use(step.tool):
                    yield event
            case steps.Recall():
                said = [text for role, text in messages(self._earlier) if role == step.recall]
                async for event in self._say(steps.Delta(delta=" | ".join(said))):
                    yield event
            case steps.Delegate() | steps.Host():
                async for event in self._hand_on(step.calls):
                    yield event
            case steps.Ask():
                async for event in self._request(step.ask):
                    yield event
            case steps.Pause():
                await self._sleep(step.pause_ms / 1000)
            case steps.WaitFor():
                await self._until(Path(step.wait_for))
            case steps.Touch():
                Path(step.touch).touch()
            case steps.Fault():
                async for event in self._break(step.fault):
                    yield event
            case steps.End():
                facts = {"category": step.category} if step.category else None
                yield events.turn_end(step.end, turn=self._turn, diagnostic=facts)

    async def _say(self, step: steps.Delta | steps.Count | steps.Text) -> AsyncIterator[SessionEvent]:
        for event in self._begin_step():
            yield event
        for n, text in enumerate(step.texts()):
            if self._cancelled.is_set():
                return
            self._streamed.append(text)
            yield events.text_delta(text, turn=self._turn, step=self._step)
            if step.every_ms:
                await self._sleep(step.every_ms / 1000)
            elif n % _BREATHE_EVERY == 0:
                await asyncio.sleep(0)

    async def _use(self, tool: steps.Tool) -> AsyncIterator[SessionEvent]:
        yield events.tool_call(tool.id, tool.name, tool.arguments, turn=self._turn, step=self._step)
        if tool.appends_to:
            with Path(tool.appends_to).open("a") as file:
                file.write(f"{tool.id}\n")
        await self._sleep(tool.takes_ms / 1000)
        if tool.waits_for:
            await self._until(Path(tool.waits_for))
        if not self._cancelled.is_set():
            content = [events.text_block(tool.result)]
            yield events.tool_result(tool.id, content, turn=self._turn, step=self._step)

    async def _hand_on(self, calls: list[steps.HostCall]) -> AsyncIterator[SessionEvent]:
        for call in calls:
            yield events.tool_call(call.id, call.tool, call.arguments, turn=self._turn, step=self._step)
        working = asyncio.gather(
            *(self._host.call(call.tool, call.arguments, call_id=call.id, patience=call.patience) for call in calls)
        )
        stop = asyncio.create_task(self._cancelled.wait())
        try:
            watched: set[asyncio.Future[Any]] = {working, stop}
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                for call, done in zip(calls, await working, strict=True):
                    yield events.tool_result(
                        call.id, done.content, turn=self._turn, step=self._step, is_error=done.is_error
                    )
                    async for event in self._say(steps.Delta(delta=f"[{events.text_of(done.content)}]")):
                        yield event
        finally:
            working.cancel()
            stop.cancel()
            await asyncio.gather(working, return_exceptions=True)

    async def _request(self, asked: steps.Asked) -> AsyncIterator[SessionEvent]:
        asking = asyncio.create_task(self._host.permission(PermissionRequest(**asked.model_dump())))
        stop = asyncio.create_task(self._cancelled.wait())
        try:
            await asyncio.wait({asking, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not self._cancelled.is_set():
                word = "allowed " if (await asking).decision == "allow" else "rejected "
                async for event in self._say(steps.Delta(delta=word)):
                    yield event
        finally:
            asking.cancel()
            stop.cancel()

    async def _break(self, fault: str) -> AsyncIterator[SessionEvent]:
        if fault == "raise":
            raise RuntimeError("the script says so")
        if fault == "malformed":
            data: dict[str, Any] = {"turn": self._turn, "step": self._step, "message": {"content": "not a list"}}
            yield SessionEvent(type=events.ASSISTANT_MESSAGE, data=data)
        elif fault == "hang":
            await self._cancelled.wait()

    def _begin_step(self) -> list[SessionEvent]:
        if self._in_step:
            return []
        self._in_step = True
        self._step += 1
        return [events.step_start(turn=self._turn, step=self._step)]

    def _end_step(self) -> None:
        self._in_step = False
        self._streamed.clear()

    def _commit(
        self, content: list[Block], *, usage: dict[str, int] | None = None, interrupted: bool = False
    ) -> SessionEvent:
        event = events.assistant_message(
            content, turn=self._turn, step=self._step, usage=usage, interrupted=interrupted
        )
        self._end_step()
        return event

    def _last_words(self) -> list[SessionEvent]:
        if self._on_cancel == "late-end-turn":
            return [events.turn_end(contract.COMPLETED, turn=self._turn)]
        words: list[SessionEvent] = []
        if self._on_cancel == "commit" and self._streamed:
            words.append(self._commit([events.text_block("".join(self._streamed))], interrupted=True))
        return [*words, events.turn_end(contract.ABORTED, turn=self._turn)]

    async def _sleep(self, seconds: float) -> None:
        if seconds:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._cancelled.wait()

    async def _until(self, path: Path) -> None:
        while not path.exists() and not self._cancelled.is_set():
            await asyncio.sleep(_POLL)


def _position(resume: Resume) -> int:
    for event in reversed(resume.events):
        if event.type == events.BACKEND_STATE:
            return int(event.data["state"]["position"])
    return 0


def _unanswered(resume: Resume, of_host: set[str]) -> list[str]:
    answered = {event.data.get("id") for event in resume.events if event.type == events.TOOL_RESULT}
    # What was asked of the host is asked again: it is the same call.
    calls = [
        event.data.get("id")
        for event in resume.events
        if event.type == events.TOOL_CALL and event.data.get("name") not in of_host
    ]
    return [str(call) for call in calls if call not in answered]
