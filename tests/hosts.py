"""Hosts of children for tests that have no worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lastword.core.contract import ToolResult
from lastword.core.events import text_block
from lastword.core.host_tools import ToolSpec
from lastword.core.permissions import PermissionDecision, PermissionRequest, Verdict


class FixedHost:
    """Answers every permission alike, and keeps what was asked and called."""

    def __init__(self, decision: Verdict = "reject", tools: Sequence[ToolSpec] = ()) -> None:
        self.decision: Verdict = decision
        self.tools = tools
        self.asked: list[PermissionRequest] = []
        self.called: list[tuple[str, dict[str, Any], str]] = []

    async def permission(self, request: PermissionRequest) -> PermissionDecision:
        self.asked.append(request)
        return PermissionDecision(decision=self.decision)

    async def call(
        self, tool: str, arguments: Mapping[str, Any], *, call_id: str, patience: float | None = None
    ) -> ToolResult:
        self.called.append((tool, dict(arguments), call_id))
        return ToolResult(is_error=False, content=[text_block(f"answer to {arguments.get('prompt')}")])
