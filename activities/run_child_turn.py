"""The activity that drives one child turn and continues it from a checkpoint."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import NoReturn

from temporalio import activity
from temporalio.client import WorkflowExecutionStatus
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from lastword.activities.checkpoint_pump import BeatPacer, CheckpointPump
from lastword.activities.child_attempt import ChildAttempt
from lastword.activities.child_host import ChildHostDesk
from lastword.activities.lifecycle import Lifecycle
from lastword.activities.own_children import OwnChildren
from lastword.activities.own_workflow import OwnWorkflow
from lastword.activities.ownership import ServerProbe
from lastword.activities.permission_desk import PermissionDesk, ask_own_workflow
from lastword.activities.settle import settle_and_publish
from lastword.activities.stop_signal import StopSignal
from lastword.activities.turn_recorder import TurnRecorder
from lastword.core import contract, events, names, options
from lastword.core.admission import admit
from lastword.core.checkpoint import Checkpoint
from lastword.core.contract import SeedMessage, SessionRef, TurnResult
from lastword.core.diagnostic import Diagnostic
from lastword.core.errors import Fenced, LogUnavailable, RequestRejected, ResumeRefused
from lastword.core.events import SessionEvent
from lastword.core.inputs import AttemptInput, SettleInput
from lastword.core.permissions import PermissionPolicy
from lastword.core.ports import Backend, Earlier, Gap, LifecycleObserver, Resume, SessionStore
from lastword.core.recovery import Plan, Recovered, plan_recovery, recover
from lastword.core.results import Course, Ending, turn_result
from lastword.core.transcript import seed_of

logger = logging.getLogger("lastword.turn")


class ChildTurnActivities:
    """What a worker needs to run child turns; the worker puts in its backends, its session store and its observers."""

    def __init__(
        self,
        *,
        backends: Mapping[str, Backend],
        store: SessionStore,
        observers: Sequence[LifecycleObserver],
        probe: ServerProbe | None = None,
        permissions: PermissionPolicy | None = None,
    ) -> None:
        self._permissions = permissions or PermissionPolicy()
        self._backends = backends
        self._store = store
        self._observers = observers
        self._probe = probe
        self._pacer = BeatPacer()

    @activity.defn(name=names.RUN_CHILD_TURN)
    async def run_child_turn(self, input: AttemptInput) -> TurnResult:
        """Run the turn until it ends.

        Raises an ApplicationError with the checkpoint if another attempt must go on, one of type RequestRejected if the
        turn cannot begin here.
        """
        if activity.info().attempt > 1:
            # A server-side restart (an operator's reset or unpause) of an attempt whose log is already begun: the
            # workflow starts the next attempt properly, from the last checkpoint.
            _leave(names.ERROR_INTERRUPTED, *activity.info().heartbeat_details[:1])
        stop = StopSignal()
        turn = _Turn(self, input, stop)
        work = asyncio.create_task(turn.run())
        watchers = [asyncio.create_task(_hand_over_at_shutdown(stop))]
        if self._probe is not None:
            watchers.append(asyncio.create_task(_leave_when_lost(self._probe, stop)))
        try:
            while True:
                try:
                    return await asyncio.shield(work)
                except asyncio.CancelledError:
                    if work.cancelled():
                        raise
                    _uncancel()
                    _note_cancellation(stop)
        finally:
            for task in (*watchers, work):
                task.cancel()

    @activity.defn(name=names.SETTLE)
    async def settle(self, input: SettleInput) -> TurnResult:
        """Turn what gone attempts left into the turn's result. Idempotent."""
        return await settle_and_publish(self._store, self._observers, input)


