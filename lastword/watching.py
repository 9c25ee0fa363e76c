"""Following a delegation from anywhere, by the heartbeat it already sends and the sealed part of its session log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus, WorkflowHandle

from lastword.core import names
from lastword.core.checkpoint import Checkpoint, checkpoint_of
from lastword.core.contract import DelegationResult, LogRef
from lastword.core.errors import CheckpointInvalid, LogUnavailable
from lastword.core.events import SessionEvent, text_of
from lastword.core.output import AssistantOutputFold
from lastword.core.packing import RowReader
from lastword.core.ports import Gap, SessionStore

POLL_INTERVAL: Final = 0.2

Phase: TypeAlias = Literal["queued", "running", "settling", "idle", "closed"]
"""`idle` is a conversation between two turns."""


@dataclass(frozen=True)
class Progress:
    """A child as the server shows it at one moment."""

    id: str
    run_id: str
    phase: Phase
    checkpoint: Checkpoint | None = None
    conversation: bool = False

    @property
    def attempt(self) -> int:
        return self.checkpoint.attempt if self.checkpoint else 1


@dataclass(frozen=True)
class StatusChanged:
    """The delegation was picked up, lost its worker, or closed."""

    progress: Progress


@dataclass(frozen=True)
class EventSeen:
    """The child said or did something."""

    event: SessionEvent


@dataclass(frozen=True)
class EventsMissed:
    """Events that this watcher cannot see: sealed in a log that it cannot read, or damaged there."""

    gap: Gap


@dataclass(frozen=True)
class Closed:
    """The result; always the last."""

    result: DelegationResult


Watched: TypeAlias = StatusChanged | EventSeen | EventsMissed | Closed


async def progress_of(client: Client, description: WorkflowExecutionDescription) -> Progress:
    """What a description tells: phase and latest checkpoint."""
    conversation = description.workflow_type == names.CONVERSATION_WORKFLOW
    phase: Phase = "queued"
    if conversation and not description.raw_description.pending_activities:
        phase = "idle"
    checkpoint: Checkpoint | None = None
    if description.status != WorkflowExecutionStatus.RUNNING:
        phase = "closed"
    for pending in description.raw_description.pending_activities:
        if pending.activity_type.name == names.SETTLE:
            phase = "settling"
        elif pending.state != PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED and phase != "closed":
            phase = "running"
        try:
            details = await client.data_converter.decode(pending.heartbeat_details.payloads)
            checkpoint = checkpoint_of(details) or checkpoint
        except CheckpointInvalid:
            # Written by another version; the delegation is alive all the same.
            continue
    return Progress(description.id, description.run_id, phase, checkpoint, conversation)


async def watch_delegation(
    client: Client,
    handle: WorkflowHandle[object, object],
    result: asyncio.Task[DelegationResult],
    store: SessionStore | None,
    *,
    log: LogRef | None = None,
    from_seq: int = 0,
) -> AsyncIterator[Watched]:
    """Everything the child says from its beginning, or `from_seq`, as it comes, and the result at last.

    `result` is the pending result; when it fails, so does this. `log` is the session's, where it is not that of the
    workflow's own run.
    """
    view: _LogView | None = None
    last: tuple[Phase, int] | None = None
    while True:
        closing = result.done()
        progress = await progress_of(client, await handle.describe())
        if (state := (progress.phase, progress.attempt)) != last:
            last = state
            yield StatusChanged(progress)
        if view is None:
            view = _LogView(store, log or LogRef(session_id=progress.id, run_id=progress.run_id), from_seq)
        if progress.checkpoint is not None:
            async for item in view.catch_up(progress.checkpoint):
                yield item
        if closing:
            break
        await asyncio.wait([result], timeout=POLL_INTERVAL)
    closed = result.result()
    async for item in view.finish(closed.result.next_seq):
        yield item
    yield Closed(closed)


class _LogView:
    """One session's events, each once and in order, from two sources that overlap."""

    def __init__(self, store: SessionStore | None, log: LogRef, from_seq: int) -> None:
        self._store = store
        self._log = log
        self._seen = from_seq

    async def catch_up(self, checkpoint: Checkpoint) -> AsyncIterator[Watched]:
        """What the checkpoint adds: sealed segments first, then its tail."""
        if checkpoint.sealed_seq > self._seen:
            async for item in self._sealed(checkpoint.sealed_seq):
                yield item
        reader = RowReader()
        for row in checkpoint.tail:
            for event in reader.read(row):
                if event.seq is not None and event.seq >= self._seen:
                    self._seen = event.seq + 1
                    yield EventSeen(event)

    async def finish(self, next_seq: int) -> AsyncIterator[Watched]:
        """What is left when the delegation has closed."""
        if next_seq > self._seen:
            async for item in self._sealed(next_seq):
                yield item

    async def _sealed(self, end_seq: int) -> AsyncIterator[Watched]:
        begin = self._seen
        if self._store is not None:
            try:
                async for item in self._store.read(self._log, from_seq=self._seen):
                    if isinstance(item, Gap):
                        yield EventsMissed(item)
                    elif item.seq is not None and item.seq >= self._seen:
                        self._seen = item.seq + 1
                        yield EventSeen(item)
            except LogUnavailable:
                pass
        if self._seen < end_seq:
            gap = Gap(first_seq=max(begin, self._seen), end_seq=end_seq, reason="missing")
            self._seen = end_seq
            yield EventsMissed(gap)


def text_so_far(checkpoint: Checkpoint | None) -> str:
    """The output so far, as far as the checkpoint carries it."""
    if checkpoint is None:
        return ""
    try:
        fold = AssistantOutputFold.restore(checkpoint.fold) if checkpoint.fold else AssistantOutputFold()
        reader = RowReader()
        for row in checkpoint.tail:
            for event in reader.read(row):
                fold.push(event)
    except (CheckpointInvalid, ValueError):
        return ""
    return text_of(fold.collect() or [])
