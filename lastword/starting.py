"""Starting a child's workflow once, whoever asks how often."""

from __future__ import annotations

import uuid
from contextlib import suppress

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from lastword.core import names
from lastword.core.contract import StartRequest
from lastword.core.errors import RequestConflict, RequestInvalid
from lastword.server_errors import server_errors


async def start_once(client: Client, workflow: str, request: StartRequest, *, id: str | None, task_queue: str) -> str:
    """Start the workflow, or attach to the one that has the id for the same request, and return the id.

    Raises RequestConflict if the id belongs to another request, RequestInvalid for one that may not be chosen.
    """
    chosen = new_id() if id is None else names.check_id(id)
    try:
        request.check_size()
    except ValueError as error:
        raise RequestInvalid(f"Not started: {error}.") from None
    with server_errors(chosen):
        # Closed already: what came of it is what the caller gets.
        with suppress(WorkflowAlreadyStartedError):
            await client.start_workflow(
                workflow,
                request,
                id=chosen,
                task_queue=task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                memo=names.start_memo(request.fingerprint(), request.backend, request.label, request.model),
                static_summary=request.summary,
            )
        if id is not None:
            memo = await (await client.get_workflow_handle(chosen).describe()).memo()
            if memo.get(names.MEMO_FINGERPRINT) != request.fingerprint():
                raise RequestConflict(
                    f"The id {id!r} belongs to another request. Choose another --id, or read that one with"
                    f" `lastword result {id}`."
                )
    return chosen


def new_id() -> str:
    """An id that no delegation has."""
    return f"lw-{uuid.uuid4().hex[:16]}"