class _Turn:
    """One call of the activity."""

    def __init__(self, worker: ChildTurnActivities, input: AttemptInput, stop: StopSignal) -> None:
        self._backends = worker._backends
        self._store = worker._store
        self._observers = worker._observers
        self._policy = input.spec.task.permissions or worker._permissions
        self._input = input
        self._spec = input.spec
        self._stop = stop
        self._lifecycle = Lifecycle(worker._observers, input.spec)
        before = input.checkpoint or Checkpoint(attempt=input.attempt, sealed_seq=input.spec.first_seq)
        self._checkpoint: Callable[[], Checkpoint] = lambda: before
        self._pump = CheckpointPump(lambda: self._checkpoint(), pacer=worker._pacer, heartbeat=activity.heartbeat)

    async def run(self) -> TurnResult:
        # Beating begins at once: taking a long log over, or opening a child, may take longer than the heartbeat
        # timeout, and without beats no cancel arrives. Until there is news the last attempt's checkpoint is resent.
        beating = asyncio.create_task(self._pump.run())
        try:
            return await self._take_over()
        finally:
            beating.cancel()

    async def _take_over(self) -> TurnResult:
        input, spec = self._input, self._spec
        recovered, plan = Recovered(next_seq=spec.first_seq), "restart"
        if input.attempt > 1:
            try:
                recovered = await recover(self._store, spec, attempts=input.attempt - 1, checkpoint=input.checkpoint)
            except LogUnavailable:
                return await self._settle()
            plan = self._plan(recovered)
            if plan in ("finished", "settle"):
                return await self._settle()
        try:
            # Loading a backend may import a whole agent framework: not in the loop that beats for the other children.
            backend = await asyncio.to_thread(admit, spec, self._backends)
        except RequestRejected as error:
            return await self._refuse(error, recovered)
        recorder = TurnRecorder(
            self._store.attempt(spec.log, turn=spec.turn, attempt=input.attempt, first_seq=recovered.next_seq),
            attempt=input.attempt,
            fold=recovered.fold,
            tally=recovered.tally,
            started=recovered.started,
        )
        recorder.on_news = self._pump.notify
        self._checkpoint = lambda: recorder.checkpoint(beats=self._pump.beats, interval=self._pump.widest)
        try:
            resume = recovered.resume(input.checkpoint) if plan == "resume" else None
            return await self._drive(backend, recorder, recovered, resume)
        except Fenced:
            _leave(names.ERROR_OWNERSHIP_LOST, recorder.checkpoint())
        finally:
            await recorder.close()

    async def _drive(
        self,
        backend: Backend,
        recorder: TurnRecorder,
        recovered: Recovered,
        resume: Resume | None,
        *,
        anew: bool = False,
    ) -> TurnResult:
        workflow = OwnWorkflow()
        permissions = PermissionDesk(
            self._spec, self._policy, recorder, ask=ask_own_workflow(workflow), earlier=recovered.events
        )
        children = OwnChildren(self._spec, workflow, recorder, past=self._past)
        desk = ChildHostDesk(self._spec, permissions, children)
        attempt = ChildAttempt(self._spec, backend, desk, recorder, self._stop, remaining=self._remaining())
        try:
            earlier = await self._earlier(anew=anew)
            opened = await attempt.open(resume, earlier)
        except ResumeRefused as error:
            logger.warning("%s: %s", self._spec.id, error)
            if resume is None and not anew:
                # The session of the turns before is gone; the log still tells what was said.
                return await self._drive(backend, recorder, recovered, None, anew=True)
            if self._plan(recovered, resumable=False) == "settle":
                return await self._settle("session-lost")
            return await self._drive(backend, recorder, recovered, None)
        except RequestRejected as error:
            return await self._refuse(error, recovered)
        except Exception:
            logger.error("opening the child of %s failed", self._spec.id, exc_info=True)
            return await self._conclude(_open_failure(backend), recorder, attempt, desk)
        if not opened:
            ending = attempt.stopped()
        else:
            try:
                await self._begin(recorder, again=self._input.attempt > 1 and resume is None)
                ending = await attempt.run()
                if ending is not None:
                    # Sealed before the child is disposed: from here on the turn is never run again.
                    await self._seal_end(ending, recorder)
            finally:
                await attempt.dispose()
        if ending is None:
            await self._hand_over(recorder)
        return await self._conclude(ending, recorder, attempt, desk)

    async def _earlier(self, *, anew: bool) -> Earlier | None:
        """What the conversation was before this turn; `anew` without the child's own session. Raises LogUnavailable."""
        spec = self._spec
        if spec.turn == 1 and not spec.seed:
            return None
        session = None if anew else spec.session
        said_before = await self._events_before() if session is None else []
        return Earlier(session=session, seed=spec.seed, events=said_before)

    async def _past(self) -> list[SeedMessage]:
        """The completed turns, for a child that is forked from them. Raises LogUnavailable."""
        return seed_of(Earlier(seed=self._spec.seed, events=await self._events_before()))

    async def _events_before(self) -> list[SessionEvent]:
        before: list[SessionEvent] = []
        if self._spec.turn == 1:
            return before
        async for item in self._store.read(self._spec.log, merge_deltas=True):
            if isinstance(item, Gap) or item.type == events.ASSISTANT_CHUNK:
                continue
            if item.seq is not None and item.seq >= self._spec.first_seq:
                break
            before.append(item)
        return before

    async def _begin(self, recorder: TurnRecorder, *, again: bool) -> None:
        if recorder.started is None:
            await self._lifecycle.started()
            recorder.started = events.now_ms()
            await recorder.record(events.turn_start(turn=self._spec.turn))
        elif again:
            # What the lost attempt said stays, as an attempt that committed no message.
            await recorder.record(events.assistant_attempt(turn=self._spec.turn, step=0))

    async def _seal_end(self, ending: Ending, recorder: TurnRecorder) -> None:
        end = events.turn_end(
            ending.stop_reason, turn=self._spec.turn, diagnostic=ending.facts(), structured=ending.structured
        )
        try:
            await recorder.record(end)
        except LogUnavailable:
            # The result is worth more than its record; it says what happened to the log.
            if ending.diagnostic is None:
                ending.diagnostic = Diagnostic(backend=self._spec.task.backend, stage="log", category="session-log")

    async def _conclude(
        self, ending: Ending, recorder: TurnRecorder, attempt: ChildAttempt, desk: ChildHostDesk
    ) -> TurnResult:
        output = recorder.fold.collect()
        if recorder.started is not None:
            await self._lifecycle.ended(ending.stop_reason, output)
        course = Course(
            attempts=self._input.attempt,
            tally=recorder.tally,
            started=recorder.started,
            next_seq=recorder.next_seq,
            interval=self._pump.widest or None,
            session=recorder.session,
            disposal_error=attempt.disposal_error,
            permission=desk.permissions.latest,
        )
        return turn_result(self._spec, output, ending, course)

    async def _hand_over(self, recorder: TurnRecorder) -> NoReturn:
        """Raise what makes the workflow start the next attempt, with everything recorded so far."""
        if self._stop.leave == "ownership-lost":
            if recorder.started is not None and await _delegation_was_cut_off():
                # Terminated: no other attempt will publish the end.
                await self._lifecycle.ended(contract.ABORTED, recorder.fold.collect())
            _leave(names.ERROR_OWNERSHIP_LOST, recorder.checkpoint())
        try:
            await recorder.seal()
        except LogUnavailable:
            logger.warning("the tail of %s goes on in the checkpoint, the log does not take it", self._spec.id)
        kind = names.ERROR_WORKER_SHUTDOWN if self._stop.leave == "hand-over" else names.ERROR_INTERRUPTED
        _leave(kind, recorder.checkpoint())

    async def _refuse(self, error: RequestRejected, recovered: Recovered) -> TurnResult:
        """A turn that never started is rejected; one that has started settles, whatever this worker lacks."""
        if recovered.started is not None:
            logger.error("this worker cannot go on with %s: %s", self._spec.id, error)
            return await self._settle()
        raise ApplicationError(str(error), type=names.ERROR_REJECTED, non_retryable=True)

    async def _settle(self, category: str = "worker-lost") -> TurnResult:
        input = self._input
        return await settle_and_publish(
            self._store,
            self._observers,
            SettleInput(
                spec=self._spec,
                attempt=input.attempt - 1,
                losses=input.losses,
                checkpoint=input.checkpoint,
                stop_reason=contract.ERROR,
                category=category,
            ),
        )

    def _plan(self, recovered: Recovered, *, resumable: bool | None = None) -> Plan:
        if resumable is None:
            session = self._input.checkpoint.session if self._input.checkpoint else None
            resumable = _resumable(self._backends.get(self._spec.task.backend), session, recovered)
        return plan_recovery(
            self._spec.task.on_worker_loss,
            lost=self._input.lost,
            ended=recovered.end is not None,
            resumable=resumable,
            tools_called=recovered.tools_called,
        )

    def _remaining(self) -> float | None:
        if self._input.remaining is None:
            return None
        info = activity.info()
        queued = (info.started_time - info.current_attempt_scheduled_time).total_seconds()
        return max(self._input.remaining - queued, 0.0)


