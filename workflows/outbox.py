"""What a child tells its parent: kept for whoever asks, and signalled to a parent that is a workflow, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from temporalio import workflow
from temporalio.exceptions import ApplicationError, TemporalError

with workflow.unsafe.imports_passed_through():
    from lastword.core import names
    from lastword.core.contract import TurnResult
    from lastword.core.notices import Notice, ReportCall, check_report, settlement
    from lastword.workflows.waiting import until

_KEPT_BYTES = 128 * 1024
"""Of the latest notices, for a parent that asks by a query. Older ones are in the session log."""


class Outbox:
    """One child's notices. Each is delivered before the next, so that a parent gets them in their order."""

    def __init__(self, id: str, *, kept: list[Notice], seq: int) -> None:
        self._id = id
        self._parent = workflow.info().parent
        self._pending: list[Notice] = []
        self._delivering: asyncio.Task[None] | None = None
        self.kept = kept
        self.seq = seq

    def report(self, call: ReportCall, *, turn: int, message_id: str | None = None) -> Notice:
        """Tell the parent something. Raises ApplicationError if it cannot be told."""
        try:
            text = check_report(call.text)
        except ValueError as error:
            raise ApplicationError(f"Not reported: {error}.", type=names.ERROR_LIMIT, non_retryable=True) from None
        notice = Notice(child_id=self._id, seq=self.seq + 1, kind="report", turn=turn, message_id=message_id, text=text)
        self._add(notice, signal=True)
        return notice

    def settle(self, result: TurnResult, *, turn: int, message_id: str | None = None, signal: bool = True) -> None:
        """Tell the parent how a turn ended; without a signal if it gets that as the workflow's own result."""
        notice = settlement(self._id, self.seq + 1, result, turn=turn, message_id=message_id)
        self._add(notice, signal=signal)

    def fail(self, error: str, *, turn: int, message_id: str | None = None, signal: bool = True) -> None:
        """Tell the parent that what was asked will never have an answer."""
        notice = Notice(
            child_id=self._id, seq=self.seq + 1, kind="settlement", turn=turn, message_id=message_id, error=error
        )
        self._add(notice, signal=signal)

    async def delivered(self, on_cancel: Callable[[], object] = lambda: None) -> None:
        """Wait until the parent has everything, or is gone."""
        await until(lambda: not self._pending, on_cancel)

    def _add(self, notice: Notice, *, signal: bool) -> None:
        self.seq = notice.seq
        self.kept.append(notice)
        while len(self.kept) > 1 and sum(len(one.model_dump_json()) for one in self.kept) > _KEPT_BYTES:
            del self.kept[0]
        if signal and self._parent is not None:
            self._pending.append(notice)
            if self._delivering is None or self._delivering.done():
                self._delivering = asyncio.create_task(self._deliver(self._parent.workflow_id))

    async def _deliver(self, parent_id: str) -> None:
        # Without a run id: a parent that has continued as new is the same parent.
        parent = workflow.get_external_workflow_handle(parent_id)
        while self._pending:
            try:
                await parent.signal(names.FROM_CHILD_SIGNAL, self._pending[0])
            except TemporalError:
                # It has closed: nobody listens any more. Whoever asks still finds what was said.
                self._pending.clear()
                return
            del self._pending[0]
