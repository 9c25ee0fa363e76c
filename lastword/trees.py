"""Who runs under whom: a delegation and its descendants, by their ids alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from temporalio.client import WorkflowExecution, WorkflowExecutionStatus

from lastword.client import DelegationClient
from lastword.core import names
from lastword.core.errors import DelegationNotFound, LastwordError
from lastword.core.events import text_of
from lastword.listing import OF_CHILDREN, State, ids_under, state_of
from lastword.server_errors import server_errors
from lastword.watching import text_so_far

_AT_ONCE: Final = 16
_SHOWN: Final = 80


@dataclass(frozen=True)
class TreeRow:
    """One node; of a conversation its latest turn. `state` is as in a list.

    `stop_reason` is None while it runs; `tokens` None where nobody told; `last_line` of its own words.
    """

    id: str
    state: State
    stop_reason: str | None
    label: str | None
    backend: str | None
    started: datetime
    closed: datetime | None
    tokens: int | None
    last_line: str

    @property
    def depth(self) -> int:
        """Below the root of its ids."""
        return self.id.count("/")

    @property
    def elapsed(self) -> float:
        """Seconds."""
        return ((self.closed or datetime.now(UTC)) - self.started).total_seconds()


async def tree(client: DelegationClient, root: str | None = None, *, limit: int = 1000) -> Sequence[TreeRow]:
    """The root and all below it, each parent before its children; without a root all that runs on the client's queue.

    Raises DelegationNotFound if there is no such root. A start shows up here a moment later than everywhere else.
    """
    if root is None:
        which = f"ExecutionStatus = 'Running' AND TaskQueue = '{client.task_queue}'"
    else:
        quoted = root.replace("'", "''")
        which = f"(WorkflowId = '{quoted}' OR {ids_under(root + '/')})"
    with server_errors(root or "tree"):
        found = [row async for row in client.client.list_workflows(f"{OF_CHILDREN} AND {which}", limit=limit)]
        # A conversation has a row for every run of its workflow; the latest one stands for it.
        rows: dict[str, WorkflowExecution] = {}
        for row in found:
            if row.id not in rows or row.start_time > rows[row.id].start_time:
                rows[row.id] = row
        if root is not None and not rows:
            raise DelegationNotFound(f"No delegation {root!r} is known to this server; `lastword list` shows what is.")
        gate = asyncio.Semaphore(_AT_ONCE)
        nodes = await asyncio.gather(*(_node(client, row, gate) for row in rows.values()))
    return sorted(nodes, key=lambda node: [_place(part) for part in node.id.split("/")])


def _place(part: str) -> tuple[int, str]:
    # The tenth child comes after the ninth.
    return (int(part), "") if part.isdigit() else (-1, part)


async def _node(client: DelegationClient, row: WorkflowExecution, gate: asyncio.Semaphore) -> TreeRow:
    async with gate:
        memo = await row.memo()
        conversation = row.workflow_type == names.CONVERSATION_WORKFLOW
        state: State = "running" if row.status == WorkflowExecutionStatus.RUNNING else "closed"
        if conversation and state == "running":
            state = await state_of(client.client, row.id)
        stop_reason, tokens, text = None, None, ""
        try:
            if state not in ("idle", "closed"):
                checkpoint = (await client.describe(row.id)).checkpoint
                tokens = checkpoint.tally.usage.tokens if checkpoint and checkpoint.tally.usage.known else None
                text = text_so_far(checkpoint)
            else:
                result = (await client.result(row.id)).result
                stop_reason, text = result.stop_reason, text_of(result.output)
                tokens = result.usage.tokens if result.usage else None
        except LastwordError:
            # Of a conversation: it had no turn.
            stop_reason = "rejected" if state == "closed" and not conversation else None
    return TreeRow(
        id=row.id,
        state=state,
        stop_reason=stop_reason,
        label=memo.get(names.MEMO_LABEL),
        backend=memo.get(names.MEMO_BACKEND),
        started=row.start_time,
        closed=row.close_time,
        tokens=tokens,
        last_line=_last_line(text),
    )


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][-_SHOWN:] if lines else ""