def _resumable(backend: Backend | None, session: SessionRef | None, recovered: Recovered) -> bool:
    """By its session, if the agent keeps one; by its log, if that is whole."""
    if backend is None or backend.capabilities.resume is None:
        return False
    return session is not None or (backend.capabilities.resume == "log" and not recovered.missing_events)


def _open_failure(backend: Backend) -> Ending:
    return Ending(contract.ERROR, Diagnostic(backend=backend.name, stage="open", category="internal"))


async def _delegation_was_cut_off() -> bool:
    info = activity.info()
    if info.workflow_id is None:
        return False
    try:
        handle = activity.client().get_workflow_handle(info.workflow_id, run_id=info.workflow_run_id)
        description = await handle.describe(rpc_timeout=timedelta(seconds=options.OWNERSHIP_LOST_AFTER))
    except RPCError:
        return False
    return description.status in (WorkflowExecutionStatus.TERMINATED, WorkflowExecutionStatus.TIMED_OUT)


def _leave(kind: str, *details: Checkpoint | object) -> NoReturn:
    raise ApplicationError("The turn goes on in the next attempt.", *details, type=kind, non_retryable=True)


def _note_cancellation(stop: StopSignal) -> None:
    details = activity.cancellation_details()
    if details is not None and (details.not_found or details.timed_out):
        stop.leave_turn("ownership-lost")
    elif details is not None and details.cancel_requested:
        stop.end_turn(contract.ABORTED)
    elif details is not None and details.worker_shutdown:
        stop.leave_turn("hand-over")
    else:
        # Paused or reset by an operator, or a heartbeat that could not be sent.
        stop.leave_turn("interrupted")


def _uncancel() -> None:
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


async def _hand_over_at_shutdown(stop: StopSignal) -> None:
    await activity.wait_for_worker_shutdown()
    stop.leave_turn("hand-over")


async def _leave_when_lost(probe: ServerProbe, stop: StopSignal) -> None:
    await probe.lost()
    stop.leave_turn("ownership-lost")
