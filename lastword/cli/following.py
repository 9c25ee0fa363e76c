"""Following one delegation from a terminal, with what the keyboard may do to it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from lastword.cli.errors import COMPLETED, INTERRUPTED, NOT_COMPLETED
from lastword.cli.rendering import LiveText, note, note_ending, print_json, result_json
from lastword.core.errors import LastwordError, RequestRejected, ServerUnreachable, WorkerUnavailable

if TYPE_CHECKING:
    from lastword.client import DelegationClient
    from lastword.core.contract import DelegationResult
    from lastword.watching import Progress, Watched

PICK_UP_GRACE = 5.0
"""Seconds in the queue after which it is said that nobody takes from it."""


class Follower:
    """Shows a delegation until it has closed, or until it is let go.

    With `owns`, Ctrl-C cancels the child and the partial is still shown; a second one lets it go. Without, the first
    Ctrl-C lets it go. SIGTERM always lets go. The child itself is never harmed by letting go.
    """

    def __init__(self, client: DelegationClient, id: str, *, owns: bool, as_json: bool) -> None:
        self._client = client
        self._id = id
        self._owns = owns
        self._as_json = as_json
        self._text = LiveText(quiet=as_json)
        self._started = asyncio.Event()
        self._let_go = asyncio.Event()
        self._picked_up = False
        self._interrupted = False
        self._cancelling: asyncio.Task[None] | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._unavailable: WorkerUnavailable | None = None

    async def run(self, start: Callable[[], Awaitable[object]] | None = None) -> int:
        """Start it, if it is to be started, and show it; the exit code.

        Raises what `start` and watching raise, and WorkerUnavailable for one that this terminal started and that stays
        in the queue.
        """
        loop = asyncio.get_running_loop()
        # Before it is started: a Ctrl-C from now on has to reach the child.
        loop.add_signal_handler(signal.SIGINT, self._on_interrupt)
        loop.add_signal_handler(signal.SIGTERM, self._let_go.set)
        showing = asyncio.create_task(self._show(start))
        letting_go = asyncio.create_task(self._let_go.wait())
        try:
            await asyncio.wait({showing, letting_go}, return_when=asyncio.FIRST_COMPLETED)
            return self._conclude(showing.result()) if showing.done() else self._leave_it()
        except ServerUnreachable as error:
            if not self._started.is_set():
                raise
            self._text.end_line()
            raise ServerUnreachable(f"{error}\n{self._id} goes on with it: lastword watch {self._id}") from None
        except BrokenPipeError:
            note(f"stdout is closed. Come back with: lastword watch {self._id}")
            return NOT_COMPLETED
        finally:
            self._be_patient(False)
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
            pending = [task for task in (showing, letting_go, self._cancelling) if task is not None]
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)

    async def _show(self, start: Callable[[], Awaitable[object]] | None) -> DelegationResult:
        from lastword.watching import Closed, StatusChanged

        if start is not None:
            await start()
        self._started.set()
        async for item in self._client.watch(self._id):
            if isinstance(item, StatusChanged):
                self._on_status(item.progress)
            elif isinstance(item, Closed):
                self._text.finish(item.result)
                return item.result
            else:
                self._note_question(item)
                self._text.take(item)
        raise AssertionError("unreachable: watching ends with the result")

    def _note_question(self, item: Watched) -> None:
        from lastword.core.events import PERMISSION_REQUEST
        from lastword.watching import EventSeen

        if isinstance(item, EventSeen) and item.event.type == PERMISSION_REQUEST:
            asked = item.event.data.get("request", {})
            self._text.end_line()
            what = f"{asked.get('kind')} {asked.get('title', '')}".strip()
            note(f"the child asks to {what}; answer it: lastword answer {self._id} allow|reject", style="yellow")

    def _on_status(self, progress: Progress) -> None:
        self._be_patient(progress.phase == "queued")
        self._picked_up = self._picked_up or progress.phase != "queued"
        if progress.phase == "running" and progress.attempt > 1:
            self._text.end_line()
            note(f"attempt {progress.attempt}: another worker goes on with the child")

    def _be_patient(self, queued: bool) -> None:
        """Begin or end the wait for a worker."""
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if queued:
            self._patience = asyncio.get_running_loop().call_later(PICK_UP_GRACE, self._on_impatience)

    def _on_impatience(self) -> None:
        fact = (
            f"queued, not picked up after {PICK_UP_GRACE:g} s: no worker takes from the queue"
            f" {self._client.task_queue!r}, or none has room. Start one with `lastword up` or `lastword worker`"
        )
        if self._interrupted:
            note(f"{fact}; or settle it without one: lastword cancel {self._id} --force")
            self._let_go.set()
        elif self._picked_up or not self._owns:
            self._text.end_line()
            note(f"{fact}; waiting")
        else:
            self._unavailable = WorkerUnavailable(f"{fact};\n{self._id} stays queued: lastword watch {self._id}")
            self._let_go.set()

    def _on_interrupt(self) -> None:
        if not self._owns or self._interrupted:
            self._let_go.set()
            return
        self._interrupted = True
        self._text.end_line()
        note("cancelling; Ctrl-C once more lets go")
        self._cancelling = asyncio.create_task(self._cancel())

    async def _cancel(self) -> None:
        await self._started.wait()
        try:
            await self._client.cancel(self._id)
        except RequestRejected:
            # Never started; watching tells it.
            return
        except LastwordError as error:
            note(f"the cancel may not have arrived: {error}", style="yellow")

    def _leave_it(self) -> int:
        self._text.end_line()
        if self._unavailable is not None:
            raise self._unavailable
        goes_on = "it was asked to stop" if self._interrupted else "it goes on"
        note(f"let go of {self._id}; {goes_on}. Come back with: lastword watch {self._id}")
        if self._as_json:
            error = f"let go; {goes_on}: lastword result {self._id}"
            print_json({"id": self._id, "is_error": True, "error": error})
        return INTERRUPTED

    def _conclude(self, done: DelegationResult) -> int:
        if self._as_json:
            print_json(result_json(done))
        note_ending(done)
        if self._interrupted:
            return INTERRUPTED
        return COMPLETED if done.result.completed else NOT_COMPLETED
