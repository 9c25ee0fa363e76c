"""The Python face: one client for delegations, conversations and trees; and the same without `await`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from lastword.client import DelegationClient
from lastword.connecting import connect_client
from lastword.conversing import ConversationClient
from lastword.core.contract import DelegationRequest, DelegationResult, Prompt
from lastword.core.conversation import ConversationRequest
from lastword.many import Asked, Settled, run_many
from lastword.trees import TreeRow, tree
from lastword.watching import Watched

_T = TypeVar("_T")


class Lastword(DelegationClient):
    """A `DelegationClient` with what else a parent wants at hand.

    `conversations` is the client of children that go on.
    """

    @property
    def conversations(self) -> ConversationClient:
        return ConversationClient(self.client, task_queue=self.task_queue, store=self.store)

    async def ask(self, id: str, prompt: Prompt, *, message_id: str | None = None) -> DelegationResult:
        """Ask a conversation and wait for the answer. See `ConversationClient.ask`."""
        return await self.conversations.ask(id, prompt, message_id=message_id)

    async def tree(self, root: str | None = None) -> Sequence[TreeRow]:
        """A child and all below it; without a root all that runs. See `lastword.trees.tree`."""
        return await tree(self, root)

    async def delegate_many(self, asked: Sequence[Asked], *, concurrency: int = 8) -> list[Settled]:
        """Many at once, in the order asked; none harms another. See `lastword.many`."""
        return await run_many(self, asked, concurrency=concurrency)


async def connect(*, data_dir: Path | None = None) -> Lastword:
    """A client of the server that Temporal's configuration names (`TEMPORAL_*`, profiles), else of `lastword up`.

    Raises ServerUnreachable, ConfigurationError.
    """
    found = await connect_client(data_dir)
    return Lastword(found.client, task_queue=found.task_queue, store=found.store)


class SyncLastword:
    """`Lastword` for code that has no event loop: the same calls, each waits. Use it as a context.

    It has a loop in a thread of its own, so several threads may call at once. Leaving the context ends no child.
    """

    def __init__(self, *, data_dir: Path | None = None) -> None:
        self._data_dir = data_dir

    def __enter__(self) -> SyncLastword:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lastword", daemon=True)
        self._thread.start()
        try:
            self._client = self._wait(connect(data_dir=self._data_dir))
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def start(self, request: DelegationRequest, *, id: str | None = None) -> str:
        return self._wait(self._client.start(request, id=id))

    def run(self, request: DelegationRequest, *, id: str | None = None) -> DelegationResult:
        return self._wait(self._client.run(request, id=id))

    def result(self, id: str) -> DelegationResult:
        return self._wait(self._client.result(id))

    def cancel(self, id: str, *, force: bool = False) -> DelegationResult:
        return self._wait(self._client.cancel(id, force=force))

    def watch(self, id: str) -> Iterator[Watched]:
        """What the child says, as it comes; the last item is `Closed` with the result."""
        watched = self._client.watch(id).__aiter__()
        while True:
            try:
                yield self._wait(_next(watched.__anext__))
            except StopAsyncIteration:
                return

    def converse(self, request: ConversationRequest, *, id: str | None = None) -> str:
        """Start a conversation."""
        return self._wait(self._client.conversations.start(request, id=id))

    def ask(self, id: str, prompt: Prompt, *, message_id: str | None = None) -> DelegationResult:
        return self._wait(self._client.ask(id, prompt, message_id=message_id))

    def tree(self, root: str | None = None) -> Sequence[TreeRow]:
        return self._wait(self._client.tree(root))

    def _wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        except BaseException:
            # Ctrl-C stops the waiting, here and there.
            running.cancel()
            raise

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


async def _next(step: Callable[[], Awaitable[_T]]) -> _T:
    return await step()
