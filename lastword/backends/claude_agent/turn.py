"""One prompt to Claude Code by its SDK: its stream events, messages and result as session events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import aclosing
from typing import Any, Final, cast

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeSDKClient,
    ClaudeSDKError,
    PermissionResultAllow,
    PermissionResultDeny,
    ProcessError,
    ResultMessage,
    StreamEvent,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolPermissionContext,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)

from lastword.backends.child_process import exit_facts
from lastword.core import contract, events
from lastword.core.contract import SessionRef, TurnSpec
from lastword.core.events import Block, JsonObject, SessionEvent, text_block
from lastword.core.permissions import PermissionRequest
from lastword.core.ports import ChildHost, Earlier, Resume
from lastword.core.taking_up import prompt_of

logger = logging.getLogger("lastword.child")

_KINDS: Final = {
    "Bash": "execute",
    "BashOutput": "execute",
    "KillShell": "execute",
    "Read": "read",
    "NotebookRead": "read",
    "Glob": "search",
    "Grep": "search",
    "LS": "search",
    "Edit": "edit",
    "MultiEdit": "edit",
    "Write": "edit",
    "NotebookEdit": "edit",
    "WebFetch": "fetch",
    "WebSearch": "fetch",
}
"""ACP's kinds for its tools, so that one policy fits every child."""

_ERRORS: Final = {
    "authentication_failed": "authentication",
    "billing_error": "authentication",
    "rate_limit": "rate-limit",
    "invalid_request": "invalid-request",
    "server_error": "provider-error",
    "max_output_tokens": "max-tokens",
}
_CAPS: Final = {"error_max_turns": "step-limit", "error_max_budget_usd": "cost-limit"}
_PARTS: Final = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_input_tokens": "cache_read_tokens",
    "cache_creation_input_tokens": "cache_write_tokens",
}


class ClaudeTurn:
    """Claude Code at work on a prompt."""

    def __init__(
        self,
        spec: TurnSpec,
        resume: Resume | None,
        earlier: Earlier | None,
        *,
        backend: str,
        client: ClaudeSDKClient,
        session_id: str | None,
    ) -> None:
        self._spec = spec
        self._resume = resume
        self._earlier = earlier
        self._backend = backend
        self._client = client
        self._session_id = session_id
        self._cancelled = False
        self._reader = MessageReader(turn=spec.turn, step=resume.next_step - 1 if resume else 0)

    @property
    def session(self) -> SessionRef | None:
        if self._session_id is None:
            return None
        return SessionRef(backend=self._backend, id=self._session_id, data={"cwd": self._spec.task.cwd})

    async def cancel(self) -> None:
        self._cancelled = True
        try:
            await self._client.interrupt()
        except (ClaudeSDKError, OSError) as error:
            logger.info("the interrupt of %s did not arrive: %s", self._spec.id, type(error).__name__)

    async def events(self) -> AsyncIterator[SessionEvent]:
        turn = self._spec.turn
        if self._resume is None:
            yield events.user_message(self._spec.task.prompt_blocks, turn=turn)
        facts: JsonObject = {"category": "unfinished"}
        try:
            await self._client.query(_once(self._prompt()))
            # It ends with the result. Closed by us, whatever this generator is left with.
            async with aclosing(cast(Any, self._client.receive_response())) as messages:
                async for message in messages:
                    for event in self._take(message):
                        yield event
                    if isinstance(message, ResultMessage):
                        yield self._ending(message)
                        return
        except ProcessError as error:
            facts = exit_facts(error.exit_code)
        except ClaudeSDKError:
            facts = {"category": "protocol"}
        for event in self._reader.finish():
            yield event
        if self._cancelled:
            yield events.turn_end(contract.ABORTED, turn=turn)
        else:
            yield events.turn_end(contract.ERROR, turn=turn, diagnostic=facts)

    def _take(self, message: object) -> list[SessionEvent]:
        if isinstance(message, SystemMessage):
            self._session_id = message.data.get("session_id") or self._session_id
        if not isinstance(message, ResultMessage):
            return self._reader.read(message)
        self._session_id = message.session_id or self._session_id
        if message.total_cost_usd is None:
            return []
        usage = {"cost_usd": message.total_cost_usd}
        return [events.assistant_attempt(turn=self._spec.turn, step=self._reader.step, usage=usage)]

    def _prompt(self) -> list[Block]:
        return [_to_anthropic(block) for block in prompt_of(self._spec, self._resume, self._earlier)]

    def _ending(self, result: ResultMessage) -> SessionEvent:
        reason, facts = self._judge(result)
        return events.turn_end(reason, turn=self._spec.turn, diagnostic=facts)

    def _judge(self, result: ResultMessage) -> tuple[str, JsonObject | None]:
        """`subtype` may say success of what failed; the error, the caps and the last reply's own end say how it was."""
        if self._cancelled:
            return contract.ABORTED, None
        if (cap := _CAPS.get(result.subtype)) is not None:
            return contract.BUDGET, {"category": cap}
        category = _ERRORS.get(self._reader.error or "")
        if category == "max-tokens" or (category is None and self._reader.stop_reason == "max_tokens"):
            return contract.MAX_TOKENS, {"category": "max-tokens"}
        if self._reader.stop_reason == "refusal":
            # It tells a refusal of its model as an invalid request.
            return contract.REFUSAL, None
        if result.is_error:
            facts: JsonObject = {"category": category or "agent-error"}
            if result.api_error_status is not None:
                facts["http_status"] = result.api_error_status
            return contract.ERROR, facts
        if self._reader.cut:
            return contract.ERROR, {"category": "connection"}
        if result.subtype != "success":
            return contract.ERROR, {"category": "agent-error"}
        if not self._reader.said and not self._reader.tools_finished:
            return contract.ERROR, {"category": "empty-reply"}
        return contract.COMPLETED, None


