"""The diagnostic: a safe, bounded note about a failure, made of allow-listed facts only.

A backend never writes prose here. It names the stage and the category, and a few numbers; the words are ours. So no
tool input, file content, path, environment value, credential, stderr line or provider prose can get in.
"""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict

from lastword.core.permissions import PermissionMode, Reason, Verdict

MAX_BYTES: Final = 4096
CUT_MARK: Final = " [cut]"

CATEGORIES: Final = frozenset(
    {
        "agent-cancelled",
        "agent-error",
        "authentication",
        "connection",
        "context-window",
        "cost-limit",
        "crash",
        "content-filter",
        "empty-reply",
        "handshake",
        "idle-limit",
        "internal",
        "invalid-request",
        "max-tokens",
        "missing-key",
        "no-answer",
        "not-found",
        "ownership-lost",
        "protocol",
        "provider-error",
        "rate-limit",
        "refusal",
        "schema-not-met",
        "session-lost",
        "scripted",
        "session-log",
        "step-limit",
        "teardown",
        "token-limit",
        "tool-call-limit",
        "tool-server",
        "truncated-tool-call",
        "unfinished",
        "wall-clock-limit",
        "worker-lost",
    }
)


class PermissionFact(BaseModel):
    """The latest permission decision of the turn."""

    model_config = ConfigDict(frozen=True)

    mode: PermissionMode
    request_kind: str
    decision: Verdict
    reason: Reason


class Diagnostic(BaseModel):
    """The facts. `stage` and `category` outside the known words are shown as `unknown`.

    `rpc_code` is JSON-RPC's error code. `retry_after` and `limit` are in seconds for times, plain counts otherwise;
    `missing_events` is a count.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    backend: str
    stage: str = "turn"
    category: str = "unknown"
    http_status: int | None = None
    rpc_code: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    retry_after: float | None = None
    limit: float | None = None
    attempts: int | None = None
    missing_events: int | None = None
    permission: PermissionFact | None = None

    def render(self) -> str:
        """One line of `name=value` facts, at most 4,096 bytes of UTF-8."""
        category = self.category if self.category in CATEGORIES else "unknown"
        stage = self.stage if self.stage in STAGES else "unknown"
        facts = [f"backend={self.backend}", f"stage={stage}", f"category={category}"]
        for name in (
            "http_status",
            "rpc_code",
            "exit_code",
            "signal",
            "retry_after",
            "limit",
            "attempts",
            "missing_events",
        ):
            value = getattr(self, name)
            if value is not None:
                facts.append(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}")
        if self.permission is not None:
            p = self.permission
            facts.append(f"permission={p.mode}/{p.request_kind}/{p.decision}/{p.reason}")
        return bounded(" ".join(facts))


STAGES: Final = frozenset({"open", "handshake", "model", "tool", "turn", "cancel", "teardown", "recovery", "log"})


def bounded(text: str) -> str:
    """The text cut at a code point to the diagnostic's limit, with a visible mark."""
    raw = text.encode()
    if len(raw) <= MAX_BYTES:
        return text
    return raw[: MAX_BYTES - len(CUT_MARK)].decode(errors="ignore") + CUT_MARK
