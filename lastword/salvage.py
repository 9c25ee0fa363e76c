"""The result of a child whose workflow cannot give it any more: terminated, or timed out by the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from lastword.core import contract, names
from lastword.core.checkpoint import Checkpoint, checkpoint_of
from lastword.core.contract import DelegationRequest, DelegationResult, StopReason, TurnResult, TurnSpec
from lastword.core.conversation import ConversationRequest
from lastword.core.errors import CheckpointInvalid, MessageDropped
from lastword.core.inputs import AttemptInput, SettleInput
from lastword.core.ports import SessionStore
from lastword.core.settling import settle_turn
from lastword.core.tool_result import render
from lastword.listing import OF_CHILDREN, ids_under
from lastword.watching import progress_of


async def salvage(
    client: Client,
    handle: WorkflowHandle[Any, Any],
    store: SessionStore | None,
    *,
    stop_reason: StopReason,
    known: Checkpoint | None = None,
) -> DelegationResult:
    """Settle from the client's side, from the log and the last checkpoint that the server still shows.

    Of a conversation it is the turn that ran, else the last one; raises MessageDropped if there was none. The server
    keeps a heartbeat for some seconds after a terminate; `known` is one that was seen before. A turn that has ended
    keeps its end.
    """
    description = await handle.describe()
    shown = (await progress_of(client, description)).checkpoint or known
    past = await _past(client, handle, conversation=description.workflow_type == names.CONVERSATION_WORKFLOW)
    request, spec = past.request, past.spec
    if spec is None and isinstance(request, DelegationRequest):
        spec = request.spec(id=description.id, run_id=description.run_id)
    if spec is None:
        if (last := _carried(request)) is not None:
            return last
        raise MessageDropped(f"The conversation {description.id!r} was ended before it was asked anything.")
    if (result := past.result) is None:
        checkpoint = _later(past.checkpoint, shown)
        settling = SettleInput(spec=spec, attempt=past.attempts, checkpoint=checkpoint, stop_reason=stop_reason)
        result = (await settle_turn(store, settling)).result
    limit = request.result_limit if isinstance(request, DelegationRequest) else None
    return DelegationResult(id=spec.id, result=result, tool_result=render(result, id=spec.id, limit=limit))


async def ended_by(handle: WorkflowHandle[Any, Any]) -> StopReason:
    """Why a workflow ended that gave no result: as a child's turn is settled for it."""
    status = (await handle.describe()).status
    return contract.TIMEOUT if status == WorkflowExecutionStatus.TIMED_OUT else contract.ABORTED


async def end_below(client: Client, handle: WorkflowHandle[Any, Any]) -> None:
    """Cancel what runs below a conversation that was terminated, unless it was to outlive it.

    The server does so for a delegation's children, but a conversation's continuable ones are not bound to its runs.
    """
    async for event in handle.fetch_history_events(page_size=1):
        payloads = event.workflow_execution_started_event_attributes.input.payloads
        request: ConversationRequest = await _decoded(client, payloads, ConversationRequest)
        break
    if request.delegation is None or request.delegation.on_end == "detach":
        return
    below = f"{OF_CHILDREN} AND ExecutionStatus = 'Running' AND {ids_under(handle.id + '/')}"
    async for row in client.list_workflows(below):
        try:
            await client.get_workflow_handle(row.id).cancel()
        except RPCError as error:
            # Closed meanwhile, or asked before.
            if error.status not in (RPCStatusCode.NOT_FOUND, RPCStatusCode.ALREADY_EXISTS):
                raise


@dataclass
class _Past:
    """What the history of one run tells of its latest turn."""

    request: DelegationRequest | ConversationRequest
    spec: TurnSpec | None = None
    attempts: int = 0
    checkpoint: Checkpoint | None = None
    result: TurnResult | None = None


async def _past(client: Client, handle: WorkflowHandle[Any, Any], *, conversation: bool) -> _Past:
    past: _Past | None = None
    async for event in handle.fetch_history_events():
        if event.HasField("workflow_execution_started_event_attributes"):
            payloads = event.workflow_execution_started_event_attributes.input.payloads
            kind = ConversationRequest if conversation else DelegationRequest
            past = _Past(await _decoded(client, payloads, kind))
        assert past is not None, "a history begins with its start"
        if event.HasField("activity_task_scheduled_event_attributes"):
            scheduled = event.activity_task_scheduled_event_attributes
            if scheduled.activity_type.name == names.RUN_CHILD_TURN:
                attempt: AttemptInput = await _decoded(client, scheduled.input.payloads, AttemptInput)
                if past.spec is None or attempt.spec.turn != past.spec.turn:
                    past = _Past(past.request, attempt.spec)
                past.attempts += 1
                past.checkpoint = _later(past.checkpoint, attempt.checkpoint)
        elif event.HasField("activity_task_failed_event_attributes"):
            failure = event.activity_task_failed_event_attributes.failure
            carried = await _checkpoint(client, failure.application_failure_info.details.payloads)
            past.checkpoint = _later(past.checkpoint, carried)
        elif event.HasField("activity_task_timed_out_event_attributes"):
            timeout = event.activity_task_timed_out_event_attributes.failure.timeout_failure_info
            carried = await _checkpoint(client, timeout.last_heartbeat_details.payloads)
            past.checkpoint = _later(past.checkpoint, carried)
        elif event.HasField("activity_task_completed_event_attributes"):
            payloads = event.activity_task_completed_event_attributes.result.payloads
            past.result = await _decoded(client, payloads, TurnResult)
    assert past is not None
    return past


def _carried(request: DelegationRequest | ConversationRequest) -> DelegationResult | None:
    """What the last turn of the conversation's earlier runs settled with."""
    if isinstance(request, DelegationRequest) or request.carried is None:
        return None
    settled = [kept.result for kept in request.carried.kept.values() if kept.result is not None]
    return settled[-1] if settled else None


async def _decoded(client: Client, payloads: Sequence[Any], kind: type[Any]) -> Any:
    return (await client.data_converter.decode(payloads, [kind]))[0]


async def _checkpoint(client: Client, payloads: Sequence[Any]) -> Checkpoint | None:
    try:
        return checkpoint_of(await client.data_converter.decode(payloads)) if payloads else None
    except CheckpointInvalid:
        return None


def _later(one: Checkpoint | None, other: Checkpoint | None) -> Checkpoint | None:
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda c: (c.attempt, c.beats, c.sealed_seq))