class MessageReader:
    """Turns the SDK's messages into events. A reply comes as a stream and, block by block, as messages of one id."""

    def __init__(self, *, turn: int, step: int) -> None:
        self._turn = turn
        self._step = step
        self._blocks: list[Block] = []
        self._usage: JsonObject = {}
        self._open = False
        self.stop_reason: str | None = None
        """How the model ended the last reply; None if it did not."""
        self.error: str | None = None
        self.cut = False
        """The last reply broke off without an end of its own."""
        self.said = False
        self.tools_finished = 0

    @property
    def step(self) -> int:
        return max(self._step, 1)

    def read(self, message: object) -> list[SessionEvent]:
        """The events of one message. What a subagent of its own says is not this child's words."""
        if getattr(message, "parent_tool_use_id", None) is not None:
            return []
        if isinstance(message, StreamEvent):
            return self._stream(message.event)
        if isinstance(message, AssistantMessage):
            return self._message(message)
        if isinstance(message, UserMessage) and isinstance(message.content, list):
            return [self._result(block) for block in message.content if isinstance(block, ToolResultBlock)]
        return []

    def finish(self) -> list[SessionEvent]:
        """The end of a reply that will not be told: its blocks so far, as interrupted."""
        if not self._open:
            return []
        self._open = False
        return [self._commit(interrupted=True)] if self._blocks else []

    def _stream(self, event: Mapping[str, Any]) -> list[SessionEvent]:
        match event.get("type"):
            case "message_start":
                ended = self.finish()
                self._open, self.stop_reason, self._blocks = True, None, []
                self._usage = _usage(event.get("message", {}).get("usage"))
                self._step += 1
                return [*ended, events.step_start(turn=self._turn, step=self._step)]
            case "content_block_delta":
                delta = event.get("delta", {})
                if text := delta.get("text"):
                    return [events.text_delta(str(text), turn=self._turn, step=self.step)]
                if thinking := delta.get("thinking"):
                    return [events.reasoning_delta(str(thinking), turn=self._turn, step=self.step)]
            case "message_delta":
                self.stop_reason = event.get("delta", {}).get("stop_reason")
                self._usage |= _usage(event.get("usage"))
            case "message_stop" if self._open:
                self._open = False
                self.cut = self.stop_reason is None
                if self._blocks:
                    return [self._commit(interrupted=self.cut)]
                if self.cut:
                    # Its connection was lost; the agent tries again by itself.
                    return [events.assistant_attempt(turn=self._turn, step=self.step, usage=self._usage or None)]
                return [self._commit()]
        return []

    def _message(self, message: AssistantMessage) -> list[SessionEvent]:
        if message.error is not None:
            # The agent's own words about a failure of its model.
            self.error = str(message.error)
            texts = [block.text for block in message.content if isinstance(block, TextBlock)]
            return [events.agent_notice(text, turn=self._turn) for text in texts]
        if not self._open:
            # Without a stream before it, a message is a step of its own.
            self._open, self.stop_reason, self._blocks, self._usage = True, message.stop_reason, [], {}
            self._step += 1
            started = [events.step_start(turn=self._turn, step=self._step)]
        else:
            started = []
        calls: list[SessionEvent] = []
        for block in message.content:
            if isinstance(block, TextBlock):
                self._blocks.append(text_block(block.text))
                self.said = True
            elif isinstance(block, ThinkingBlock):
                self._blocks.append({"type": "reasoning", "text": block.thinking})
            elif isinstance(block, ToolUseBlock):
                call = {"type": "tool-call", "id": block.id, "name": block.name, "arguments": block.input}
                self._blocks.append(call)
                calls.append(events.tool_call(block.id, block.name, block.input, turn=self._turn, step=self.step))
        return [*started, *calls]

    def _result(self, block: ToolResultBlock) -> SessionEvent:
        self.tools_finished += 1
        content = [text_block(block.content)] if isinstance(block.content, str) else list(block.content or [])
        return events.tool_result(
            block.tool_use_id, content, turn=self._turn, step=self.step, is_error=bool(block.is_error)
        )

    def _commit(self, *, interrupted: bool = False) -> SessionEvent:
        return events.assistant_message(
            self._blocks, turn=self._turn, step=self.step, usage=self._usage or None, interrupted=interrupted
        )


