"""Permissions that wait for a person: the workflow keeps the questions, whatever becomes of the worker that asked."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from lastword.core import names
    from lastword.core.permissions import Answer, PermissionDecision, Question


class PendingQuestions:
    """The open questions of a turn, and their answers as they come."""

    def __init__(self) -> None:
        self._open: dict[str, Question] = {}
        self._answers: dict[str, PermissionDecision] = {}
        self._over = False

    def pending(self) -> list[Question]:
        """Those that nobody has answered, oldest first."""
        return [question for id, question in self._open.items() if id not in self._answers]

    async def ask(self, question: Question) -> PermissionDecision:
        """Keep the question until it is answered, its time is up, or the turn has ended."""
        if self._over:
            return PermissionDecision(decision="reject", reason="policy")
        self._open[question.id] = question
        try:
            await workflow.wait_condition(
                lambda: self._over or question.id in self._answers, timeout=timedelta(seconds=question.answer_within)
            )
        except TimeoutError:
            self._answers[question.id] = PermissionDecision(decision="reject", reason="deadline")
        return self._answers.get(question.id) or PermissionDecision(decision="reject", reason="policy")

    def check(self, answer: Answer) -> Question:
        """The open question that is answered. Raises ApplicationError if there is none, or none that is meant."""
        pending = self.pending()
        ids = ", ".join(question.id for question in pending)
        if not pending:
            raise ApplicationError("No question is open.", type=names.ERROR_NO_QUESTION)
        if answer.question is None:
            if len(pending) > 1:
                raise ApplicationError(f"{len(pending)} questions are open: {ids}.", type=names.ERROR_NO_QUESTION)
            return pending[0]
        for question in pending:
            if question.id == answer.question:
                return question
        raise ApplicationError(
            f"The question {answer.question!r} is not open; open: {ids}.", type=names.ERROR_NO_QUESTION
        )

    def answer(self, answer: Answer) -> Question:
        """Take the answer and say to which question."""
        question = self.check(answer)
        self._answers[question.id] = PermissionDecision(decision=answer.decision, reason="answer")
        return question

    def close(self) -> None:
        """The turn has ended: nobody waits for an answer any more."""
        self._over = True
        self._open.clear()
