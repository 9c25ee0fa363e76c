"""What is asked of a workflow that runs a child: by the child's worker, by its children, and by whoever watches it."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from lastword.core import names
    from lastword.core.children import ChildEntry, ChildrenState, CollectCall, DelegateCall, Delegated
    from lastword.core.contract import DelegationPolicy
    from lastword.core.notices import Notice, ReportCall
    from lastword.core.permissions import Answer, PermissionDecision, Question
    from lastword.workflows.children import Children
    from lastword.workflows.outbox import Outbox
    from lastword.workflows.questions import PendingQuestions


class ChildHosting:
    """The handlers that both workflows have, over one ledger of children, one outbox and the questions of a turn."""

    def __init__(
        self,
        policy: DelegationPolicy | None,
        *,
        children: ChildrenState | None = None,
        notices: list[Notice] | None = None,
        notices_seq: int = 0,
        outlive_turns: bool = False,
    ) -> None:
        id = workflow.info().workflow_id
        self._children = Children(id, policy, carried=children, outlive_turns=outlive_turns)
        self._outbox = Outbox(id, kept=notices or [], seq=notices_seq)
        self._questions = PendingQuestions()

    @property
    def _asked(self) -> tuple[int, str | None]:
        """The turn that runs, and in a conversation its message. Raises ApplicationError without one."""
        raise NotImplementedError

    # -- by the child's worker ---------------------------------------------------------------------------------------

    @workflow.update(name=names.DELEGATE_UPDATE)
    async def delegate(self, call: DelegateCall) -> Delegated:
        """The child's worker asks for a turn of a child of the child's. Refused, naming the limit, or started."""
        return await self._children.start(call)

    @workflow.update(name=names.COLLECT_UPDATE)
    def collect(self, call: CollectCall) -> list[Notice]:
        """What children told, and the child was not told yet."""
        return self._children.collect(call.child)

    @workflow.update(name=names.REPORT_UPDATE)
    def report(self, call: ReportCall) -> Notice:
        """The child tells its parent something. Refused if it says nothing or too much, or no turn runs."""
        turn, message_id = self._asked
        return self._outbox.report(call, turn=turn, message_id=message_id)

    @workflow.update(name=names.ASK_UPDATE)
    async def ask_permission(self, question: Question) -> PermissionDecision:
        """The child's worker asks; it is told when somebody has answered, or the question's time is up."""
        return await self._questions.ask(question)

    # -- by its children ---------------------------------------------------------------------------------------------

    @workflow.signal(name=names.FROM_CHILD_SIGNAL)
    def from_child(self, notice: Notice) -> None:
        """A child tells something. What is told by one that is no child of this one is not heard."""
        self._children.take(notice)

    # -- by whoever watches it ---------------------------------------------------------------------------------------

    @workflow.update(name=names.ANSWER_UPDATE)
    def answer_permission(self, answer: Answer) -> Question:
        """Allow or reject what the child waits for. Rejected, and nothing kept, if no such question is open."""
        return self._questions.answer(answer)

    @answer_permission.validator
    def _check_answer(self, answer: Answer) -> None:
        self._questions.check(answer)

    @workflow.query(name=names.QUESTIONS_QUERY)
    def questions(self) -> list[Question]:
        """The permissions that the child waits for, oldest first."""
        return self._questions.pending()

    @workflow.query(name=names.CHILDREN_QUERY)
    def children(self) -> list[ChildEntry]:
        """The child's children, in the order in which they were started."""
        return self._children.entries

    @workflow.query(name=names.NOTICES_QUERY)
    def notices(self, after: int) -> list[Notice]:
        """What the child told its parent after that number: its latest reports and settlements, oldest first."""
        return [notice for notice in self._outbox.kept if notice.seq > after]


def no_turn() -> ApplicationError:
    return ApplicationError("No turn is running.", type=names.ERROR_LIMIT, non_retryable=True)
