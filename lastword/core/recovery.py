"""What the next attempt does with a turn that another attempt began: one decision, in one place."""

from __future__ import annotations

from typing import Literal, TypeAlias

from lastword.core.contract import OnWorkerLoss

Plan: TypeAlias = Literal["finished", "resume", "restart", "settle"]

MAX_LOSSES = 3
"""Attempts that may be lost with their worker before the turn settles."""


def plan_recovery(
    policy: OnWorkerLoss, *, ended: bool, resumable: bool, tools_called: bool, asked_to_settle: bool
) -> Plan:
    """Decide from what the log shows.

    A sealed end is never run again. What cannot resume restarts only if no tool was called, for a second run could do
    the tool's work twice; `restart` as the policy asks for that.
    """
    if ended:
        return "finished"
    if asked_to_settle or policy == "settle":
        return "settle"
    if policy == "restart":
        return "restart"
    if resumable:
        return "resume"
    return "settle" if tools_called else "restart"
