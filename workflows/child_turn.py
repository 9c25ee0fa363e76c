"""One child turn, as the workflow holds it: attempts, cancel and salvage. Both workflows use it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError, TimeoutError, TimeoutType

with workflow.unsafe.imports_passed_through():
    from lastword.core import contract, names
    from lastword.core.checkpoint import Checkpoint, checkpoint_of
    from lastword.core.contract import StopReason, TurnResult, TurnSpec
    from lastword.core.errors import CheckpointInvalid
    from lastword.core.inputs import AttemptInput, SettleInput
    from lastword.core.recovery import MAX_LOSSES
    from lastword.workflows import options
    from lastword.workflows.children import Children


class ChildTurnRun:
    """Runs one turn to its result.

    The workflow starts every attempt itself and takes the checkpoint from the one before: with server-side retries a
    cancel that arrives between two attempts would never see it.
    """

    def __init__(self, spec: TurnSpec, *, summary: str, children: Children) -> None:
        self._spec = spec
        self._children = children
        self._children.begin(spec)
        self._said_all = False
        self._summary = summary
        self._cancelled = False
        self.was_cancelled_from_outside = False
        """The workflow itself was cancelled while the turn ran."""
        self._handle: workflow.ActivityHandle[TurnResult] | None = None
        self._checkpoint: Checkpoint | None = None
        self._losses = 0
        self._started = workflow.time()

    def cancel(self) -> None:
        """End the turn as `aborted` with its partial, without cancelling the workflow."""
        self._cancelled = True
        self._children.cancel()
        if self._handle is not None:
            self._handle.cancel()

    @property
    def waits_for_children(self) -> bool:
        """It is children of its own that the turn waits for."""
        return self._children.awaited or (self._said_all and self._children.bound)

    async def run(self) -> TurnResult:
        """The turn's result, its own children ended. Raises ApplicationError of type RequestRejected if no child could
        be started."""
        # Not in a `finally`: that also runs when a cached workflow is dropped, and nothing may be awaited then.
        try:
            result = await self._run()
        except ApplicationError:
            await self._end_children()
            raise
        await self._end_children()
        return result

    async def _end_children(self) -> None:
        self._said_all = True
        ending = asyncio.create_task(self._children.end())
        while True:
            try:
                await asyncio.shield(ending)
                return
            except asyncio.CancelledError:
                self._cancelled = self.was_cancelled_from_outside = True
                self._children.cancel()

    async def _run(self) -> TurnResult:
        attempt, lost = 1, False
        while True:
            try:
                return await self._attempt(attempt, lost)
            except ActivityError as error:
                stop = self._stop_after(error)
            if stop is not None:
                reason, category = stop
                return await self._settle(attempt, reason, category)
            attempt, lost = attempt + 1, self._last_was_loss

    def _stop_after(self, error: ActivityError) -> tuple[StopReason, str | None] | None:
        """Why the turn settles after this failure of an attempt; None if another attempt goes on."""
        cause = error.cause
        self._last_was_loss = True
        out_of_time = False
        if isinstance(cause, TimeoutError):
            self._take(cause.last_heartbeat_details)
            out_of_time = cause.type in (TimeoutType.SCHEDULE_TO_CLOSE, TimeoutType.SCHEDULE_TO_START)
        elif isinstance(cause, ApplicationError):
            if cause.type == names.ERROR_REJECTED:
                raise cause
            self._take(cause.details)
            self._last_was_loss = cause.type not in (names.ERROR_WORKER_SHUTDOWN, names.ERROR_INTERRUPTED)
        if isinstance(cause, CancelledError) or self._cancelled:
            return contract.ABORTED, None
        if self._last_was_loss:
            self._losses += 1
        if out_of_time or self._remaining() == 0:
            return contract.TIMEOUT, "wall-clock-limit"
        if self._last_was_loss and (self._losses >= MAX_LOSSES or self._spec.task.on_worker_loss == "settle"):
            return contract.ERROR, "worker-lost"
        return None

    async def _attempt(self, attempt: int, lost: bool) -> TurnResult:
        remaining = self._remaining()
        self._handle = workflow.start_activity(
            names.RUN_CHILD_TURN,
            AttemptInput(
                spec=self._spec,
                attempt=attempt,
                losses=self._losses,
                lost=lost,
                remaining=remaining,
                checkpoint=self._checkpoint,
            ),
            result_type=TurnResult,
            schedule_to_close_timeout=options.UNBOUNDED
            if remaining is None
            else timedelta(seconds=remaining) + options.RUN_MARGIN,
            heartbeat_timeout=options.HEARTBEAT_TIMEOUT,
            retry_policy=options.ATTEMPT_RETRY,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=self._summary,
        )
        if self._cancelled:
            self._handle.cancel()
        return await self._outcome(self._handle)

    async def _outcome(self, handle: workflow.ActivityHandle[TurnResult]) -> TurnResult:
        """The attempt's outcome. A cancel is passed on, unless the outcome came in the same workflow task."""
        while True:
            try:
                return await asyncio.shield(handle)
            except asyncio.CancelledError:
                self._cancelled = self.was_cancelled_from_outside = True
                # Outcome and cancel may arrive in one activation: the outcome lands within these turns of the loop.
                for _ in range(3):
                    if handle.done():
                        break
                    await asyncio.sleep(0)
                if not handle.done():
                    # Its children first; what they still say is kept, but their parent does not go on with it.
                    self._children.cancel()
                    handle.cancel()

    async def _settle(self, attempt: int, reason: StopReason, category: str | None) -> TurnResult:
        handle = workflow.start_activity(
            names.SETTLE,
            SettleInput(
                spec=self._spec,
                attempt=attempt,
                losses=self._losses,
                checkpoint=self._checkpoint,
                stop_reason=reason,
                category=category,
            ),
            result_type=TurnResult,
            start_to_close_timeout=options.SETTLE_TIMEOUT,
            retry_policy=options.SETTLE_RETRY,
            summary=f"settle: {reason}",
        )
        while True:
            try:
                return await asyncio.shield(handle)
            except asyncio.CancelledError:
                self.was_cancelled_from_outside = True
                # Already ending; the result is what the caller who cancels is waiting for.
                continue

    def _take(self, details: Any) -> None:
        try:
            self._checkpoint = checkpoint_of(details) or self._checkpoint
        except CheckpointInvalid as error:
            workflow.logger.error("ignoring a checkpoint of %s: %s", self._spec.id, error)

    def _remaining(self) -> float | None:
        wall_clock = self._spec.task.limits.wall_clock
        return None if wall_clock is None else max(wall_clock - (workflow.time() - self._started), 0.0)
