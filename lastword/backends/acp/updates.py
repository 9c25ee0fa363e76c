"""What an ACP agent tells while it works, as session events.

Read as plain data, field by field: agents send updates that the schema does not know, and leave out what it asks for.
An update that cannot be read is skipped; nothing of it is logged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lastword.backends.acp.agents import AcpAgent
from lastword.core import events
from lastword.core.events import Block, JsonObject, SessionEvent, text_block
from lastword.core.permissions import known_kind


class UpdateReader:
    """Turns one prompt's updates into events, and keeps the prompt's own words for the message at its end.

    A chunk protocol has no messages; where a `messageId` or a tool call parts the words, a step ends and the message
    gets a block of its own. An attempt that the agent itself gave up is not part of the message.
    """

    def __init__(self, agent: AcpAgent, *, turn: int, step: int) -> None:
        self._agent = agent
        self._retries = [re.compile(pattern, re.S) for pattern in agent.retries]
        self._notices = [*self._retries, *(re.compile(pattern, re.S) for pattern in agent.notices)]
        self._turn = turn
        self._step = step
        self._in_step = False
        self._message_id: str | None = None
        self._notice_id: str | None = None
        self._steps: list[list[Block | list[str]]] = []
        """Of each step its blocks; a text block as the pieces it came in."""
        self._tools: dict[str, bool] = {}
        self._answered = False
        self.failed = False
        """The agent said of itself that it broke, whatever it answers."""
        self.tools_finished = 0
        self.cost_usd: float | None = None

    @property
    def message(self) -> list[Block]:
        """The words of this prompt, less those of attempts that were given up."""
        blocks = [block for step in self._steps for block in step]
        return [text_block("".join(block)) if isinstance(block, list) else block for block in blocks]

    @property
    def step(self) -> int:
        """The last step, at least the first."""
        return max(self._step, 1)

    def read(self, update: Mapping[str, Any]) -> Iterator[SessionEvent]:
        """The events of one `session/update`."""
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                yield from self._words(update)
            case "agent_thought_chunk":
                if text := _text_of(update.get("content")):
                    yield from self._begin_step(None)
                    yield events.reasoning_delta(text, turn=self._turn, step=self._step)
            case "tool_call" | "tool_call_update":
                yield from self._tool(update)
            case "session_info_update":
                yield from self._info(update)
            case "usage_update":
                self._cost(update.get("cost"))

    def _words(self, update: Mapping[str, Any]) -> Iterator[SessionEvent]:
        content, message_id = update.get("content"), update.get("messageId")
        text = _text_of(content)
        if text is not None and self._is_the_agents_own(text, message_id):
            if any(pattern.fullmatch(text) for pattern in self._retries):
                yield from self._give_up()
            yield events.agent_notice(text, turn=self._turn)
            return
        if text == "":
            return
        message_id = message_id if isinstance(message_id, str) else None
        if text is not None:
            yield from self._begin_step(message_id)
            blocks = self._steps[-1]
            if blocks and isinstance(blocks[-1], list):
                blocks[-1].append(text)
            else:
                blocks.append([text])
            yield events.text_delta(text, turn=self._turn, step=self._step)
        elif isinstance(content, Mapping) and content.get("type") != "text" and isinstance(content.get("type"), str):
            yield from self._begin_step(message_id)
            self._steps[-1].append(dict(content))

    def _is_the_agents_own(self, text: str, message_id: object) -> bool:
        if not isinstance(message_id, str):
            return self._agent.unidentified_notices or any(pattern.fullmatch(text) for pattern in self._notices)
        begins = not (self._in_step and message_id == self._message_id)
        if begins and any(pattern.match(text) for pattern in self._notices):
            self._notice_id = message_id
        return message_id == self._notice_id

    def _begin_step(self, message_id: str | None) -> Iterator[SessionEvent]:
        if self._in_step and (message_id is None or self._message_id in (None, message_id)):
            self._message_id = self._message_id or message_id
            return
        self._message_id = message_id
        self._in_step = True
        self._answered = False
        self._step += 1
        self._steps.append([])
        yield events.step_start(turn=self._turn, step=self._step)

    def _tool(self, update: Mapping[str, Any]) -> Iterator[SessionEvent]:
        id = update.get("toolCallId")
        if not isinstance(id, str):
            return
        arguments, title = update.get("rawInput"), update.get("title")
        name = title if isinstance(title, str) else "tool"
        if id not in self._tools:
            # Without words before it, a call after the last one's result comes of another model request.
            if not self._steps or (self._answered and all(self._tools.values())):
                yield from self._begin_step(None)
            self._tools[id] = False
            yield events.tool_call(id, name, arguments, turn=self._turn, step=self._step)
        elif not self._tools[id] and (arguments or isinstance(title, str)):
            yield events.tool_update(id, name, arguments, turn=self._turn, step=self._step)
        if update.get("status") in ("completed", "failed") and not self._tools[id]:
            self._tools[id] = self._answered = True
            self.tools_finished += 1
            yield events.tool_result(
                id,
                _tool_content(update),
                turn=self._turn,
                step=self.step,
                is_error=update.get("status") == "failed",
            )
        # What the model says next is another message.
        self._in_step = False

    def _info(self, update: Mapping[str, Any]) -> Iterator[SessionEvent]:
        """codex tells in `_meta` that it tries again, and, however it answers, that it broke."""
        facts = _at(update, "_meta", "codex")
        if _at(facts, "threadStatus", "type") == "systemError":
            self.failed = True
        if _at(facts, "error", "willRetry") is True:
            yield from self._give_up()

    def _give_up(self) -> Iterator[SessionEvent]:
        """The words since the last tool call are an attempt that committed no message."""
        if self._in_step:
            self._in_step = False
            self._steps.pop()
            yield events.assistant_attempt(turn=self._turn, step=self._step)

    def _cost(self, cost: object) -> None:
        if isinstance(cost, Mapping) and cost.get("currency") == "USD" and isinstance(cost.get("amount"), int | float):
            self.cost_usd = float(cost["amount"])


def usage_of(answer: Mapping[str, Any], cost_usd: float | None) -> JsonObject | None:
    """The prompt's usage in our terms, from ACP's `usage` or the `_meta.quota` that gemini sends; None if not told."""
    usage = answer.get("usage")
    if isinstance(usage, Mapping):
        names = {
            "input_tokens": "inputTokens",
            "output_tokens": "outputTokens",
            "cache_read_tokens": "cachedReadTokens",
            "cache_write_tokens": "cachedWriteTokens",
        }
    else:
        usage = _at(answer, "_meta", "quota", "token_count")
        names = {"input_tokens": "input_tokens", "output_tokens": "output_tokens"}
    found: JsonObject = {}
    if isinstance(usage, Mapping):
        found = {ours: usage[theirs] for ours, theirs in names.items() if isinstance(usage.get(theirs), int)}
    if cost_usd is not None:
        found["cost_usd"] = cost_usd
    return found or None


def paths_of(tool_call: Mapping[str, Any]) -> list[str]:
    """What a tool call would touch, as far as it says so: its locations, its diffs, a path among its arguments."""
    told = [*_list(tool_call.get("locations")), *_list(tool_call.get("content"))]
    found = [_at(item, "path") for item in told]
    found += [_at(tool_call.get("rawInput"), name) for name in ("path", "file_path", "filePath", "abs_path")]
    return list(dict.fromkeys(path for path in found if isinstance(path, str) and path))


def kind_of(tool_call: Mapping[str, Any]) -> str:
    return known_kind(tool_call.get("kind"))


def _tool_content(update: Mapping[str, Any]) -> list[Block]:
    blocks: list[Block] = []
    for item in _list(update.get("content")):
        inner = item.get("content") if isinstance(item, Mapping) else None
        if isinstance(inner, Mapping) and isinstance(inner.get("type"), str):
            blocks.append(dict(inner))
        elif isinstance(item, Mapping) and item.get("type") == "diff":
            blocks.append({"type": "diff", **{k: item.get(k) for k in ("path", "oldText", "newText")}})
    raw = update.get("rawOutput")
    if not blocks and isinstance(raw, str):
        blocks.append(text_block(raw))
    return blocks


def _text_of(content: object) -> str | None:
    """The text of a text block, None for any other."""
    if isinstance(content, Mapping) and content.get("type") == "text" and isinstance(content.get("text"), str):
        return str(content["text"])
    return None


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _at(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
