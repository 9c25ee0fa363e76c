"""Who calls, and what of the deployment's a caller may use."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from lastword.core.contract import DelegationRequest
from lastword.core.conversation import ConversationRequest, Message
from lastword.core.errors import DelegationNotFound, RequestInvalid
from lastword.settings import McpPolicy


@dataclass(frozen=True)
class Caller:
    """One parent. What it starts has its mark in the id: it finds that again after a reconnect, and sees no other's."""

    name: str
    cwd: str | None = None
    """Where its children work."""

    @property
    def prefix(self) -> str:
        """What the ids of its children begin with."""
        slug = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")[-24:].strip("-") or "caller"
        return f"mcp-{slug}-{hashlib.sha256(self.name.encode(errors='replace')).hexdigest()[:10]}-"

    def check(self, id: str) -> str:
        """The id, if it is one of its own tree. Raises DelegationNotFound, the same for another's and for none."""
        if not id.startswith(self.prefix):
            raise DelegationNotFound(f"You have no child {id!r}; the tool `list` shows which you have.")
        return id


def delegation_of(policy: McpPolicy, caller: Caller, chosen: dict[str, Any]) -> DelegationRequest:
    """The request of one delegation. Raises RequestInvalid for a backend or model that is not on offer."""
    return DelegationRequest.model_validate(_fields(policy, caller, chosen))


def conversation_of(policy: McpPolicy, caller: Caller, chosen: dict[str, Any]) -> ConversationRequest:
    """The same of a child that can be asked more."""
    fields = _fields(policy, caller, chosen)
    first = Message(id="m-1", prompt=fields.pop("prompt"))
    return ConversationRequest.model_validate({**fields, "first": first})


def _fields(policy: McpPolicy, caller: Caller, chosen: dict[str, Any]) -> dict[str, Any]:
    return {
        "prompt": chosen["prompt"],
        "label": chosen.get("label"),
        "backend": _offered("backend", chosen.get("backend"), policy.backends) or policy.backends[0],
        "model": _offered("model", chosen.get("model"), policy.models) or next(iter(policy.models), None),
        "cwd": caller.cwd,
        "persona": policy.persona,
        "limits": policy.limits,
        "permissions": policy.permissions,
        "delegation": policy.delegation,
    }


def _offered(what: str, asked: str | None, offered: list[str]) -> str | None:
    if asked is not None and asked not in offered:
        raise RequestInvalid(f"The {what} {asked!r} is not on offer; choose one of: {', '.join(offered) or 'none'}.")
    return asked
