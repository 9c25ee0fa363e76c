"""Hosts of children for tests that have no worker."""

from __future__ import annotations

from lastword.core.permissions import PermissionDecision, PermissionRequest, Verdict


class FixedHost:
    """Answers every permission alike, and keeps what was asked."""

    def __init__(self, decision: Verdict = "reject") -> None:
        self.decision: Verdict = decision
        self.asked: list[PermissionRequest] = []

    async def permission(self, request: PermissionRequest) -> PermissionDecision:
        self.asked.append(request)
        return PermissionDecision(decision=self.decision)
