"""The edges of the core: what a backend, a session store and an observer must do.

Everything here is a protocol; the worker puts the real things in.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from lastword.core.contract import (
    Capabilities,
    ChildTask,
    LifecycleEdge,
    LogRef,
    SeedMessage,
    SessionRef,
    ToolResult,
    TurnSpec,
)
from lastword.core.events import JsonObject, SessionEvent
from lastword.core.host_tools import ToolSpec
from lastword.core.permissions import PermissionDecision, PermissionRequest


@dataclass(frozen=True)
class Resume:
    """What a backend gets to continue a turn that another attempt began.

    `session` is the backend's own session, if the child had one. `events` are the turn's logged events, oldest first,
    without deltas. A `tool/call` in them without its `tool/result` must not run again: its outcome is unknown.
    `next_step` is the first step number that no earlier attempt used.
    """

    session: SessionRef | None
    events: Sequence[SessionEvent]
    next_step: int


@dataclass(frozen=True)
class Earlier:
    """What a child of a conversation knows from before this turn.

    `session` is its own, as the turn before left it. `seed` was said before the first turn, elsewhere. `events` are the
    earlier turns' logged events, oldest first, without deltas; empty where the session is enough.
    """

    session: SessionRef | None = None
    seed: Sequence[SeedMessage] = ()
    events: Sequence[SessionEvent] = ()


class ChildHost(Protocol):
    """Answers what a child may ask while it runs."""

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """What the host does for the child's model; empty if the child may neither delegate nor report."""
        ...

    async def permission(self, request: PermissionRequest) -> PermissionDecision: ...

    async def call(
        self, tool: str, arguments: Mapping[str, Any], *, call_id: str, patience: float | None = None
    ) -> ToolResult:
        """Call one of its tools. What is wrong with a call, and what it fails with, is a result; it never raises.

        The same call id again, after a lost worker, is the same call: it starts nothing a second time. After `patience`
        seconds a call that waits for a child gives what there is, and says how to wait on; None waits as long as it
        takes.
        """
        ...


class ChildTurn(Protocol):
    """A child at work on one turn."""

    @property
    def session(self) -> SessionRef | None:
        """The backend's own session, once it is known, if the child can be resumed by it."""
        ...

    def events(self) -> AsyncIterator[SessionEvent]:
        """The turn's events, the last one `turn/end`.

        A failure of the child is an event, never an exception. A stream that stops without `turn/end` counts as a child
        that broke off. The consumer asks for the event after a `tool/call` only when that call is durable, so a tool
        runs after its event was taken; it may also stop asking, and then the tool must not run.
        """
        ...

    async def cancel(self) -> None:
        """Ask the child to stop. Returns at once; events may still come, `turn/end` among them."""
        ...


class Backend(Protocol):
    """A way to run a child."""

    name: str
    capabilities: Capabilities

    def missing(self, task: ChildTask | None = None) -> list[str]:
        """What this machine lacks to run the task (or any task), each as one sentence with the remedy."""
        ...

    def version(self) -> str | None:
        """Of the program that runs its children, if it is one of its own. May run it: not for an event loop."""
        ...

    def open(
        self, spec: TurnSpec, resume: Resume | None, host: ChildHost, earlier: Earlier | None = None
    ) -> AbstractAsyncContextManager[ChildTurn]:
        """Start the child, in a conversation with what it knows from earlier turns.

        Leaving the context disposes it and returns when its whole process tree is gone. Raises RequestRejected on entry
        if this backend cannot run the task, ResumeRefused if the session it is to go on with is gone.
        """
        ...


@dataclass(frozen=True)
class Gap:
    """A part of a session's log that cannot be read: events `first_seq` up to, not including, `end_seq`."""

    first_seq: int
    end_seq: int | None
    reason: Literal["missing", "damaged"]
    segment: str | None = None


class AttemptLog(Protocol):
    """The writing side of a session's log, for one attempt of one turn."""

    @property
    def next_seq(self) -> int:
        """The number that the next appended event gets."""
        ...

    @property
    def sealed_seq(self) -> int:
        """Every event before this one is durable."""
        ...

    @property
    def unsealed_bytes(self) -> int:
        """About how many bytes of JSON are appended and not yet durable."""
        ...

    def append(self, event: SessionEvent) -> SessionEvent:
        """The event with its `seq` and `time`, taken into the unsealed tail. No I/O."""
        ...

    def tail(self, max_bytes: int) -> list[JsonObject]:
        """Packed rows from `sealed_seq` on, as many as fit; a prefix of the tail, so always a consistent state."""
        ...

    async def seal(self) -> None:
        """Make durable what is appended now, as one write-once segment.

        The cut is made before the first await, so state read just before the call stands exactly at the cut. One call
        at a time. Raises Fenced if another attempt has closed this one, LogUnavailable if the store does not answer; a
        failed seal loses nothing from the tail and may be tried again.
        """
        ...


class SessionStore(Protocol):
    """Where session logs are kept."""

    def attempt(self, log: LogRef, *, turn: int, attempt: int, first_seq: int) -> AttemptLog:
        """A new attempt's log, beginning at `first_seq`. No I/O."""
        ...

    async def fence(self, log: LogRef, *, turn: int, attempt: int, first_seq: int, tail: Sequence[JsonObject]) -> int:
        """Close an attempt for ever and return the `seq` after its last event.

        What `tail` (packed rows of its last checkpoint) holds beyond its sealed events is made durable in the closing
        segment. An attempt that is still alive gets Fenced at its next seal. Closing twice is harmless. `first_seq` is
        where the attempt began, or where the turn did: the position if it wrote nothing.
        """
        ...

    def read(
        self, log: LogRef, *, turn: int | None = None, from_seq: int = 0, merge_deltas: bool = False
    ) -> AsyncIterator[SessionEvent | Gap]:
        """The sealed events in order, a Gap where segments are missing or damaged.

        `merge_deltas` gives each stored run of deltas as one event: far fewer events, the same output.
        Raises LogUnavailable if the store does not answer.
        """
        ...


class LifecycleObserver(Protocol):
    """Told about every published turn. An observer that raises harms neither the turn nor other observers."""

    async def on_edge(self, edge: LifecycleEdge) -> None: ...
