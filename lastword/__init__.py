"""Durable delegation for AI agents: whatever cuts a child off, the parent gets its last word.

What a parent needs is here by name, and loaded when it is used: a module that wants one thing of lastword does not pay
for all.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lastword.agent_tool import delegate_tool
    from lastword.client import DelegationClient
    from lastword.conversing import ConversationClient
    from lastword.converter import data_converter
    from lastword.core.contract import DelegationRequest, DelegationResult
    from lastword.core.conversation import ConversationRequest
    from lastword.core.errors import LastwordError
    from lastword.facade import Lastword, SyncLastword, connect
    from lastword.many import Asked
    from lastword.plugin import LastwordPlugin

__all__ = [
    "Asked",
    "ConversationClient",
    "ConversationRequest",
    "DelegationClient",
    "DelegationRequest",
    "DelegationResult",
    "Lastword",
    "LastwordError",
    "LastwordPlugin",
    "SyncLastword",
    "connect",
    "data_converter",
    "delegate_tool",
]

_WHERE = {
    "Asked": "many",
    "ConversationClient": "conversing",
    "ConversationRequest": "core.conversation",
    "DelegationClient": "client",
    "DelegationRequest": "core.contract",
    "DelegationResult": "core.contract",
    "Lastword": "facade",
    "LastwordError": "core.errors",
    "LastwordPlugin": "plugin",
    "SyncLastword": "facade",
    "connect": "facade",
    "data_converter": "converter",
    "delegate_tool": "agent_tool",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'lastword' has no attribute {name!r}")
    return getattr(importlib.import_module(f"lastword.{_WHERE[name]}"), name)
