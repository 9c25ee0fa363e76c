"""The child's message history: what the model sees, and how a turn is taken up again from its log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from lastword.core.events import (
    ASSISTANT_MESSAGE,
    BACKEND_STATE,
    TOOL_CALL,
    TOOL_RESULT,
    SessionEvent,
    backend_state,
    text_of,
)
from lastword.core.ports import Earlier


@dataclass
class History:
    """The messages so far, and what the log tells of the last response's tool calls."""

    own: list[ModelMessage] = field(default_factory=list)
    """This turn's."""
    before: list[ModelMessage] = field(default_factory=list)
    """Those of the conversation before this turn."""
    begun: set[str] = field(default_factory=set)
    """Ids of the tool calls that began in an earlier attempt."""
    results: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The data of the `tool/result` events, by the call's id."""

    @classmethod
    def of_events(cls, logged: Sequence[SessionEvent], *, before: Sequence[ModelMessage] = ()) -> History:
        """What an earlier attempt left in the log, and the conversation before it."""
        history = cls(before=list(before))
        for event in logged:
            if event.type == BACKEND_STATE:
                history._take(ModelMessagesTypeAdapter.validate_python(event.data["state"]["messages"]))
            elif event.type == TOOL_CALL:
                history.begun.add(str(event.data.get("id")))
            elif event.type == TOOL_RESULT:
                history.results[str(event.data.get("id"))] = event.data
        return history

    @property
    def all(self) -> list[ModelMessage]:
        """What the model sees."""
        return [*self.before, *self.own]

    @property
    def open_response(self) -> ModelResponse | None:
        """The last message, if it is a response that nothing followed."""
        last = self.own[-1] if self.own else None
        return last if isinstance(last, ModelResponse) else None

    def add(self, message: ModelMessage, *, turn: int) -> SessionEvent:
        """Take the message in; the event makes it part of the log."""
        self._take([message])
        return backend_state({"messages": ModelMessagesTypeAdapter.dump_python([message], mode="json")}, turn=turn)

    def _take(self, messages: Sequence[ModelMessage]) -> None:
        self.own += messages
        # They belong to one response; some providers give the same ids again in the next.
        self.begun.clear()
        self.results.clear()


NOT_RUN = "Not run: the turn was ended before."


def past_of(earlier: Earlier | None) -> list[ModelMessage]:
    """A conversation's earlier turns as messages that a provider takes: each call with its result, no partial lost."""
    if earlier is None:
        return []
    past: list[ModelMessage] = []
    for said in earlier.seed:
        text = text_of(said.blocks)
        if said.role == "user":
            past.append(ModelRequest(parts=[UserPromptPart(content=text)]))
        else:
            past.append(ModelResponse(parts=[TextPart(content=text)]))
    for event in earlier.events:
        if event.type == BACKEND_STATE and "messages" in event.data.get("state", {}):
            for message in ModelMessagesTypeAdapter.validate_python(event.data["state"]["messages"]):
                _close_calls(past, message)
                past.append(message)
        elif event.type == ASSISTANT_MESSAGE and event.data.get("interrupted"):
            past.append(ModelResponse(parts=[TextPart(content=text_of(event.data["message"]["content"]))]))
    _close_calls(past, None)
    return past


def _close_calls(past: list[ModelMessage], following: ModelMessage | None) -> None:
    """Answer the last response's calls that nothing answered: a cancel or a loss came in between."""
    last = past[-1] if past else None
    calls = [part for part in last.parts if isinstance(part, ToolCallPart)] if isinstance(last, ModelResponse) else []
    answered = isinstance(following, ModelRequest) and any(isinstance(p, ToolReturnPart) for p in following.parts)
    if calls and not answered:
        returns = [
            ToolReturnPart(tool_name=call.tool_name, content=NOT_RUN, tool_call_id=call.tool_call_id) for call in calls
        ]
        past.append(ModelRequest(parts=returns))
