"""What a child may ask its host to permit, by which policy it is answered, and what it is told.

The policy belongs to the deployment or the caller, never to a model. Without one every request is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

PermissionMode: TypeAlias = Literal["reject", "allow", "rules", "ask"]
Verdict: TypeAlias = Literal["allow", "reject"]
Reason: TypeAlias = Literal["policy", "rule", "answer", "deadline"]

TOOL_KINDS: Final = frozenset(
    {"read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"}
)
"""ACP's tool kinds (agentclientprotocol.com, "Tool Calls"); what a child calls otherwise is `other`."""

WORKSPACE: Final = "workspace"

ToolKind: TypeAlias = Literal[
    "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"
]


class PermissionRequest(BaseModel):
    """A child asks before it does something. `title` and `input` are the child's words: for a person and the log."""

    model_config = ConfigDict(frozen=True)

    kind: str
    tool_call_id: str | None = None
    title: str = ""
    paths: list[str] = []
    """What it would touch, as far as the child says so."""
    input: object = None


class PermissionDecision(BaseModel):
    model_config = ConfigDict(frozen=True)

    decision: Verdict
    reason: Reason = "policy"


class PermissionRule(BaseModel):
    """Matches by kind and by place. A rule with a place matches only a request whose every path lies in it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kinds: list[ToolKind] | None = None
    """None is any kind."""
    within: str | None = None
    """`workspace`, or an absolute directory. A request that names no path is in no place."""
    decision: Literal["allow", "reject", "ask"]

    def matches(self, kind: str, paths: Sequence[str], workspace: str | None) -> bool:
        if self.kinds is not None and kind not in self.kinds:
            return False
        if self.within is None:
            return True
        place = workspace if self.within == WORKSPACE else self.within
        return place is not None and bool(paths) and all(PurePath(path).is_relative_to(place) for path in paths)


class PermissionPolicy(BaseModel):
    """How a turn's permission requests are answered.

    `reject` and `allow` answer all of them. `rules` takes the first rule that matches and rejects what none does; `ask`
    does the same, and asks a person about what none does.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: PermissionMode = "reject"
    rules: list[PermissionRule] = []
    answer_within: float = Field(default=3600.0, gt=0, le=30 * 24 * 3600, allow_inf_nan=False)
    """Seconds a question waits for its answer; then it is rejected."""

    def decide(
        self, kind: str, paths: Sequence[str], workspace: str | None
    ) -> tuple[Literal["allow", "reject", "ask"], Reason]:
        """The decision and its reason. `paths` and `workspace` are absolute and free of links."""
        if self.mode in ("reject", "allow"):
            return ("allow" if self.mode == "allow" else "reject"), "policy"
        for rule in self.rules:
            if rule.matches(kind, paths, workspace):
                return rule.decision, "rule"
        return ("ask" if self.mode == "ask" else "reject"), "policy"


class Question(BaseModel):
    """A permission request that waits for a person. It travels through workflow history: no tool input."""

    id: str
    delegation_id: str = ""
    kind: str
    title: str = ""
    paths: list[str] = []
    tool_call_id: str | None = None
    asked: int
    """Epoch milliseconds."""
    answer_within: float


class Answer(BaseModel):
    """A person's answer to a question; `question` None is the only one that is open."""

    decision: Verdict
    question: str | None = None


def known_kind(kind: object) -> str:
    """The kind, or `other` for what ACP does not know."""
    return kind if isinstance(kind, str) and kind in TOOL_KINDS else "other"
