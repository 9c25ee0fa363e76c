"""What a turn has spent, counted from its events, and whether the next event would go over a limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from lastword.core.contract import Limits, Usage
from lastword.core.diagnostic import Diagnostic
from lastword.core.events import ASSISTANT_ATTEMPT, ASSISTANT_MESSAGE, STEP_START, TOOL_CALL, SessionEvent


class Tally(BaseModel):
    """Counts over all attempts of one turn. Plain data: it travels in the checkpoint."""

    steps: int = 0
    tool_calls: int = 0
    usage: Usage = Usage()
    delegated: Usage = Usage()
    """What its children have spent. It is not the child's own usage, but its limits are for both."""

    @property
    def spent(self) -> Usage:
        return self.usage + self.delegated

    def push(self, event: SessionEvent) -> None:
        if event.type == STEP_START:
            self.steps += 1
        elif event.type == TOOL_CALL:
            self.tool_calls += 1
        elif event.type in (ASSISTANT_MESSAGE, ASSISTANT_ATTEMPT) and "usage" in event.data:
            self.usage = self.usage + _usage_of(event.data["usage"])

    def refusal(self, event: SessionEvent, limits: Limits, backend: str) -> Diagnostic | None:
        """The limit that this next event would break, before it takes effect; None if it may go ahead."""
        if event.type == STEP_START:
            if limits.steps is not None and self.steps >= limits.steps:
                return Diagnostic(backend=backend, category="step-limit", limit=limits.steps)
            if limits.tokens is not None and self.spent.tokens >= limits.tokens:
                return Diagnostic(backend=backend, category="token-limit", limit=limits.tokens)
            if limits.cost_usd is not None and (self.spent.cost_usd or 0.0) >= limits.cost_usd:
                return Diagnostic(backend=backend, category="cost-limit", limit=limits.cost_usd)
        elif event.type == TOOL_CALL:
            if limits.tool_calls is not None and self.tool_calls >= limits.tool_calls:
                return Diagnostic(backend=backend, category="tool-call-limit", limit=limits.tool_calls)
            if limits.tokens is not None and self.spent.tokens >= limits.tokens:
                return Diagnostic(backend=backend, category="token-limit", limit=limits.tokens)
        return None


def _usage_of(data: Any) -> Usage:
    if not isinstance(data, Mapping):
        return Usage()
    try:
        return Usage.model_validate(data)
    except ValidationError:
        return Usage()
