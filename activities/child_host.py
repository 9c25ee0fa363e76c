"""What a child may ask its host: a permission, a delegation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from lastword.activities.own_workflow import OwnWorkflow
from lastword.activities.permission_desk import PermissionDesk
from lastword.core import names
from lastword.core.contract import DelegateCall, Delegated, DelegationResult, ToolResult, TurnSpec
from lastword.core.events import text_block
from lastword.core.permissions import PermissionDecision, PermissionRequest

Delegate = Callable[[DelegateCall], Awaitable[ToolResult]]


class ChildHostDesk:
    """The host of one attempt's child."""

    def __init__(self, spec: TurnSpec, permissions: PermissionDesk, delegate: Delegate) -> None:
        self.permissions = permissions
        self.may_delegate = spec.task.delegation is not None
        self._delegate = delegate
        self._delegating = 0

    @property
    def waiting(self) -> bool:
        """The child waits for a person or for a child of its own: it is not idle."""
        return self.permissions.waiting or self._delegating > 0

    async def permission(self, request: PermissionRequest) -> PermissionDecision:
        return await self.permissions.permission(request)

    async def delegate(self, call: DelegateCall) -> ToolResult:
        self._delegating += 1
        try:
            return await self._delegate(call)
        finally:
            self._delegating -= 1


def delegate_by_own_workflow(workflow: OwnWorkflow, spec: TurnSpec) -> Delegate:
    """Asks the workflow for a child, and waits for what it gives.

    By the call's id it is the same child when a later attempt asks again.
    """

    async def delegate(call: DelegateCall) -> ToolResult:
        id = f"delegate-{spec.turn_run_id}-{call.id}"
        try:
            started: Delegated = await workflow.update(names.DELEGATE_UPDATE, call, id=id, result_type=Delegated)
            child = workflow.client.get_workflow_handle(started.id, result_type=DelegationResult)
            done: DelegationResult = await child.result()
        except (WorkflowUpdateFailedError, WorkflowFailureError) as error:
            return _refused(error.cause)
        except RPCError:
            return _told("The child could not be reached.")
        return done.tool_result

    return delegate


def _refused(cause: BaseException | None) -> ToolResult:
    return _told(cause.message if isinstance(cause, ApplicationError) else "The child was ended from outside.")


def _told(text: str) -> ToolResult:
    return ToolResult(is_error=True, content=[text_block(text)])
