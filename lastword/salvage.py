"""The result of a delegation whose workflow cannot give it any more: terminated, or timed out by the server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from temporalio.client import Client, WorkflowHandle

from lastword.core import names
from lastword.core.checkpoint import Checkpoint, checkpoint_of
from lastword.core.contract import DelegationRequest, DelegationResult, StopReason
from lastword.core.errors import CheckpointInvalid
from lastword.core.inputs import AttemptInput, SettleInput
from lastword.core.ports import SessionStore
from lastword.core.settling import settle_turn
from lastword.core.tool_result import delegation_result
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

    The server keeps a heartbeat for some seconds after a terminate; `known` is one that was seen before. A turn whose
    end was sealed keeps it.
    """
    description = await handle.describe()
    checkpoint = (await progress_of(client, description)).checkpoint or known
    request: DelegationRequest | None = None
    attempts = 0
    async for event in handle.fetch_history_events():
        if event.HasField("workflow_execution_started_event_attributes"):
            payloads = event.workflow_execution_started_event_attributes.input.payloads
            request = await _decoded(client, payloads, DelegationRequest)
        elif event.HasField("activity_task_scheduled_event_attributes"):
            scheduled = event.activity_task_scheduled_event_attributes
            if scheduled.activity_type.name == names.RUN_CHILD_TURN:
                attempts += 1
                carried = (await _decoded(client, scheduled.input.payloads, AttemptInput)).checkpoint
                checkpoint = _later(checkpoint, carried)
        elif event.HasField("activity_task_failed_event_attributes"):
            failure = event.activity_task_failed_event_attributes.failure
            checkpoint = _later(
                checkpoint, await _checkpoint(client, failure.application_failure_info.details.payloads)
            )
        elif event.HasField("activity_task_timed_out_event_attributes"):
            timeout = event.activity_task_timed_out_event_attributes.failure.timeout_failure_info
            checkpoint = _later(checkpoint, await _checkpoint(client, timeout.last_heartbeat_details.payloads))
    assert request is not None, "a history begins with its start"
    spec = request.spec(id=description.id, run_id=description.run_id)
    settled = await settle_turn(
        store, SettleInput(spec=spec, attempt=attempts, checkpoint=checkpoint, stop_reason=stop_reason)
    )
    return delegation_result(request, spec.id, settled.result)


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
