"""Many delegations at once: each its own, none harmed by another, and taken up again by their ids."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from lastword.client import DelegationClient
from lastword.core.contract import DelegationRequest, DelegationResult
from lastword.core.errors import LastwordError, RequestConflict, RequestInvalid, RequestRejected

MAX_CONCURRENCY: Final = 500
"""Waiting for a result is a long poll; a server has room for about 1,200 of them from one namespace."""


@dataclass(frozen=True)
class Asked:
    """One of them. With the same id for the same request, asking again attaches to what was started before."""

    id: str
    request: DelegationRequest


@dataclass(frozen=True)
class Settled:
    """What came of one: a result, or why there is none. `index` is its place among those asked, from 0."""

    index: int
    id: str
    result: DelegationResult | None = None
    error: LastwordError | None = None

    @property
    def completed(self) -> bool:
        return self.result is not None and self.result.result.completed


async def delegate_many(
    client: DelegationClient,
    asked: Sequence[Asked],
    *,
    concurrency: int = 8,
    on_start: Callable[[int], None] = lambda index: None,
) -> AsyncIterator[Settled]:
    """Run them, at most `concurrency` at a time in the order asked, and give each as it settles.

    What is wrong with one - rejected, in conflict, failed, cancelled - is told of that one. Raises what concerns them
    all (ServerUnreachable, ...). What was started goes on by itself, then and when this is no longer iterated.
    """
    if not 1 <= concurrency <= MAX_CONCURRENCY:
        raise RequestInvalid(f"The concurrency is {concurrency}; choose 1 to {MAX_CONCURRENCY}.")
    left = iter(enumerate(asked))
    running: set[asyncio.Task[Settled]] = set()
    try:
        while True:
            while len(running) < concurrency and (following := next(left, None)) is not None:
                index, one = following
                on_start(index)
                running.add(asyncio.create_task(_run(client, index, one)))
            if not running:
                return
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                yield task.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def run_many(client: DelegationClient, asked: Sequence[Asked], *, concurrency: int = 8) -> list[Settled]:
    """The same, all of them in the order asked."""
    settled = [one async for one in delegate_many(client, asked, concurrency=concurrency)]
    return sorted(settled, key=lambda one: one.index)


async def _run(client: DelegationClient, index: int, one: Asked) -> Settled:
    try:
        return Settled(index, one.id, await client.run(one.request, id=one.id))
    except (RequestRejected, RequestConflict, RequestInvalid) as error:
        return Settled(index, one.id, error=error)
