"""DelegationClient: start a delegation; follow, cancel and ask any child by its id. The other faces are built on it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

from temporalio.client import (
    Client,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from lastword.conversing import ConversationClient
from lastword.core import contract, names
from lastword.core.children import ChildEntry
from lastword.core.contract import DelegationRequest, DelegationResult, LogRef, SeedMessage
from lastword.core.errors import (
    DelegationNotFound,
    LastwordError,
    LogUnavailable,
    RequestInvalid,
    RequestRejected,
)
from lastword.core.events import ASSISTANT_CHUNK, TURN_END, TURN_START, Block, SessionEvent
from lastword.core.notices import Notice
from lastword.core.output import AssistantOutputFold
from lastword.core.permissions import Answer, Question, Verdict
from lastword.core.ports import Earlier, Gap, SessionStore
from lastword.core.transcript import seed_of
from lastword.core.worker_report import WorkerReport
from lastword.listing import OF_CHILDREN, ROWS_AT_ONCE, DelegationInfo, State, list_children
from lastword.salvage import end_below, ended_by, salvage
from lastword.server_errors import ANSWER_GRACE, no_worker, query, server_errors
from lastword.starting import start_once
from lastword.watching import Closed, Progress, Watched, progress_of, watch_delegation


class DelegationClient:
    """Works on any Temporal client that has lastword's data converter (give it `LastwordPlugin`).

    `store` is where session logs are read; without it, watching sees only what heartbeats carry, and logs are out of
    reach. Errors are `LastwordError`s: ServerUnreachable, DelegationNotFound, RequestRejected and so on.
    """

    def __init__(
        self, client: Client, *, task_queue: str = names.TASK_QUEUE, store: SessionStore | None = None
    ) -> None:
        self.client = client
        self.task_queue = task_queue
        self.store = store

    async def start(self, request: DelegationRequest, *, id: str | None = None) -> str:
        """Start the delegation and return its id at once; it is durable from here on.

        With an `id` that was used before for the same request this attaches, whether that one runs or has closed; it
        never starts a second child. Raises RequestConflict if the id belongs to another request.
        """
        return await start_once(self.client, names.DELEGATION_WORKFLOW, request, id=id, task_queue=self.task_queue)

    async def run(self, request: DelegationRequest, *, id: str | None = None) -> DelegationResult:
        """Start the delegation and wait for its result. Cancelling this call does not cancel the child."""
        return await self._settled(await self.start(request, id=id))

    async def result(self, id: str) -> DelegationResult:
        """Wait for the result; of a conversation for the answer to its newest message.

        One that was terminated gives what its log and last checkpoint hold.
        """
        progress = await self.describe(id)
        if not progress.conversation:
            return await self._settled(id)
        if progress.phase == "closed":
            return await self._talk.last(id)
        return await self._talk.result(id, await self._talk.newest(id))

    async def _settled(self, id: str) -> DelegationResult:
        handle = self._handle(id)
        with server_errors(id):
            try:
                return await handle.result()
            except WorkflowFailureError as error:
                if isinstance(error.cause, ApplicationError):
                    raise _refusal(error.cause) from None
                return await salvage(self.client, handle, self.store, stop_reason=await ended_by(handle))

    async def cancel(self, id: str, *, force: bool = False) -> DelegationResult:
        """Cancel the child and return its result, partial text and all; a conversation closes with it.

        A settled delegation gives its result. `force` terminates the workflow and settles from here: for when no worker
        answers. The child, if it still runs somewhere, is disposed when its worker hears of it.
        """
        handle = self._handle(id)
        progress = await self.describe(id)
        with server_errors(id):
            if force:
                if progress.phase != "closed":
                    await handle.terminate("lastword cancel --force")
                    if progress.conversation:
                        await end_below(self.client, handle)
                    return await salvage(
                        self.client,
                        handle,
                        self.store,
                        stop_reason=contract.ABORTED,
                        known=progress.checkpoint,
                    )
            else:
                try:
                    await handle.cancel()
                except RPCError as error:
                    # Already closed.
                    if error.status != RPCStatusCode.NOT_FOUND:
                        raise
        return await (self._talk.last(id) if progress.conversation else self._settled(id))

    async def watch(self, id: str) -> AsyncIterator[Watched]:
        """Everything the child says from its beginning, as it comes; the last item is `Closed` with the result.

        Of a conversation it is the turn that runs, and those that wait: until its newest message is answered.
        """
        handle = self._handle(id)
        progress = await self.describe(id)
        if progress.conversation and progress.phase == "closed":
            yield Closed(await self._talk.last(id))
            return
        if progress.conversation:
            async for item in self._talk.watch(id, await self._talk.newest(id)):
                yield item
            return
        with server_errors(id):
            result = asyncio.create_task(self._settled(id))
            try:
                async for item in watch_delegation(self.client, handle, result, self.store):
                    yield item
            finally:
                result.cancel()
                await asyncio.wait([result])
                if not result.cancelled():
                    result.exception()

    async def questions(self, id: str) -> Sequence[Question]:
        """The permissions that the child waits for, oldest first. It takes a worker to say: WorkerUnavailable."""
        found: list[Question] = await self._query(id, names.QUESTIONS_QUERY, list[Question])
        return found

    async def notices(self, id: str, *, after: int = 0) -> Sequence[Notice]:
        """What the child told its parent after that number: reports, and each turn's settlement; oldest first.

        They are kept, closed or not; of many the latest, the session log has them all. It takes a worker to say:
        WorkerUnavailable.
        """
        found: list[Notice] = await self._query(id, names.NOTICES_QUERY, list[Notice], after)
        return found

    async def children(self, id: str) -> Sequence[ChildEntry]:
        """The child's own children, in the order in which they were started. It takes a worker to say."""
        found: list[ChildEntry] = await self._query(id, names.CHILDREN_QUERY, list[ChildEntry])
        return found

    async def _query(self, id: str, name: str, kind: Any, *arguments: Any) -> Any:
        return await query(self.client, self.task_queue, id, name, kind, *arguments)

    async def all_questions(self, *, limit: int = 1000) -> Sequence[Question]:
        """The open questions of all that runs on this client's queue, oldest first. It takes a worker to say."""
        query = f"{OF_CHILDREN} AND ExecutionStatus = 'Running' AND TaskQueue = '{self.task_queue}'"
        with server_errors("questions"):
            rows = [row async for row in self.client.list_workflows(query, limit=limit)]
        gate = asyncio.Semaphore(ROWS_AT_ONCE)

        async def ask(id: str) -> Sequence[Question]:
            async with gate:
                try:
                    return await self.questions(id)
                except DelegationNotFound:
                    return []

        found = await asyncio.gather(*(ask(row.id) for row in rows))
        return sorted((question for questions in found for question in questions), key=lambda q: q.asked)

    async def answer(self, id: str, decision: Verdict, *, question: str | None = None) -> Question:
        """Allow or reject what the child waits for, and say what that was. `question` is needed if it waits for more.

        Raises RequestInvalid if no such question is open, WorkerUnavailable if no worker takes the answer: then it is
        not kept.
        """
        with server_errors(id):
            try:
                answered: Question = await self._handle(id).execute_update(
                    names.ANSWER_UPDATE,
                    Answer(decision=decision, question=question),
                    result_type=Question,
                    rpc_timeout=ANSWER_GRACE,
                )
            except WorkflowUpdateRPCTimeoutOrCancelledError:
                raise no_worker(self.task_queue, ANSWER_GRACE.total_seconds()) from None
            except WorkflowUpdateFailedError as error:
                said = error.cause.message if isinstance(error.cause, ApplicationError) else str(error.cause)
                raise RequestInvalid(f"{said} `lastword questions {id}` shows what is open.") from None
            return answered

    async def describe(self, id: str) -> Progress:
        """Phase and latest checkpoint."""
        with server_errors(id):
            return await progress_of(self.client, await self._handle(id).describe())

    async def kind(self, id: str) -> str:
        """The name of its workflow: a delegation's or a conversation's."""
        with server_errors(id):
            return (await self._handle(id).describe()).workflow_type

    async def list(
        self, *, limit: int = 50, state: State | None = None, under: str | None = None, not_closed: bool = False
    ) -> Sequence[DelegationInfo]:
        """The newest first; all, or those in a state, or that have not closed, or whose ids begin with `under`.

        A start shows up here a moment later than everywhere else.
        """
        return await list_children(self.client, limit=limit, state=state, under=under, not_closed=not_closed)

    async def log(self, id: str, *, merge_deltas: bool = False) -> AsyncIterator[SessionEvent | Gap]:
        """The sealed events of the delegation's session, gaps named. Raises LogUnavailable without a store.

        With `merge_deltas` each stored run of deltas is one event.
        """
        if self.store is None:
            raise LogUnavailable("This client has no session log store; set LASTWORD_LOG_STORE or --data-dir.")
        with server_errors(id):
            description = await self._handle(id).describe()
        # A conversation's log goes on through all runs of its workflow, under the first one's id.
        first = description.raw_description.workflow_execution_info.first_run_id or description.run_id
        ref = LogRef(session_id=id, run_id=first)
        async for item in self.store.read(ref, merge_deltas=merge_deltas):
            yield item

    async def transcript(self, id: str) -> Sequence[SeedMessage]:
        """What was said in the completed turns, for the `seed` of a fork; of a long one the newest messages.

        Raises LogUnavailable without a store.
        """
        with server_errors(id):
            async for event in self._handle(id).fetch_history_events(page_size=1):
                payloads = event.workflow_execution_started_event_attributes.input.payloads
                (request,) = await self.client.data_converter.decode(payloads)
                break
        seed = [SeedMessage.model_validate(said) for said in request.get("seed", [])]
        completed: list[SessionEvent] = []
        turn: list[SessionEvent] = []
        async for item in self.log(id, merge_deltas=True):
            if isinstance(item, Gap) or item.type == ASSISTANT_CHUNK:
                continue
            turn.append(item)
            if item.type == TURN_END:
                completed += turn
                turn = []
        return seed_of(Earlier(seed=seed, events=completed))

    async def full_output(self, id: str, *, turn: int = 1) -> Sequence[Block]:
        """The whole output of a turn, for when the result holds only its head and tail: its `output_ref` says which.

        Raises LogUnavailable without a store.
        """
        fold, current = AssistantOutputFold(), 1
        async for item in self.log(id, merge_deltas=True):
            if isinstance(item, Gap):
                continue
            if item.type == TURN_START:
                current = item.data.get("turn", current)
            if current == turn:
                fold.push(item)
        return fold.collect() or []

    async def ping(self, *, timeout: float = 5.0) -> WorkerReport:
        """What the worker that answers first says of itself. Raises WorkerUnavailable after `timeout` seconds."""
        id = f"lastword-ping-{uuid.uuid4().hex[:12]}"
        with server_errors(id):
            handle = await self.client.start_workflow(
                names.PING_WORKFLOW,
                id=id,
                task_queue=self.task_queue,
                result_type=WorkerReport,
                run_timeout=timedelta(seconds=max(timeout * 2, 10)),
            )
            try:
                async with asyncio.timeout(timeout):
                    report: WorkerReport = await handle.result()
                    return report
            except TimeoutError:
                await handle.terminate("no worker answered")
                raise no_worker(self.task_queue, timeout) from None

    @property
    def _talk(self) -> ConversationClient:
        return ConversationClient(self.client, task_queue=self.task_queue, store=self.store)

    def _handle(self, id: str) -> WorkflowHandle[Any, DelegationResult]:
        return self.client.get_workflow_handle(id, result_type=DelegationResult)


def _refusal(error: ApplicationError) -> LastwordError:
    if error.type == names.ERROR_REJECTED:
        return RequestRejected(error.message)
    return RequestInvalid(f"The worker could not read the request: {error.message}")
