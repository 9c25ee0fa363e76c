"""The children of a child: the one ledger of what it may delegate, and their end with it."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError, ChildWorkflowError, TemporalError

with workflow.unsafe.imports_passed_through():
    from lastword.core import names
    from lastword.core.children import ChildEntry, ChildrenState, DelegateCall, Delegated
    from lastword.core.contract import (
        ChildSetup,
        DelegationPolicy,
        DelegationRequest,
        DelegationResult,
        Limits,
        StartRequest,
        TurnSpec,
        Usage,
    )
    from lastword.core.conversation import ConversationRequest, ConversationResult, Message
    from lastword.core.notices import Notice, settlement
    from lastword.workflows.waiting import until

_MAILBOX_BYTES = 128 * 1024
"""Of what children told and their parent was not told yet. The oldest reports go first; their logs have them all."""

_RESERVED = 0.1
"""Of tokens and cost: what a parent keeps of its limit, to make something of what its children gave."""


_MAX_KEPT = 500
"""Continuable children that are open at once: their parent carries them from run to run."""


class Children:
    """Starts children within the limits of the turn that asks, and ends them with it.

    Every limit only narrows: what a child is given is taken from what its parent has left. What they tell is kept in
    the mailbox until their parent is told.
    """

    def __init__(
        self,
        id: str,
        policy: DelegationPolicy | None,
        *,
        carried: ChildrenState | None = None,
        outlive_turns: bool = False,
    ) -> None:
        state = carried or ChildrenState()
        self.mailbox = state.mailbox
        self._id = id
        self._policy = policy or DelegationPolicy()
        self._may_delegate = policy is not None
        self._started = state.started
        self._known = {entry.id: entry for entry in state.known}
        self._outlive_turns = outlive_turns
        """Their parent goes on after the turn that started them, maybe in another run of its workflow. With the policy
        `wait` they are waited for after the turn, not in it."""
        self._watching: dict[str, asyncio.Task[None]] = {}
        self._handles: dict[str, Any] = {}
        self._running = {entry.id for entry in state.known if entry.state == "running"}
        self._foreground: set[str] = set()
        self._answered: dict[str, Notice] = {}
        """What foreground children settled with. Their parent gets it as the result of its call."""
        self._granted: dict[str, Limits] = {}
        self._spent = Usage()
        """By children of the turn that have settled."""
        self._over = True

    def begin(self, spec: TurnSpec) -> None:
        """A turn begins: its limits are what its children share."""
        self._spec = spec
        self._began = workflow.time()
        self._calls: dict[str, Delegated] = {}
        self._of_turn = 0
        self._granted.clear()
        self._spent = Usage()
        self._foreground.clear()
        self._answered.clear()
        self._over = False

    @property
    def entries(self) -> list[ChildEntry]:
        """All that are known, in the order in which they were started."""
        return list(self._known.values())

    @property
    def live(self) -> bool:
        """Some of them are at work."""
        return bool(self._running)

    @property
    def bound(self) -> bool:
        """Some of them are at work that are not to outlive their parent."""
        return self.live and not self._detached

    @property
    def awaited(self) -> bool:
        """Their parent waits for some of them before it goes on."""
        return bool(self._foreground & self._running)

    def carry(self) -> ChildrenState:
        """What another run of the workflow needs to know. Of those at work it only hears what they tell."""
        known = [entry for entry in self._known.values() if entry.state != "settled"]
        return ChildrenState(started=self._started, known=known, mailbox=self.mailbox)

    async def start(self, call: DelegateCall) -> Delegated:
        """Start a child for the call, or ask an earlier one; the same call again is the same child and message.

        Raises ApplicationError of type LimitReached, naming the limit; then nothing was started.
        """
        if (known := self._calls.get(call.id)) is not None:
            if call.background:
                self._to_background(known.id)
            return known
        entry = self._to_be_asked(call.child) if call.child is not None else None
        limits = self._grant(call, entry)
        try:
            request = self._request(call, limits) if entry is None else None
        except ValueError as error:
            raise _refused(str(error)) from None
        if entry is None:
            self._started += 1
            self._of_turn += 1
            entry = ChildEntry(id=f"{self._id}/{self._started}", label=call.label, continuable=call.continuable)
            self._known[entry.id] = entry
        else:
            entry.messages += 1
        entry.state = "running"
        self._running.add(entry.id)
        self._granted[entry.id] = limits
        if not call.background:
            self._foreground.add(entry.id)
        message_id = f"m-{entry.messages}" if entry.continuable else None
        delegated = self._calls[call.id] = Delegated(id=entry.id, message_id=message_id)
        try:
            await (self._ask(entry, call, limits) if request is None else self._run(entry, request))
        except TemporalError as error:
            self._settled(entry, self._failure(entry, f"It could not be reached ({type(error).__name__})."))
            entry.state = "settled"
        return delegated

    def take(self, notice: Notice) -> None:
        """A child has told something. What is told again, or by one that is no child, is not heard."""
        entry = self._known.get(notice.child_id)
        if entry is None or notice.seq <= entry.heard:
            return
        entry.heard = notice.seq
        if notice.kind == "report":
            self._put(notice)
        elif entry.continuable or self._detached:
            self._settled(entry, notice)

    def collect(self, child_id: str | None) -> list[Notice]:
        """What this child, or all of them, have told since it was last asked."""
        told = [notice for notice in self.mailbox if child_id in (None, notice.child_id)]
        self.mailbox = [notice for notice in self.mailbox if notice not in told]
        return told

    def cancel(self) -> None:
        """Cancel those that run, unless they are to outlive their parent. They settle to their partials."""
        self._over = True
        if not self._detached:
            for entry in self._known.values():
                if entry.id in self._running:
                    self._cancel(entry)

    async def end(self) -> None:
        """The turn is over: cancel them, leave them, or wait for them, as its policy says."""
        self._over = True
        if self._detached or (self._policy.on_end == "wait" and self._outlive_turns):
            return
        if self._policy.on_end == "cancel":
            self.cancel()
        await until(lambda: not self._running, self.cancel)

    async def close(self) -> None:
        """Their parent closes: end those that are left, the idle ones too, unless they are to outlive it."""
        if self._detached:
            return
        self._over = True
        for entry in self.entries:
            if entry.state != "settled":
                self._cancel(entry)
        await until(lambda: not self._running and not self._watching)

    def _cancel(self, entry: ChildEntry) -> None:
        if (handle := self._handles.get(entry.id)) is not None:
            handle.cancel()
        elif entry.id not in self._watching:
            self._watching[entry.id] = asyncio.create_task(self._cancel_from_outside(entry))

    async def _cancel_from_outside(self, entry: ChildEntry) -> None:
        """One that an earlier run of this workflow started."""
        try:
            await workflow.get_external_workflow_handle(entry.id).cancel()
        except TemporalError:
            self._settled(entry, self._failure(entry, "It was ended from outside."))
            entry.state = "settled"
        self._watching.pop(entry.id, None)

    @property
    def _detached(self) -> bool:
        return self._policy.on_end == "detach"

    def _close_policy(self, entry: ChildEntry) -> workflow.ParentClosePolicy:
        # The server applies it when a parent continues as new, too, and an idle child is to outlive that.
        if self._detached or (entry.continuable and self._outlive_turns):
            return workflow.ParentClosePolicy.ABANDON
        return workflow.ParentClosePolicy.REQUEST_CANCEL

    def _to_be_asked(self, child_id: str) -> ChildEntry:
        entry = self._known.get(child_id)
        if entry is None:
            raise _refused(f"{child_id!r} is not a child of this one")
        if not entry.continuable or entry.state == "settled":
            raise _refused(f"{child_id!r} has ended, or was not started as continuable")
        if entry.state == "running":
            raise _refused(f"{child_id!r} is still at work; get its answer first, or interrupt it")
        return entry

    async def _run(self, entry: ChildEntry, request: StartRequest) -> None:
        handle = await workflow.start_child_workflow(
            names.CONVERSATION_WORKFLOW if entry.continuable else names.DELEGATION_WORKFLOW,
            request,
            id=entry.id,
            result_type=ConversationResult if entry.continuable else DelegationResult,
            parent_close_policy=self._close_policy(entry),
            cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
            memo=names.start_memo(request.fingerprint(), request.backend, request.label, request.model),
            static_summary=request.summary,
        )
        self._handles[entry.id] = handle
        if entry.id not in self._running:
            # Cancelled while it was being started.
            handle.cancel()
        self._watching[entry.id] = asyncio.create_task(self._watch(entry, handle))

    async def _ask(self, entry: ChildEntry, call: DelegateCall, limits: Limits) -> None:
        message = Message(id=f"m-{entry.messages}", prompt=call.prompt, limits=limits)
        await workflow.get_external_workflow_handle(entry.id).signal(names.DELIVER_SIGNAL, message)

    async def _watch(self, entry: ChildEntry, handle: Any) -> None:
        """Wait for the end of a child, and take what it has spent from what is left."""
        try:
            done: DelegationResult | ConversationResult = await handle
        except (TemporalError, asyncio.CancelledError) as error:
            self._settled(entry, self._failure(entry, _why(error)))
        else:
            if isinstance(done, DelegationResult):
                self._settled(entry, settlement(entry.id, entry.heard + 1, done.result, turn=1))
            elif entry.id in self._running:
                self._settled(entry, self._failure(entry, "It was closed."))
        entry.state = "settled"
        self._handles.pop(entry.id, None)
        self._watching.pop(entry.id, None)

    def _settled(self, entry: ChildEntry, notice: Notice) -> None:
        if entry.id not in self._running:
            return
        self._running.discard(entry.id)
        entry.heard = max(entry.heard, notice.seq)
        entry.state, entry.stop_reason = "idle" if entry.continuable else "settled", notice.stop_reason
        if self._granted.pop(entry.id, None) is not None and notice.usage is not None:
            self._spent = self._spent + notice.usage
        if entry.id in self._foreground:
            self._answered[entry.id] = notice
        else:
            self._put(notice)

    def _to_background(self, id: str) -> None:
        """Their parent waits no longer: what it settles with is for the mailbox."""
        self._foreground.discard(id)
        if (notice := self._answered.pop(id, None)) is not None:
            self._put(notice)

    def _put(self, notice: Notice) -> None:
        self.mailbox.append(notice)
        while sum(len(one.model_dump_json()) for one in self.mailbox) > _MAILBOX_BYTES:
            oldest = next((one for one in self.mailbox if one.kind == "report"), self.mailbox[0])
            self.mailbox.remove(oldest)

    def _failure(self, entry: ChildEntry, error: str) -> Notice:
        return Notice(child_id=entry.id, seq=entry.heard + 1, kind="settlement", turn=entry.messages, error=error)

    def _grant(self, call: DelegateCall, asked: ChildEntry | None) -> Limits:
        """The limits of one more child's turn. Raises ApplicationError if a limit is reached."""
        if self._over:
            raise _refused("this child's turn is over")
        spec = self._spec
        if not self._may_delegate:
            raise _refused("this child may not delegate")
        if spec.depth + 1 > spec.max_depth:
            raise _refused(f"a child would be at depth {spec.depth + 1}, at most {spec.max_depth} is allowed")
        if len(self._running) >= self._policy.max_live:
            raise _refused(f"{len(self._running)} children run already, at most {self._policy.max_live} may at once")
        if asked is None and self._of_turn >= self._policy.max_children:
            raise _refused(f"{self._of_turn} children were started, at most {self._policy.max_children} may be")
        kept = sum(entry.continuable and entry.state != "settled" for entry in self._known.values())
        if asked is None and call.continuable and kept >= _MAX_KEPT:
            raise _refused(f"{kept} continuable children are open, at most {_MAX_KEPT} may be; cancel some")
        own, spent = spec.task.limits, self._spent + (call.spent or Usage())
        left: dict[str, Any] = own.model_dump()
        if own.tokens is not None:
            granted = sum(g.tokens or 0 for g in self._granted.values())
            left["tokens"] = own.tokens - int(own.tokens * _RESERVED) - spent.tokens - granted
            if left["tokens"] <= 0:
                raise _refused(f"of {own.tokens} tokens none is left for a child")
        if own.cost_usd is not None:
            dollars = sum(g.cost_usd or 0.0 for g in self._granted.values())
            left["cost_usd"] = own.cost_usd * (1 - _RESERVED) - (spent.cost_usd or 0.0) - dollars
            if left["cost_usd"] <= 0:
                raise _refused(f"of {own.cost_usd:g} US dollars none is left for a child")
        if own.wall_clock is not None:
            left["wall_clock"] = own.wall_clock - (workflow.time() - self._began)
            if left["wall_clock"] <= 0:
                raise _refused(f"of {own.wall_clock:g} s none is left for a child")
        return Limits.model_validate(left)

    def _request(self, call: DelegateCall, limits: Limits) -> StartRequest:
        """A child like its parent, with what it is asked. A backend's own options are not handed down.

        Raises ValueError for one that cannot travel.
        """
        spec = self._spec
        fields: dict[str, Any] = {
            **{name: getattr(spec.task, name) for name in ChildSetup.model_fields if name != "options"},
            "label": call.label,
            "limits": limits,
            "output_schema": None,
            "parent_id": spec.id,
            "depth": spec.depth + 1,
            "max_depth": spec.max_depth,
            "seed": call.seed,
        }
        request: StartRequest = (
            ConversationRequest.model_validate({**fields, "first": Message(id="m-1", prompt=call.prompt)})
            if call.continuable
            else DelegationRequest.model_validate({**fields, "prompt": call.prompt})
        )
        request.check_size()
        return request


def _why(error: BaseException) -> str:
    cause = error.cause if isinstance(error, ChildWorkflowError) else None
    return cause.message if isinstance(cause, ApplicationError) else "It was ended from outside."


def _refused(why: str) -> ApplicationError:
    return ApplicationError(f"Not delegated: {why}.", type=names.ERROR_LIMIT, non_retryable=True)
