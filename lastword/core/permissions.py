"""What a child may ask its host to permit, and what it is told."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

PermissionMode: TypeAlias = Literal["reject", "allow", "rules", "ask"]


class PermissionRequest(BaseModel):
    """A child asks before it does something. `kind` is ACP's tool kind (`read`, `edit`, `execute`, ...)."""

    model_config = ConfigDict(frozen=True)

    kind: str
    tool_call_id: str | None = None
    paths: list[str] = []


class PermissionDecision(BaseModel):
    model_config = ConfigDict(frozen=True)

    decision: Literal["allow", "reject"]
    reason: Literal["policy", "rule", "answer", "deadline"] = "policy"
