"""One request to a child, one result back."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from lastword.core import names
    from lastword.core.bounds import cut_text
    from lastword.core.contract import DelegationRequest, DelegationResult
    from lastword.core.events import text_of
    from lastword.core.tool_result import delegation_result, headline
    from lastword.workflows.child_turn import ChildTurnRun
    from lastword.workflows.hosting import ChildHosting, no_turn
    from lastword.workflows.waiting import until

_HEAD_IN_DETAILS = 1000


@workflow.defn(name=names.DELEGATION_WORKFLOW)
class DelegationWorkflow(ChildHosting):
    """Runs one child for one request; its id is the delegation's id.

    It completes with a `DelegationResult` however the child ended, a cancel of the workflow included. It fails only
    when no child could be started, with an ApplicationError of type `RequestRejected`.
    """

    @workflow.init
    def __init__(self, request: DelegationRequest) -> None:
        super().__init__(request.delegation)
        info = workflow.info()
        spec = request.spec(id=info.workflow_id, run_id=info.run_id)
        self._turn = ChildTurnRun(spec, summary=request.summary, children=self._children)
        self._result: DelegationResult | None = None
        self._rejection: ApplicationError | None = None

    @workflow.run
    async def run(self, request: DelegationRequest) -> DelegationResult:
        # A parent that is a workflow gets the settlement as this workflow's own result; but one that left it to itself
        # may have continued as new meanwhile.
        policy = request.delegation
        signal = request.parent_id is not None and policy is not None and policy.on_end == "detach"
        try:
            result = await self._turn.run()
        except ApplicationError as error:
            self._rejection = error
            self._questions.close()
            self._outbox.fail(error.message, turn=1, signal=signal)
            await until(workflow.all_handlers_finished)
            await self._outbox.delivered()
            raise
        self._questions.close()
        self._result = delegation_result(request, workflow.info().workflow_id, result)
        self._outbox.settle(result, turn=1, signal=signal)
        workflow.set_current_details(details_of(self._result))
        await until(workflow.all_handlers_finished)
        await self._outbox.delivered()
        await self._children.close()
        return self._result

    @property
    def _asked(self) -> tuple[int, str | None]:
        if self._result is not None or self._rejection is not None:
            raise no_turn()
        return 1, None

    @workflow.update(name=names.CANCEL_UPDATE)
    async def cancel(self) -> DelegationResult:
        """Cancel the child and return the result, for callers that are workflows. Others cancel the workflow itself."""
        self._turn.cancel()
        await workflow.wait_condition(lambda: self._result is not None or self._rejection is not None)
        if self._result is None:
            raise self._rejection or ApplicationError("The delegation was rejected.", type=names.ERROR_REJECTED)
        return self._result


def details_of(result: DelegationResult) -> str:
    """Markdown for Temporal's UI: state, stop reason and the head of the output."""
    turn = result.result
    state = "completed" if turn.completed else headline(turn.stop_reason)
    lines = [f"**{state}** (`{turn.stop_reason}`)"]
    if turn.diagnostic:
        lines.append(f"`{turn.diagnostic}`")
    if head := cut_text(text_of(turn.output), _HEAD_IN_DETAILS):
        lines.append(head)
    return "\n\n".join(lines)
