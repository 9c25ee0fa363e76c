"""ConversationClient: a child that goes on, from any process."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from temporalio.client import (
    Client,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from lastword.core import names
from lastword.core.contract import DelegationResult, Prompt
from lastword.core.conversation import (
    Accepted,
    CloseMode,
    CloseRequest,
    Closing,
    ConversationRequest,
    ConversationResult,
    ConversationStatus,
    Interrupted,
    Message,
    MessageResult,
    TurnSummary,
)
from lastword.core.errors import (
    ConversationClosed,
    MessageDropped,
    RequestInvalid,
    RequestRejected,
    WorkerUnavailable,
)
from lastword.core.ports import SessionStore
from lastword.history_growth import HistoryGrowth
from lastword.salvage import ended_by, salvage
from lastword.server_errors import ANSWER_GRACE, no_worker, query, server_errors
from lastword.starting import start_once
from lastword.watching import Watched, watch_delegation

_AGAIN_AFTER: Final = 0.05
# An update that came while the workflow continued as new; asking again, by the same id, finds the next run.
_CONTINUED: Final = ("AcceptedUpdateCompletedWorkflow", "UpdateAborted", "WorkflowUpdateAborted")


class ConversationClient:
    """Works on any Temporal client that has lastword's data converter (give it `LastwordPlugin`)."""

    def __init__(
        self, client: Client, *, task_queue: str = names.TASK_QUEUE, store: SessionStore | None = None
    ) -> None:
        self.client = client
        self.task_queue = task_queue
        self.store = store

    async def start(self, request: ConversationRequest, *, id: str | None = None) -> str:
        """Start the conversation and return its id at once. The same id for the same request attaches.

        Raises RequestConflict if the id belongs to another request.
        """
        return await start_once(self.client, names.CONVERSATION_WORKFLOW, request, id=id, task_queue=self.task_queue)

    async def send(
        self, id: str, prompt: Prompt, *, message_id: str | None = None, result_limit: int | None = None
    ) -> Accepted:
        """Give the child a message; returns when it is durable. The same `message_id` twice is one message.

        Raises ConversationClosed, RequestInvalid, WorkerUnavailable (then it was not taken).
        """
        chosen = message_id or f"m-{uuid.uuid4().hex[:16]}"
        message = Message(id=chosen, prompt=prompt, result_limit=result_limit)
        accepted: Accepted = await self._update(id, names.SEND_UPDATE, message, Accepted, update_id=f"send-{chosen}")
        return accepted

    async def ask(self, id: str, prompt: Prompt, *, message_id: str | None = None) -> DelegationResult:
        """Send, then wait for that message's result. Cancelling this call cancels nothing of the child's."""
        accepted = await self.send(id, prompt, message_id=message_id)
        return await self.result(id, accepted.message_id)

    async def result(self, id: str, message_id: str) -> DelegationResult:
        """Wait for a message's result, as long as it takes, whether or not a worker runs.

        The turn that ran when the conversation was terminated gives what its log and last checkpoint hold. Raises
        MessageDropped if it will never be a turn, RequestRejected if no child could be started for it,
        RequestInvalid if the conversation does not know it or keeps its result no longer.
        """
        growth = HistoryGrowth(self._handle(id))
        while True:
            with server_errors(id):
                await growth.grown()
            try:
                found = await self.message(id, message_id)
            except WorkerUnavailable:
                await growth.again()
                continue
            match found.state:
                case "settled" if found.result is not None:
                    return found.result
                case "settled":
                    raise RequestInvalid(
                        f"The result of {message_id!r} is not kept any more; read it with `lastword log {id}`."
                    )
                case "rejected":
                    raise RequestRejected(found.error or "No child could be started.")
                case "dropped":
                    raise MessageDropped(f"The conversation {id!r} was closed before {message_id!r} became a turn.")
                case "unknown":
                    raise RequestInvalid(f"The conversation {id!r} has no message {message_id!r}.")
                case "running" if growth.ended:
                    return await self.last(id)
                case "queued" if growth.ended:
                    raise MessageDropped(f"The conversation {id!r} was ended before {message_id!r} became a turn.")

    async def newest(self, id: str) -> str:
        """The message that was accepted last. Raises RequestInvalid if there is none."""
        status, waiting = await self.status(id), await self.inbox(id)
        found = waiting[-1].id if waiting else status.message_id or (status.last.message_id if status.last else None)
        if found is None:
            raise RequestInvalid(f"The conversation {id!r} was not asked anything yet: lastword ask {id} PROMPT")
        return found

    async def last(self, id: str) -> DelegationResult:
        """Wait until the conversation has closed, and return what its last turn settled with.

        One that was terminated gives what its log and last checkpoint hold. Raises MessageDropped if it never had a
        turn.
        """
        handle = self.client.get_workflow_handle(id, result_type=ConversationResult)
        with server_errors(id):
            try:
                closed: ConversationResult = await handle.result()
            except WorkflowFailureError:
                return await salvage(self.client, handle, self.store, stop_reason=await ended_by(handle))
        if closed.result is not None:
            return closed.result
        if closed.last is not None:
            # Closed by a version that did not say it here.
            return await self.result(id, closed.last.message_id)
        raise MessageDropped(f"The conversation {id!r} has closed, and never had a turn.")

    async def watch(
        self, id: str, message_id: str, *, since: ConversationStatus | None = None
    ) -> AsyncIterator[Watched]:
        """What the child says until the message's turn has settled, from where `since` stood; then `Closed` with it.

        Raises what `result` raises.
        """
        begin = since or await self.status(id)
        result = asyncio.create_task(self.result(id, message_id))
        try:
            with server_errors(id):
                watched = watch_delegation(
                    self.client, self._handle(id), result, self.store, log=begin.log, from_seq=begin.next_seq
                )
                async for item in watched:
                    yield item
        finally:
            result.cancel()
            await asyncio.wait([result])
            if not result.cancelled():
                result.exception()

    async def message(self, id: str, message_id: str) -> MessageResult:
        """Where a message is, and what came of it."""
        found: MessageResult = await self._query(id, names.RESULT_QUERY, MessageResult, message_id)
        return found

    async def interrupt(self, id: str) -> Interrupted:
        """End the running turn with its partial. What is queued waits for the next send."""
        ended: Interrupted = await self._update(id, names.INTERRUPT_UPDATE, None, Interrupted)
        return ended

    async def close(self, id: str, mode: CloseMode = "finish") -> Closing:
        """Take no more messages, and say which will never become turns."""
        closing: Closing = await self._update(id, names.CLOSE_UPDATE, CloseRequest(mode=mode), Closing)
        return closing

    async def closed(self, id: str) -> ConversationResult:
        """Wait until the conversation has closed."""
        with server_errors(id):
            result: ConversationResult = await self.client.get_workflow_handle(
                id, result_type=ConversationResult
            ).result()
            return result

    async def status(self, id: str) -> ConversationStatus:
        """What the child does now."""
        status: ConversationStatus = await self._query(id, names.STATUS_QUERY, ConversationStatus)
        return status

    async def inbox(self, id: str) -> Sequence[Message]:
        """The messages that wait, first come first."""
        found: list[Message] = await self._query(id, names.INBOX_QUERY, list[Message])
        return found

    async def turns(self, id: str) -> Sequence[TurnSummary]:
        """The latest turns, oldest first."""
        found: list[TurnSummary] = await self._query(id, names.TURNS_QUERY, list[TurnSummary])
        return found

    async def _update(self, id: str, name: str, argument: Any, kind: Any, *, update_id: str | None = None) -> Any:
        chosen = update_id or f"{name}-{uuid.uuid4().hex[:12]}"
        arguments = [] if argument is None else [argument]
        with server_errors(id):
            while True:
                try:
                    return await self._handle(id).execute_update(
                        name, args=arguments, id=chosen, result_type=kind, rpc_timeout=ANSWER_GRACE
                    )
                except WorkflowUpdateRPCTimeoutOrCancelledError:
                    raise no_worker(self.task_queue, ANSWER_GRACE.total_seconds()) from None
                except WorkflowUpdateFailedError as error:
                    cause = error.cause
                    kind_of = cause.type if isinstance(cause, ApplicationError) else None
                    if kind_of not in _CONTINUED:
                        raise _refusal(cause) from None
                except RPCError as error:
                    if error.status == RPCStatusCode.NOT_FOUND and "already completed" in error.message:
                        raise ConversationClosed(f"The conversation {id!r} has closed.") from None
                    if error.status not in (RPCStatusCode.ABORTED, RPCStatusCode.NOT_FOUND) or not await self._runs(id):
                        raise
                await asyncio.sleep(_AGAIN_AFTER)

    async def _runs(self, id: str) -> bool:
        status = (await self._handle(id).describe()).status
        return status is not None and status.name == "RUNNING"

    async def _query(self, id: str, name: str, kind: Any, *arguments: Any) -> Any:
        return await query(self.client, self.task_queue, id, name, kind, *arguments)

    def _handle(self, id: str) -> WorkflowHandle[Any, Any]:
        return self.client.get_workflow_handle(id)


def _refusal(cause: BaseException | None) -> Exception:
    message = cause.message if isinstance(cause, ApplicationError) else str(cause)
    if isinstance(cause, ApplicationError) and cause.type == names.ERROR_CLOSED:
        return ConversationClosed(message)
    return RequestInvalid(message)
