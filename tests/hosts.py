"""Hosts of children for tests that have no worker."""

from __future__ import annotations

from lastword.core.contract import DelegateCall, ToolResult
from lastword.core.permissions import PermissionDecision, PermissionRequest, Verdict


class FixedHost:
    """Answers every permission alike, and keeps what was asked."""

    def __init__(self, decision: Verdict = "reject") -> None:
        self.decision: Verdict = decision
        self.asked: list[PermissionRequest] = []
        self.delegated: list[DelegateCall] = []
        self.may_delegate = False

    async def permission(self, request: PermissionRequest) -> PermissionDecision:
        self.asked.append(request)
        return PermissionDecision(decision=self.decision)

    async def delegate(self, call: DelegateCall) -> ToolResult:
        self.delegated.append(call)
        return ToolResult(is_error=False, content=[{"type": "text", "text": f"answer to {call.prompt}"}])
