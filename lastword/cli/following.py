"""Following one delegation from a terminal, with what the keyboard may do to it."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from lastword.cli.errors import COMPLETED, INTERRUPTED, NOT_COMPLETED
from lastword.cli.rendering import LiveText, note, note_ending, print_json, result_json
from lastword.core.errors import WorkerUnavailable

if TYPE_CHECKING:
    from lastword.client import DelegationClient
    from lastword.core.contract import DelegationResult

_PICK_UP_GRACE = 5.0


class Follower:
    """Shows a delegation until it has closed, or until it is let go.

    With `owns`, Ctrl-C cancels the child and the partial is still shown; a second one lets it go. Without, the first
    Ctrl-C lets it go. The child itself is never harmed by letting go.
    """

    def __init__(self, client: DelegationClient, id: str, *, owns: bool, as_json: bool) -> None:
        self._client = client
        self._id = id
        self._owns = owns
        self._as_json = as_json
        self._text = LiveText(quiet=as_json)
        self._let_go = asyncio.Event()
        self._picked_up = asyncio.Event()
        self._interrupted = False
        self._cancelling: asyncio.Task[object] | None = None

    async def run(self) -> int:
        """The exit code."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._on_interrupt)
        loop.add_signal_handler(signal.SIGTERM, self._let_go.set)
        showing = asyncio.create_task(self._show())
        letting_go = asyncio.create_task(self._let_go.wait())
        waiting = {showing, letting_go}
        if self._owns:
            waiting.add(asyncio.create_task(self._check_pick_up()))
        try:
            while not showing.done() and not self._let_go.is_set():
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done - {showing}:
                    waiting.discard(task)
                    task.result()
            if not showing.done():
                note(f"let go of {self._id}; it goes on. Come back with: lastword watch {self._id}")
                return INTERRUPTED
            return self._conclude(showing.result())
        finally:
            for pending in (showing, letting_go, *waiting, self._cancelling):
                if pending is not None:
                    pending.cancel()
            with suppress(NotImplementedError):
                loop.remove_signal_handler(signal.SIGINT)

    async def _show(self) -> DelegationResult:
        from lastword.watching import Closed, StatusChanged

        async for item in self._client.watch(self._id):
            if isinstance(item, StatusChanged):
                if item.progress.phase != "queued":
                    self._picked_up.set()
                if item.progress.attempt > 1 and item.progress.phase == "running":
                    note(f"attempt {item.progress.attempt}: the child goes on in another worker")
            elif isinstance(item, Closed):
                self._text.finish(item.result)
                return item.result
            self._text.take(item)
        raise AssertionError("unreachable: watching ends with the result")

    async def _check_pick_up(self) -> bool:
        try:
            async with asyncio.timeout(_PICK_UP_GRACE):
                return await self._picked_up.wait()
        except TimeoutError:
            raise WorkerUnavailable(
                f"queued, not picked up after {_PICK_UP_GRACE:g} s: no worker takes from the queue"
                f" {self._client.task_queue!r}. Start one with `lastword up` or `lastword worker`;"
                f" {self._id} stays queued: lastword watch {self._id}"
            ) from None

    def _on_interrupt(self) -> None:
        if not self._owns or self._interrupted:
            self._let_go.set()
            return
        self._interrupted = True
        note("cancelling; once more to let go")
        self._cancelling = asyncio.create_task(self._client.cancel(self._id))

    def _conclude(self, done: DelegationResult) -> int:
        if self._as_json:
            print_json(result_json(done))
        note_ending(done)
        if self._interrupted:
            return INTERRUPTED
        return COMPLETED if done.result.completed else NOT_COMPLETED
