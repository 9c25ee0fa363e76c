"""What a child may ask its host: a permission, and the host's tools."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from lastword.activities.own_children import OwnChildren
from lastword.activities.permission_desk import PermissionDesk
from lastword.core import host_tools
from lastword.core.contract import ToolResult, TurnSpec
from lastword.core.errors import LastwordError
from lastword.core.events import text_block
from lastword.core.host_tools import ToolSpec
from lastword.core.permissions import PermissionDecision, PermissionRequest

logger = logging.getLogger("lastword.turn")


class ChildHostDesk:
    """The host of one attempt's child."""

    def __init__(self, spec: TurnSpec, permissions: PermissionDesk, children: OwnChildren) -> None:
        self.permissions = permissions
        self._children = children
        self._calls = 0
        may_delegate = host_tools.DELEGATING if spec.task.delegation is not None else ()
        self.tools: Sequence[ToolSpec] = (*may_delegate, *((host_tools.REPORT,) if spec.task.reports else ()))

    @property
    def waiting(self) -> bool:
        """The child waits for a person or for a child of its own: it is not idle."""
        return self.permissions.waiting or self._calls > 0

    async def permission(self, request: PermissionRequest) -> PermissionDecision:
        return await self.permissions.permission(request)

    async def call(
        self, tool: str, arguments: Mapping[str, Any], *, call_id: str, patience: float | None = None
    ) -> ToolResult:
        known = next((one for one in self.tools if one.name == tool), None)
        if known is None:
            return ToolResult(is_error=True, content=[text_block(_absent(tool))])
        self._calls += 1
        try:
            parsed = host_tools.parse(known.arguments, arguments)
            return await self._children.serve(known, parsed, call_id=call_id, patience=patience)
        except (ValueError, LastwordError) as error:
            return ToolResult(is_error=True, content=[text_block(str(error))])
        finally:
            self._calls -= 1


def _absent(tool: str) -> str:
    if tool == host_tools.DELEGATE.name:
        return "Not delegated: this child may not delegate."
    if tool == host_tools.REPORT.name:
        return "Not reported: this child may not report."
    return f"There is no tool {tool!r}."