class PermissionRelay:
    """Asks the host what Claude Code asks."""

    def __init__(self, host: ChildHost, of_host: Collection[str]) -> None:
        self._host = host
        self._of_host = of_host

    async def __call__(
        self, tool: str, arguments: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResultAllow | PermissionResultDeny:
        if tool in self._of_host:
            # What the request itself lets the child do with its host is not asked for again.
            return PermissionResultAllow()
        told = [arguments.get(name) for name in ("file_path", "notebook_path", "path")]
        paths = [path for path in (*told, context.blocked_path) if isinstance(path, str) and path]
        words = [value for value in (arguments.get("command"), arguments.get("url")) if isinstance(value, str)]
        request = PermissionRequest(
            kind=_KINDS.get(tool, "other"),
            tool_call_id=context.tool_use_id,
            title=" ".join([tool, *words]),
            paths=list(dict.fromkeys(paths)),
            input=arguments,
        )
        decision = await self._host.permission(request)
        if decision.decision == "allow":
            return PermissionResultAllow()
        return PermissionResultDeny(message="The permission was refused. Go on without it.")


async def _once(blocks: list[Block]) -> AsyncIterator[dict[str, Any]]:
    yield {"type": "user", "message": {"role": "user", "content": blocks}, "parent_tool_use_id": None}
    await asyncio.sleep(0)


def _to_anthropic(block: Block) -> Block:
    if block.get("type") == "image":
        source = {"type": "base64", "media_type": block.get("mimeType"), "data": block.get("data")}
        return {"type": "image", "source": source}
    return block


def _usage(usage: object) -> JsonObject:
    if not isinstance(usage, Mapping):
        return {}
    return {ours: usage[its] for its, ours in _PARTS.items() if isinstance(usage.get(its), int)}
