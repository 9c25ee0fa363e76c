"""The child's message history: what the model sees, and how a turn is taken up again from its log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse

from lastword.core.events import BACKEND_STATE, TOOL_CALL, TOOL_RESULT, SessionEvent, backend_state


@dataclass
class History:
    """The messages so far, and what the log tells of the last response's tool calls."""

    messages: list[ModelMessage] = field(default_factory=list)
    begun: set[str] = field(default_factory=set)
    """Ids of the tool calls that began in an earlier attempt."""
    results: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The data of the `tool/result` events, by the call's id."""

    @classmethod
    def of_events(cls, logged: Sequence[SessionEvent]) -> History:
        """What an earlier attempt left in the log."""
        history = cls()
        for event in logged:
            if event.type == BACKEND_STATE:
                history._take(ModelMessagesTypeAdapter.validate_python(event.data["state"]["messages"]))
            elif event.type == TOOL_CALL:
                history.begun.add(str(event.data.get("id")))
            elif event.type == TOOL_RESULT:
                history.results[str(event.data.get("id"))] = event.data
        return history

    @property
    def open_response(self) -> ModelResponse | None:
        """The last message, if it is a response that nothing followed."""
        last = self.messages[-1] if self.messages else None
        return last if isinstance(last, ModelResponse) else None

    def add(self, message: ModelMessage, *, turn: int) -> SessionEvent:
        """Take the message in; the event makes it part of the log."""
        self._take([message])
        return backend_state({"messages": ModelMessagesTypeAdapter.dump_python([message], mode="json")}, turn=turn)

    def _take(self, messages: Sequence[ModelMessage]) -> None:
        self.messages += messages
        # They belong to one response; some providers give the same ids again in the next.
        self.begun.clear()
        self.results.clear()
