"""One turn of an in-process child: ask the model, judge the reply, run the tools, and again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    SystemPromptPart,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings

from lastword.backends.in_process.answer import ANSWER_TOOL, AnswerSchema, answer_text
from lastword.backends.in_process.history import History, past_of
from lastword.backends.in_process.model import BACKEND, blocks_of, diagnose, may_pass, usage_of
from lastword.backends.in_process.tools import ToolBox, ToolOutcome
from lastword.core import contract, events
from lastword.core.contract import SessionRef, TurnSpec
from lastword.core.diagnostic import Diagnostic
from lastword.core.events import SessionEvent, text_block
from lastword.core.ports import Earlier, Resume

_LONGEST_WAIT: Final = 30.0
"""Seconds; a provider that asks for more ends the turn."""
_FIRST_WAIT: Final = 0.5
_QUEUE: Final = 64

# What a finish reason means when it is not the end of a whole reply.
_CUTS: Final = {
    "length": (contract.MAX_TOKENS, "max-tokens"),
    "content_filter": (contract.REFUSAL, "content-filter"),
    "error": (contract.ERROR, "provider-error"),
    None: (contract.ERROR, "unfinished"),
}


class InProcessTurn:
    """A child at work. Its message history is its session, kept in the log as `backend/state` events."""

    session: SessionRef | None = None

    def __init__(
        self,
        spec: TurnSpec,
        model: Model,
        tools: ToolBox,
        resume: Resume | None,
        earlier: Earlier | None,
        *,
        retries: int,
    ) -> None:
        self._task = spec.task
        self._turn = spec.turn
        self._model = model
        self._tools = tools
        self._resume = resume
        self._retries = retries
        self._history = History.of_events(resume.events if resume else (), before=past_of(earlier))
        self._step = resume.next_step - 1 if resume else 0
        self._answer = AnswerSchema(spec.task.output_schema) if spec.task.output_schema else None
        self._cancelled = asyncio.Event()
        self._work: asyncio.Task[Any] | None = None
        self._streamed: list[str] = []
        self._answer_parts: set[int] = set()
        self._response: ModelResponse | None = None
        self._end: SessionEvent | None = None

    async def cancel(self) -> None:
        self._cancelled.set()
        if self._work is not None:
            self._work.cancel()

    async def aclose(self) -> None:
        """End whatever is still under way. Returns when it is over."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait([self._work])

    async def events(self) -> AsyncIterator[SessionEvent]:
        if not self._history.own:
            yield events.user_message(self._task.prompt_blocks, turn=self._turn)
            yield self._history.add(self._first_request(), turn=self._turn)
        response = self._history.open_response
        while self._end is None:
            if response is None:
                async with aclosing(self._ask()) as said:
                    async for event in said:
                        yield event
                response = self._response
            else:
                # Taken up from the log: it was committed there, but not yet acted upon.
                self._judge(response)
            if self._end is None and response is not None:
                async with aclosing(self._answer_calls(response)) as done:
                    async for event in done:
                        yield event
            response = None
        assert self._end is not None
        yield self._end

    # -- the model ---------------------------------------------------------------------------------------------------

    async def _ask(self) -> AsyncGenerator[SessionEvent, None]:
        """Make one request, with its tries. Leaves a response to go on with, or the end."""
        self._response = None
        if self._cancelled.is_set():
            self._finish(contract.ABORTED)
            return
        self._step += 1
        yield events.step_start(turn=self._turn, step=self._step)
        for tries in range(self._retries + 1):
            if self._cancelled.is_set():
                self._finish(contract.ABORTED)
                return
            self._streamed = []
            self._answer_parts = set()
            async with aclosing(self._stream()) as pieces:
                async for event in pieces:
                    yield event
            assert self._work is not None
            if self._cancelled.is_set():
                for event in self._interrupted():
                    yield event
                return
            error = self._work.exception()
            if error is None:
                for event in self._commit(self._work.result()):
                    yield event
                return
            yield events.assistant_attempt(turn=self._turn, step=self._step)
            diagnostic = diagnose(error)
            wait = diagnostic.retry_after or _FIRST_WAIT * 2**tries
            # What was said once is not bought and said again.
            if self._streamed or tries == self._retries or not may_pass(diagnostic) or wait > _LONGEST_WAIT:
                self._finish(_reason_of(diagnostic), diagnostic)
                return
            if await self._cancelled_within(wait):
                self._finish(contract.ABORTED)
                return

    async def _stream(self) -> AsyncGenerator[SessionEvent, None]:
        """Run the request in a task of its own, so that a cancel ends it wherever it is; hand its deltas on."""
        # The queue itself has no bound: its end has to fit in even when nobody reads any more.
        queue: asyncio.Queue[SessionEvent | None] = asyncio.Queue()
        room = asyncio.Semaphore(_QUEUE)
        self._work = asyncio.create_task(self._request(queue, room))
        self._work.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (event := await queue.get()) is not None:
                room.release()
                yield event
        finally:
            if not self._work.done():
                self._work.cancel()
            await asyncio.wait([self._work])

    async def _request(self, queue: asyncio.Queue[SessionEvent | None], room: asyncio.Semaphore) -> ModelResponse:
        async with model_request_stream(
            self._model,
            self._history.all,
            model_settings=ModelSettings(max_tokens=self._task.max_tokens) if self._task.max_tokens else None,
            model_request_parameters=self._parameters(),
        ) as stream:
            async for part in stream:
                if (event := self._delta_of(part)) is not None:
                    await room.acquire()
                    queue.put_nowait(event)
        response: ModelResponse = stream.get()
        return response

    def _parameters(self) -> ModelRequestParameters:
        if self._answer is None:
            return ModelRequestParameters(function_tools=self._tools.definitions)
        return ModelRequestParameters(
            function_tools=self._tools.definitions,
            output_mode="tool",
            output_tools=[self._answer.tool],
            allow_text_output=False,
        )

    def _delta_of(self, part: object) -> SessionEvent | None:
        text, kind = "", "text"
        match part:
            case PartStartEvent(part=TextPart(content=content)):
                text = content
            case PartDeltaEvent(delta=TextPartDelta(content_delta=content)):
                text = content
            case PartStartEvent(part=ThinkingPart(content=content)):
                text, kind = content, "reasoning"
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=content)):
                text, kind = content or "", "reasoning"
            # The answer to a schema comes as a call, and is the child's own words all the same.
            case PartStartEvent(index=index, part=ToolCallPart(tool_name=name, args=arguments)) if name == ANSWER_TOOL:
                self._answer_parts.add(index)
                text = answer_text(arguments)
            case PartDeltaEvent(index=index, delta=ToolCallPartDelta(args_delta=arguments)):
                text = answer_text(arguments) if index in self._answer_parts else ""
        if not text:
            return None
        index = part.index  # type: ignore[attr-defined]  # every part event has one
        if kind == "reasoning":
            return events.reasoning_delta(text, turn=self._turn, step=self._step, index=index)
        self._streamed.append(text)
        return events.text_delta(text, turn=self._turn, step=self._step, index=index)

    def _commit(self, response: ModelResponse) -> list[SessionEvent]:
        """The reply as a message, judged before any tool runs."""
        self._judge(response)
        content = blocks_of(response)
        if self._answer is not None:
            content = self._answer.shown(content)
        if response.finish_reason in _CUTS:
            # A call that came with a cut may be half a call: it is not run, and not kept.
            content = [block for block in content if block["type"] != "tool-call"]
            response = replace(response, parts=[p for p in response.parts if not isinstance(p, ToolCallPart)])
        self._response = response
        message = events.assistant_message(
            content, turn=self._turn, step=self._step, usage=usage_of(response.usage), id=response.provider_response_id
        )
        return [message, self._history.add(response, turn=self._turn)]

    def _judge(self, response: ModelResponse) -> None:
        """Set the end, if this reply is one. The same for a reply that just came and for one taken up from the log."""
        calls = _calls_of(response)
        if (cut := _CUTS.get(response.finish_reason)) is not None:
            reason, category = cut
            if response.finish_reason == "length" and any(call.tool_name != ANSWER_TOOL for call in calls):
                category = "truncated-tool-call"
            self._finish(reason, Diagnostic(backend=BACKEND, stage="model", category=category))
        elif self._answer is not None:
            verdict = self._answer.judge(response, calls)
            if verdict == "met":
                self._finish(contract.COMPLETED, structured=self._answer.value)
            elif verdict == "given up":
                self._finish(contract.ERROR, Diagnostic(backend=BACKEND, stage="model", category="schema-not-met"))
        elif not calls:
            if blocks_of(response):
                self._finish(contract.COMPLETED)
            else:
                self._finish(contract.ERROR, Diagnostic(backend=BACKEND, stage="model", category="empty-reply"))

    def _interrupted(self) -> list[SessionEvent]:
        """What a cancelled step had said, as its message."""
        said: list[SessionEvent] = []
        if self._streamed:
            content = [text_block("".join(self._streamed))]
            said.append(events.assistant_message(content, turn=self._turn, step=self._step, interrupted=True))
        self._finish(contract.ABORTED)
        return said

    # -- the tools ---------------------------------------------------------------------------------------------------

    async def _answer_calls(self, response: ModelResponse) -> AsyncGenerator[SessionEvent, None]:
        """Run the reply's tools and give the model their results. All calls are logged before the first one runs."""
        parts: list[ModelRequestPart] = []
        to_run: list[ToolCallPart] = []
        for call in _calls_of(response):
            if self._answer is not None and call.tool_name == ANSWER_TOOL:
                parts.append(_return_of(call, ToolOutcome([text_block(self._answer.complaint)], is_error=True)))
            elif (logged := self._history.results.get(call.tool_call_id)) is not None:
                outcome = ToolOutcome(list(logged.get("content", [])), bool(logged.get("is_error")))
                parts.append(_return_of(call, outcome))
            elif call.tool_call_id in self._history.begun and call.tool_name in self._tools.of_host:
                # By its id it is the same call: nothing is started a second time.
                to_run.append(call)
            elif call.tool_call_id in self._history.begun:
                outcome = ToolOutcome([text_block(events.UNKNOWN_OUTCOME)], is_error=True)
                parts.append(_return_of(call, outcome))
                yield self._result_event(call, outcome)
            else:
                yield events.tool_call(call.tool_call_id, call.tool_name, call.args, turn=self._turn, step=self._step)
                to_run.append(call)
        if to_run:
            outcomes = await self._run(to_run)
            if outcomes is None:
                self._finish(contract.ABORTED)
                return
            for call, outcome in zip(to_run, outcomes, strict=True):
                parts.append(_return_of(call, outcome))
                yield self._result_event(call, outcome)
        if not parts:
            assert self._answer is not None, "a whole reply without calls ends the turn"
            parts.append(UserPromptPart(content=self._answer.complaint))
        yield self._history.add(ModelRequest(parts=parts), turn=self._turn)

    async def _run(self, calls: Sequence[ToolCallPart]) -> list[ToolOutcome] | None:
        """The outcomes in order; None if the turn was cancelled meanwhile."""
        if self._cancelled.is_set():
            return None
        self._work = asyncio.create_task(self._run_all(calls))
        await asyncio.wait([self._work])
        if self._work.cancelled():
            return None
        outcomes: list[ToolOutcome] = self._work.result()
        return outcomes

    async def _run_all(self, calls: Sequence[ToolCallPart]) -> list[ToolOutcome]:
        return list(await asyncio.gather(*(self._call(call) for call in calls)))

    async def _call(self, call: ToolCallPart) -> ToolOutcome:
        try:
            arguments = call.args_as_dict(raise_if_invalid=True)
        except (ValueError, AssertionError):
            complaint = "The arguments are not a JSON object; the tool was not run."
            return ToolOutcome([text_block(complaint)], is_error=True)
        return await self._tools.call(call.tool_name, arguments, call_id=call.tool_call_id)

    def _result_event(self, call: ToolCallPart, outcome: ToolOutcome) -> SessionEvent:
        return events.tool_result(
            call.tool_call_id, outcome.content, turn=self._turn, step=self._step, is_error=outcome.is_error
        )

    # -- beginning and end -------------------------------------------------------------------------------------------

    def _first_request(self) -> ModelRequest:
        prompt = UserPromptPart(content=events.text_of(self._task.prompt_blocks))
        if self._task.persona is None:
            return ModelRequest(parts=[prompt])
        return ModelRequest(parts=[SystemPromptPart(content=self._task.persona), prompt])

    def _finish(self, reason: str, diagnostic: Diagnostic | None = None, *, structured: Any = None) -> None:
        facts = diagnostic.model_dump(exclude_none=True) if diagnostic else None
        self._end = events.turn_end(reason, turn=self._turn, diagnostic=facts, structured=structured)

    async def _cancelled_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._cancelled.wait()
        except TimeoutError:
            return False
        return True


def _calls_of(response: ModelResponse) -> list[ToolCallPart]:
    return [part for part in response.parts if isinstance(part, ToolCallPart)]


def _return_of(call: ToolCallPart, outcome: ToolOutcome) -> ToolReturnPart:
    return ToolReturnPart(
        tool_name=call.tool_name,
        content=outcome.text or json.dumps(None),
        tool_call_id=call.tool_call_id,
        outcome="failed" if outcome.is_error else "success",
    )


def _reason_of(diagnostic: Diagnostic) -> str:
    if diagnostic.category in ("content-filter", "refusal"):
        return contract.REFUSAL
    if diagnostic.category in ("max-tokens", "truncated-tool-call"):
        return contract.MAX_TOKENS
    return contract.ERROR
