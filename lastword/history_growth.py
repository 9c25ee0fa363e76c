"""Waiting for something in a workflow to change, without asking its worker over and over.

A query of a workflow that no worker has in memory costs a replay. What it would tell changes only when its history has
grown, and that the server says by itself.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from temporalio.client import WorkflowExecutionStatus, WorkflowHandle

_FIRST_POLL: Final = 0.05
_SLOWEST_POLL: Final = 1.0


class HistoryGrowth:
    """One workflow, under whatever run it has now."""

    def __init__(self, handle: WorkflowHandle[Any, Any]) -> None:
        self._handle = handle
        self._seen: tuple[str, int] | None = None
        self._pause = _FIRST_POLL
        self.ended = False
        """It has closed: nothing will change any more."""

    async def grown(self) -> None:
        """Return at once the first time, then when the history has grown since the last time. Raises RPCError."""
        while True:
            description = await self._handle.describe()
            self.ended = description.status != WorkflowExecutionStatus.RUNNING
            now = (description.run_id, description.history_length)
            if now != self._seen:
                self._seen = now
                return
            await self._wait()

    async def again(self) -> None:
        """What was asked then was not answered: a little later it is to be asked again."""
        self._seen = None
        await self._wait()

    async def _wait(self) -> None:
        await asyncio.sleep(self._pause)
        self._pause = min(self._pause * 1.5, _SLOWEST_POLL)
