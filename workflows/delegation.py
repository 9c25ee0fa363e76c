"""One request to a child, one result back."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from lastword.core import names
    from lastword.core.bounds import cut_text
    from lastword.core.contract import DelegateCall, Delegated, DelegationRequest, DelegationResult
    from lastword.core.events import text_of
    from lastword.core.permissions import Answer, PermissionDecision, Question
    from lastword.core.tool_result import delegation_result, headline
    from lastword.workflows.child_turn import ChildTurnRun
    from lastword.workflows.questions import PendingQuestions

_HEAD_IN_DETAILS = 1000


@workflow.defn(name=names.DELEGATION_WORKFLOW)
class DelegationWorkflow:
    """Runs one child for one request; its id is the delegation's id.

    It completes with a `DelegationResult` however the child ended, a cancel of the workflow included. It fails only
    when no child could be started, with an ApplicationError of type `RequestRejected`.
    """

    @workflow.init
    def __init__(self, request: DelegationRequest) -> None:
        info = workflow.info()
        spec = request.spec(id=info.workflow_id, run_id=info.run_id)
        self._turn = ChildTurnRun(spec, summary=request.summary)
        self._questions = PendingQuestions()
        self._result: DelegationResult | None = None
        self._rejection: ApplicationError | None = None

    @workflow.run
    async def run(self, request: DelegationRequest) -> DelegationResult:
        try:
            result = await self._turn.run()
        except ApplicationError as error:
            self._rejection = error
            self._questions.close()
            await workflow.wait_condition(workflow.all_handlers_finished)
            raise
        self._questions.close()
        self._result = delegation_result(request, workflow.info().workflow_id, result)
        workflow.set_current_details(details_of(self._result))
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self._result

    @workflow.update(name=names.CANCEL_UPDATE)
    async def cancel(self) -> DelegationResult:
        """Cancel the child and return the result, for callers that are workflows. Others cancel the workflow itself."""
        self._turn.cancel()
        await workflow.wait_condition(lambda: self._result is not None or self._rejection is not None)
        if self._result is None:
            raise self._rejection or ApplicationError("The delegation was rejected.", type=names.ERROR_REJECTED)
        return self._result

    @workflow.update(name=names.DELEGATE_UPDATE)
    async def delegate(self, call: DelegateCall) -> Delegated:
        """The child's worker asks for a child of the child's. Refused, naming the limit, or started."""
        return await self._turn.children.start(call)

    @workflow.query(name=names.QUESTIONS_QUERY)
    def questions(self) -> list[Question]:
        """The permissions that the child waits for, oldest first."""
        return self._questions.pending()

    @workflow.update(name=names.ASK_UPDATE)
    async def ask_permission(self, question: Question) -> PermissionDecision:
        """The child's worker asks; it is told when somebody has answered, or the question's time is up."""
        return await self._questions.ask(question)

    @workflow.update(name=names.ANSWER_UPDATE)
    def answer_permission(self, answer: Answer) -> Question:
        """Allow or reject what the child waits for. Rejected, and nothing kept, if no such question is open."""
        return self._questions.answer(answer)

    @answer_permission.validator
    def _check_answer(self, answer: Answer) -> None:
        self._questions.check(answer)


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
