"""One attempt at a turn: open the child, take its events, stop it when something says so, dispose it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Any, cast

from lastword.activities.child_host import ChildHostDesk
from lastword.activities.stop_signal import StopSignal
from lastword.activities.turn_recorder import TurnRecorder
from lastword.core import contract, options
from lastword.core.contract import TurnSpec
from lastword.core.diagnostic import Diagnostic
from lastword.core.errors import Fenced
from lastword.core.events import TURN_END, SessionEvent
from lastword.core.ports import Backend, Earlier, Resume
from lastword.core.results import Ending

logger = logging.getLogger("lastword.turn")


class ChildAttempt:
    """Drives one child from open to disposed.

    `run` returns how the child's turn ended, or None when this attempt has to leave the turn to another one (see
    `StopSignal.leave`). It raises only RequestRejected and ResumeRefused, from opening.
    """

    def __init__(
        self,
        spec: TurnSpec,
        backend: Backend,
        desk: ChildHostDesk,
        recorder: TurnRecorder,
        stop: StopSignal,
        *,
        remaining: float | None,
    ) -> None:
        self._spec = spec
        self._backend = backend
        self._desk = desk
        self._recorder = recorder
        self._stop = stop
        # The event loop's clock is the monotonic one.
        self._deadline = None if remaining is None else time.monotonic() + remaining
        self.disposal_error = False

    async def open(self, resume: Resume | None, earlier: Earlier | None = None) -> bool:
        """Start the child; False if something said stop before it was open.

        Raises RequestRejected if the backend cannot run the task, ResumeRefused if it cannot go on with it. Opening,
        running and disposing are one task's work: a backend may hold scopes that are bound to it.
        """
        context = self._backend.open(self._spec, resume, self._desk, earlier)
        watcher = asyncio.create_task(self._stop.wait())
        try:
            async with asyncio.timeout_at(self._deadline) as scope:
                watcher.add_done_callback(lambda task: _expire(scope, task))
                self._turn = await context.__aenter__()
        except TimeoutError:
            if not scope.expired():
                raise
            if not self._stop.is_set:
                self._limit("wall-clock-limit", self._spec.task.limits.wall_clock)
            return False
        finally:
            watcher.cancel()
        self._context = context
        self._recorder.watch_session(lambda: self._turn.session)
        return True

    def stopped(self) -> Ending | None:
        """How the turn ends when the child was never open; None if another attempt goes on."""
        if self._stop.leave is not None or self._stop.reason is None:
            return None
        return Ending(self._stop.reason, self._stop.diagnostic)

    async def run(self) -> Ending | None:
        """Take the child's events until the turn ends, is stopped, or is left to another attempt."""
        consumer = asyncio.create_task(self._consume())
        try:
            await self._supervise(consumer)
            if self._stop.leave is not None:
                return None
            if self._stop.is_set and not consumer.done():
                await self._ask_to_stop(consumer)
            return await self._ending(consumer)
        finally:
            await _discard(consumer)

    async def dispose(self) -> None:
        """Leave the child's context. A failure is kept in `disposal_error`, for a result must not be lost to it."""
        try:
            async with asyncio.timeout(options.DISPOSE_GRACE):
                await self._context.__aexit__(None, None, None)
        except Exception:
            self.disposal_error = True
            logger.warning("disposing the child of %s failed", self._spec.id, exc_info=True)

    async def _consume(self) -> SessionEvent | None:
        limits, tally = self._spec.task.limits, self._recorder.tally
        # Backends write generators; closing one is how a child learns that nobody asks any more.
        events = cast(Any, self._turn.events())
        async with aclosing(events) if hasattr(events, "aclose") else _NotClosing(events) as stream:
            async for event in stream:
                if event.type == TURN_END:
                    return cast(SessionEvent, event)
                if over := tally.refusal(event, limits, self._backend.name):
                    self._stop.end_turn(contract.BUDGET, over)
                    return None
                await self._recorder.record(event)
        return None

    async def _supervise(self, consumer: asyncio.Task[SessionEvent | None]) -> None:
        """Return when the child has ended or something says stop; limits of time are kept here."""
        stopped = asyncio.create_task(self._stop.wait())
        try:
            while not consumer.done() and not self._stop.is_set:
                watched: list[asyncio.Future[Any]] = [consumer, stopped, self._recorder.failed]
                await asyncio.wait(watched, timeout=self._next_check(), return_when=asyncio.FIRST_COMPLETED)
                if self._recorder.failed.done():
                    self._stop_for(self._recorder.failed.exception())
                elif not consumer.done():
                    self._check_time()
        finally:
            stopped.cancel()

    def _next_check(self) -> float | None:
        waits = []
        if self._deadline is not None:
            waits.append(self._deadline - time.monotonic())
        if (idle := self._spec.task.limits.idle) is not None:
            # While a person is asked the child is not idle; it is looked at again.
            waits.append(idle if self._desk.waiting else self._recorder.last_event_at + idle - time.monotonic())
        return max(min(waits), 0.0) + 0.001 if waits else None

    def _check_time(self) -> None:
        limits, now = self._spec.task.limits, time.monotonic()
        if self._deadline is not None and now >= self._deadline:
            self._limit("wall-clock-limit", limits.wall_clock)
        elif limits.idle is not None and not self._desk.waiting and now >= self._recorder.last_event_at + limits.idle:
            self._limit("idle-limit", limits.idle)

    def _limit(self, category: str, limit: float | None) -> None:
        self._stop.end_turn(contract.TIMEOUT, self._note(category, limit=limit))

    def _stop_for(self, error: BaseException | None) -> None:
        if isinstance(error, Fenced):
            self._stop.leave_turn("ownership-lost")
        else:
            logger.error("the session log of %s failed: %s", self._spec.id, error)
            self._stop.end_turn(contract.ERROR, self._note("session-log", stage="log"))

    async def _ask_to_stop(self, consumer: asyncio.Task[SessionEvent | None]) -> None:
        """Cancel the child and take what it still says, within a grace."""
        try:
            async with asyncio.timeout(options.CANCEL_GRACE):
                await self._turn.cancel()
                await asyncio.wait([consumer])
        except TimeoutError:
            logger.info("the child of %s did not end within %g s of its cancel", self._spec.id, options.CANCEL_GRACE)
        except Exception:
            logger.warning("cancelling the child of %s failed", self._spec.id, exc_info=True)

    async def _ending(self, consumer: asyncio.Task[SessionEvent | None]) -> Ending | None:
        """How the turn ended. What stopped it overrides whatever the child answered to being stopped."""
        event: SessionEvent | None = None
        failure: Diagnostic | None = None
        if consumer.done():
            try:
                event = consumer.result()
            except Fenced:
                self._stop.leave_turn("ownership-lost")
                return None
            except Exception as error:
                if self._recorder.failed.done():
                    self._stop_for(error)
                else:
                    logger.error("the child of %s broke off", self._spec.id, exc_info=error)
                    failure = self._note("crash")
        if self._stop.reason is not None:
            return Ending(self._stop.reason, self._stop.diagnostic)
        if event is not None:
            return Ending.of_event(event, self._backend.name)
        return Ending(contract.ERROR, failure or self._note("unfinished"))

    def _note(self, category: str, *, stage: str = "turn", limit: float | None = None) -> Diagnostic:
        return Diagnostic(backend=self._backend.name, stage=stage, category=category, limit=limit)


def _expire(scope: asyncio.Timeout, watcher: asyncio.Task[None]) -> None:
    # The scope may be over by the time this callback runs.
    if not watcher.cancelled():
        with suppress(RuntimeError):
            scope.reschedule(0)


class _NotClosing:
    """For an event stream that is no generator and so has nothing to close."""

    def __init__(self, stream: AsyncIterator[SessionEvent]) -> None:
        self._stream = stream

    async def __aenter__(self) -> AsyncIterator[SessionEvent]:
        return self._stream

    async def __aexit__(self, *exc: object) -> None:
        return None


async def _discard(task: asyncio.Task[Any]) -> None:
    """Cancel the task and wait until it is over; what it raises no longer matters."""
    task.cancel()
    await asyncio.wait([task], timeout=options.CANCEL_GRACE)
    if task.done() and not task.cancelled():
        task.exception()
