"""What an activity asks of the workflow that runs it, by updates that outlive whatever is lost in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.client import WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError, RPCStatusCode

from lastword.history_growth import HistoryGrowth

_RETRY_EVERY = 1.0
_QUERY_GRACE = timedelta(seconds=10)
_GONE = (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT)


class OwnWorkflow:
    """The workflow of the running activity. Make it in the activity's own task."""

    def __init__(self) -> None:
        info = activity.info()
        assert info.workflow_id is not None
        self.client = activity.client()
        self._handle = self.client.get_workflow_handle(info.workflow_id, run_id=info.workflow_run_id)

    async def update(self, name: str, argument: Any, *, id: str, result_type: type[Any]) -> Any:
        """The update's result, however long it takes. By the same id it is the same update.

        Raises WorkflowUpdateFailedError if it was refused, RPCError if the workflow has closed.
        """
        return await self._ask(lambda: self._handle.execute_update(name, argument, id=id, result_type=result_type))

    async def query(self, name: str, result_type: type[Any]) -> Any:
        """The query's answer. Raises RPCError if the workflow is gone."""
        return await self._ask(lambda: self._handle.query(name, result_type=result_type, rpc_timeout=_QUERY_GRACE))

    def growth(self) -> HistoryGrowth:
        """For waiting until a query may tell something new."""
        return HistoryGrowth(self._handle)

    async def _ask(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        while True:
            try:
                return await ask()
            except WorkflowUpdateRPCTimeoutOrCancelledError:
                # The SDK makes this of a cancel, too.
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise asyncio.CancelledError from None
            except RPCError as error:
                if error.status in _GONE:
                    raise
            # Nothing is lost: by its id, asking again waits for the same answer.
            await asyncio.sleep(_RETRY_EVERY)
