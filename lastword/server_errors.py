"""What the server's own errors mean, in our words. Every client of it asks here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from lastword.core.errors import (
    ConfigurationError,
    DelegationNotFound,
    LastwordError,
    ServerUnreachable,
    WorkerUnavailable,
)

ANSWER_GRACE: Final = timedelta(seconds=10)
"""How long a worker may take to answer a query or an update."""

# What the server says of a query or an update that no worker took in time.
UNANSWERED: Final = (RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)


@contextmanager
def server_errors(id: str) -> Iterator[None]:
    """Say in our words what the server's RPC errors mean."""
    try:
        yield
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND and error.message.startswith("Namespace"):
            raise ConfigurationError(f"The Temporal server says: {error.message} Set TEMPORAL_NAMESPACE.") from None
        if error.status == RPCStatusCode.NOT_FOUND:
            raise DelegationNotFound(
                f"No delegation {id!r} is known to this server; `lastword list` shows what is."
            ) from None
        if error.status in (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED):
            raise ServerUnreachable(
                f"The Temporal server does not answer ({error.status.name}). Start one with `lastword up`,"
                " or set TEMPORAL_ADDRESS."
            ) from None
        raise LastwordError(f"The Temporal server refused the call ({error.status.name}): {error.message}") from error


def no_worker(queue: str, timeout: float) -> WorkerUnavailable:
    return WorkerUnavailable(
        f"No worker answered on the task queue {queue!r} within {timeout:g} s."
        " Start one with `lastword up` or `lastword worker`."
    )


async def query(client: Client, task_queue: str, id: str, name: str, kind: Any, *arguments: Any) -> Any:
    """What a workflow answers. It takes a worker to say: WorkerUnavailable; DelegationNotFound and so on."""
    with server_errors(id):
        try:
            handle = client.get_workflow_handle(id)
            return await handle.query(name, args=arguments, result_type=kind, rpc_timeout=ANSWER_GRACE)
        except RPCError as error:
            if error.status in UNANSWERED:
                raise no_worker(task_queue, ANSWER_GRACE.total_seconds()) from None
            raise
