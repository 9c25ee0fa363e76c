"""The list of what ran and runs: delegations and conversations, by Temporal's visibility alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.service import RPCError

from lastword.core import contract, names
from lastword.core.contract import DelegationResult
from lastword.core.conversation import ConversationStatus
from lastword.server_errors import server_errors

Kind: TypeAlias = Literal["delegation", "conversation"]
State: TypeAlias = Literal["running", "waiting", "idle", "open", "closed"]

ROWS_AT_ONCE: Final = 16
OF_CHILDREN: Final = f"WorkflowType IN ('{names.DELEGATION_WORKFLOW}', '{names.CONVERSATION_WORKFLOW}')"
"""A query for every workflow that runs a child."""

_STATE_GRACE: Final = timedelta(seconds=2)
# What the result of a workflow that cannot give one is settled with.
CUT_OFF: Final = {
    WorkflowExecutionStatus.TERMINATED: contract.ABORTED,
    WorkflowExecutionStatus.TIMED_OUT: contract.TIMEOUT,
}


@dataclass(frozen=True)
class DelegationInfo:
    """One row of a list: a delegation or a conversation.

    `state` is `running` or `closed`; of a conversation also `waiting` (for children of its own) and `idle`, and `open`
    where no worker says which.
    `stop_reason` is None while it runs and of a conversation, `rejected` if no child could be started.
    """

    id: str
    kind: Kind
    state: State
    started: datetime
    closed: datetime | None
    label: str | None
    backend: str | None
    model: str | None
    stop_reason: str | None


async def list_children(
    client: Client, *, limit: int, state: State | None = None, under: str | None = None, not_closed: bool = False
) -> Sequence[DelegationInfo]:
    """The newest first; all, or those in a state, or that have not closed, or whose ids begin with `under`."""
    query = OF_CHILDREN
    if under is not None:
        query += f" AND {ids_under(under)}"
    if state is not None:
        query += f" AND ExecutionStatus {'!=' if state == 'closed' else '='} 'Running'"
    if not_closed:
        query += " AND ExecutionStatus = 'Running'"
    # A conversation has a row for every run of its workflow; those that went on are not its end.
    query += " AND ExecutionStatus != 'ContinuedAsNew'"
    with server_errors("list"):
        rows = [row async for row in client.list_workflows(query, limit=limit)]
        gate = asyncio.Semaphore(ROWS_AT_ONCE)
        found = await asyncio.gather(*(_info(client, row, gate) for row in rows))
        return [info for info in found if state is None or info.state == state]


def ids_under(prefix: str) -> str:
    """A query for the ids that begin so."""
    return f"WorkflowId STARTS_WITH '{prefix.replace(chr(39), chr(39) * 2)}'"


async def _info(client: Client, row: WorkflowExecution, gate: asyncio.Semaphore) -> DelegationInfo:
    memo = await row.memo()
    stop_reason: str | None = None
    conversation = row.workflow_type == names.CONVERSATION_WORKFLOW
    running = row.status == WorkflowExecutionStatus.RUNNING
    state: State = "running" if running else "closed"
    if conversation:
        if running:
            async with gate:
                state = await state_of(client, row.id)
    elif row.status == WorkflowExecutionStatus.COMPLETED:
        async with gate:
            handle = client.get_workflow_handle(row.id, run_id=row.run_id, result_type=DelegationResult)
            stop_reason = (await handle.result()).result.stop_reason
    elif row.status == WorkflowExecutionStatus.FAILED:
        stop_reason = "rejected"
    elif row.status is not None and row.status != WorkflowExecutionStatus.RUNNING:
        stop_reason = CUT_OFF.get(row.status, row.status.name.lower())
    return DelegationInfo(
        id=row.id,
        kind="conversation" if conversation else "delegation",
        state=state,
        started=row.start_time,
        closed=row.close_time,
        label=memo.get(names.MEMO_LABEL),
        backend=memo.get(names.MEMO_BACKEND),
        model=memo.get(names.MEMO_MODEL),
        stop_reason=stop_reason,
    )


async def state_of(client: Client, id: str) -> State:
    """Of a conversation that has not closed; only a worker can say what it does."""
    try:
        status: ConversationStatus = await client.get_workflow_handle(id).query(
            names.STATUS_QUERY, result_type=ConversationStatus, rpc_timeout=_STATE_GRACE
        )
    except RPCError:
        return "open"
    return status.state
