"""A child that goes on: messages become turns, one at a time, under one id."""

from __future__ import annotations

from typing import Literal

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from lastword.core import names
    from lastword.core.bounds import cut_text
    from lastword.core.carried import carried, shorten
    from lastword.core.contract import DelegationResult, LogRef, TurnResult
    from lastword.core.conversation import (
        MAX_INBOX_BYTES,
        MAX_SEEN,
        Accepted,
        CloseRequest,
        Closing,
        ConversationRequest,
        ConversationResult,
        ConversationState,
        ConversationStatus,
        Interrupted,
        Kept,
        Message,
        MessageResult,
        TurnSummary,
        room_for_news,
    )
    from lastword.core.notices import Notice, told
    from lastword.core.tool_result import render
    from lastword.workflows.child_turn import ChildTurnRun
    from lastword.workflows.hosting import ChildHosting, no_turn
    from lastword.workflows.questions import PendingQuestions
    from lastword.workflows.waiting import until

_KEPT_RESULTS = 64
"""Results that can be asked for; of older ones what they ended with, for the session log has the rest. More than fifty
callers may wait for theirs."""

_KEPT_TURNS = 200

_TOLD_BYTES = 128 * 1024
"""Of what children told, in front of a prompt. A long one has head and tail."""

_LEAST_TOLD = 8 * 1024
_TOLD_BY_CHILDREN = "(Go on, knowing this.)"
"""What a turn is asked that begins because children have settled."""


@workflow.defn(name=names.CONVERSATION_WORKFLOW)
class ConversationWorkflow(ChildHosting):
    """Runs one child for as many messages as come; its id is the child's.

    The inbox is its only queue. A turn is run as a delegation's is, and settles with the same result. It completes when
    it is closed; a cancel of the workflow closes it with `cancel`.
    """

    @workflow.init
    def __init__(self, request: ConversationRequest) -> None:
        info = workflow.info()
        self._id = info.workflow_id
        self._request = request
        self._state = state = request.carried or ConversationState(
            log=LogRef(session_id=info.workflow_id, run_id=info.run_id),
            inbox=[request.first] if request.first is not None else [],
        )
        super().__init__(
            request.delegation,
            children=state.children,
            notices=state.notices,
            notices_seq=state.notices_seq,
            outlive_turns=True,
        )
        self._running: ChildTurnRun | None = None
        self._message: Message | None = None
        self._dropped: list[str] = []
        self._over = False

    @workflow.run
    async def run(self, request: ConversationRequest) -> ConversationResult:
        while not self._over:
            await until(lambda: self._can_go_on, self._cancel)
            if (message := self._next()) is not None:
                await self._take(message)
            self._over = self._has_ended
            if not self._over and self._wants_another_run and not self._children.bound:
                # A handler that has begun counts as unfinished until it has run: nothing accepted can be behind this.
                await until(workflow.all_handlers_finished, self._cancel)
                await self._outbox.delivered(self._cancel)
                workflow.continue_as_new(carried(request, self._carried()))
        await until(workflow.all_handlers_finished)
        await self._children.close()
        await self._outbox.delivered()
        last = self._last
        result = self._state.kept[last.message_id].result if last and last.message_id in self._state.kept else None
        return ConversationResult(id=self._id, turns=self._state.turn, dropped=self._dropped, last=last, result=result)

    def _cancel(self) -> None:
        """The workflow was cancelled: that closes the conversation."""
        self._close("cancel")

    def _carried(self) -> ConversationState:
        state = self._state
        state.children = self._children.carry()
        state.notices, state.notices_seq = self._outbox.kept, self._outbox.seq
        return state

    @property
    def _wants_another_run(self) -> bool:
        return workflow.info().is_continue_as_new_suggested()

    @property
    def _can_go_on(self) -> bool:
        return self._may_take or self._has_ended or (self._wants_another_run and not self._children.bound)

    @property
    def _may_take(self) -> bool:
        """There is something to be told to the child, and nothing that it has to wait for."""
        if self._state.parked or (self._wants_another_run and self._children.bound):
            return False
        return bool(self._state.inbox) or self._has_news

    @property
    def _has_news(self) -> bool:
        """Children that were to be waited for have settled after their turn: that is a turn of its own."""
        policy = self._request.delegation
        waits = policy is not None and policy.on_end == "wait"
        closing = self._state.closing in ("cancel", "abandon")
        return waits and not closing and any(notice.kind == "settlement" for notice in self._children.mailbox)

    @property
    def _has_ended(self) -> bool:
        state = self._state
        if state.closing is None or state.inbox:
            return False
        return state.closing != "finish" or not (self._children.bound or self._has_news)

    def _next(self) -> Message | None:
        if not self._may_take:
            return None
        if self._state.inbox:
            return self._state.inbox.pop(0)
        return Message(id=f"from-children-{self._state.turn + 1}", prompt=_TOLD_BY_CHILDREN)

    def _news(self, message: Message) -> tuple[list[Notice], str]:
        """What children told since the last turn, if there is room for it in front of the message; else it waits."""
        room = min(room_for_news(message.prompt), _TOLD_BYTES)
        news = self._children.collect(None) if room > _LEAST_TOLD else []
        return news, cut_text(told(news), room)

    @property
    def _last(self) -> TurnSummary | None:
        return self._state.turns[-1] if self._state.turns else None

    async def _take(self, message: Message) -> None:
        """Run the message's turn and keep what came of it."""
        news, in_front = self._news(message)
        spec = self._request.spec(message, self._state, id=self._id, told=in_front)
        self._questions = PendingQuestions()
        self._message = message
        self._running = ChildTurnRun(spec, summary=f"{self._request.summary} · {spec.turn}", children=self._children)
        self._state.turn = spec.turn
        try:
            result = await self._running.run()
        except ApplicationError as error:
            # No child could be started for it; the conversation is none the worse.
            self._state.turn -= 1
            self._keep(message, Kept(state="rejected", error=error.message))
            self._outbox.fail(error.message, turn=spec.turn, message_id=message.id)
            # What children told is not lost. If that was all there was to say, it waits for the next send.
            self._children.mailbox[:0] = news
            self._state.parked = self._state.parked or self._has_news
        else:
            self._settle(message, result)
        finally:
            self._questions.close()
            if self._running.was_cancelled_from_outside:
                self._cancel()
            self._message, self._running = None, None

    def _settle(self, message: Message, result: TurnResult) -> None:
        state = self._state
        rendered = render(result, id=self._id, limit=message.result_limit)
        for kept in state.kept.values():
            shorten(kept)
        done = DelegationResult(id=self._id, result=result, tool_result=rendered)
        self._keep(message, Kept(state="settled", turn=state.turn, result=done))
        self._outbox.settle(result, turn=state.turn, message_id=message.id)
        state.next_seq = result.next_seq
        state.session = result.session or state.session
        tokens = result.usage.tokens if result.usage else None
        state.tokens += tokens or 0
        state.turns = [
            *state.turns[-_KEPT_TURNS + 1 :],
            TurnSummary(
                turn=state.turn,
                message_id=message.id,
                stop_reason=result.stop_reason,
                attempts=result.attempts,
                started=result.timing.started,
                ended=result.timing.ended,
                tokens=tokens,
            ),
        ]

    def _keep(self, message: Message, kept: Kept) -> None:
        """What came of a message; of older ones only that there were some."""
        state = self._state
        state.kept[message.id] = kept
        while len(state.kept) > _KEPT_RESULTS:
            oldest = next(iter(state.kept))
            state.seen[oldest] = state.kept.pop(oldest).turn
        while len(state.seen) > MAX_SEEN:
            del state.seen[next(iter(state.seen))]

    def _is_known(self, message_id: str) -> bool:
        """It became a turn, is one, or never will be."""
        return message_id in self._state.kept or message_id in self._state.seen or self._is_running(message_id)

    def _close(self, mode: str) -> Closing:
        state = self._state
        state.closing = CloseRequest.model_validate({"mode": mode}).mode
        state.parked = False
        dropped: list[str] = []
        if state.closing != "finish":
            dropped = [message.id for message in state.inbox]
            for message in state.inbox:
                self._drop(message)
            state.inbox.clear()
            self._dropped += dropped
        if state.closing == "cancel":
            self._children.cancel()
            if self._running is not None:
                self._running.cancel()
        return Closing(mode=state.closing, dropped=dropped)

    def _drop(self, message: Message, why: str = "It was closed before it could answer.") -> None:
        self._keep(message, Kept(state="dropped"))
        self._outbox.fail(why, turn=self._state.turn, message_id=message.id)

    @property
    def _asked(self) -> tuple[int, str | None]:
        if self._message is None:
            raise no_turn()
        return self._state.turn, self._message.id

    # -- what others ask of it ---------------------------------------------------------------------------------------

    @workflow.update(name=names.SEND_UPDATE)
    def send(self, message: Message) -> Accepted:
        """Take a message in. Returns when it is accepted, not when it is answered."""
        return self._accept(message)

    def _accept(self, message: Message) -> Accepted:
        state = self._state
        queued = [waiting.id for waiting in state.inbox]
        if message.id not in queued and not self._is_known(message.id):
            state.inbox.append(message)
            queued.append(message.id)
        state.parked = False
        ahead = queued.index(message.id) if message.id in queued else 0
        return Accepted(message_id=message.id, ahead=ahead + (1 if self._running and message.id in queued else 0))

    @send.validator
    def _check_send(self, message: Message) -> None:
        waiting = self._state.inbox
        if self._is_known(message.id) or any(one.id == message.id for one in waiting):
            return
        if self._state.closing is not None or self._over:
            raise ApplicationError(f"The conversation {self._id!r} is closing.", type=names.ERROR_CLOSED)
        if (size := sum(one.bytes for one in waiting) + message.bytes) > MAX_INBOX_BYTES:
            raise ApplicationError(
                f"{len(waiting)} messages wait already, with this one {size} bytes; at most {MAX_INBOX_BYTES} may."
                " Send it when some are answered.",
                type=names.ERROR_INBOX_FULL,
            )

    @workflow.update(name=names.INTERRUPT_UPDATE)
    async def interrupt(self) -> Interrupted:
        """End the running turn as `aborted` with its partial. What is queued waits for the next send."""
        running, message = self._running, self._message
        if running is None or message is None:
            return Interrupted(message_id=None, parked=len(self._state.inbox) if self._state.parked else 0)
        self._state.parked = self._state.closing is None
        running.cancel()
        await workflow.wait_condition(lambda: not self._is_running(message.id))
        return Interrupted(message_id=message.id, parked=len(self._state.inbox))

    @workflow.update(name=names.CLOSE_UPDATE)
    def close(self, request: CloseRequest) -> Closing:
        """Take no more messages, and end."""
        return self._close(request.mode)

    @workflow.signal(name=names.DELIVER_SIGNAL)
    def deliver(self, message: Message) -> None:
        """Take a message in, from a workflow. What cannot be taken is told as its settlement."""
        try:
            self._check_send(message)
        except ApplicationError as error:
            self._drop(message, error.message)
        else:
            self._accept(message)

    @workflow.query(name=names.STATUS_QUERY)
    def status(self) -> ConversationStatus:
        """What the child does now."""
        state = self._state
        return ConversationStatus(
            id=self._id,
            state=self._doing,
            turn=state.turn,
            message_id=self._message.id if self._message else None,
            queued=len(state.inbox),
            parked=state.parked,
            closing=state.closing,
            last=self._last,
            log=state.log,
            next_seq=state.next_seq,
        )

    @workflow.query(name=names.INBOX_QUERY)
    def inbox(self) -> list[Message]:
        """The messages that wait, first come first."""
        return self._state.inbox

    @workflow.query(name=names.RESULT_QUERY)
    def result(self, message_id: str) -> MessageResult:
        """Where a message is, and what came of it."""
        if self._is_running(message_id):
            return MessageResult(state="running")
        if any(message.id == message_id for message in self._state.inbox):
            return MessageResult(state="queued")
        kept = self._state.kept.get(message_id)
        if kept is None:
            turn = self._state.seen.get(message_id)
            return MessageResult(state="unknown" if turn is None else "settled" if turn else "dropped")
        return MessageResult(state=kept.state, result=kept.result, error=kept.error, shortened=kept.shortened)

    @workflow.query(name=names.TURNS_QUERY)
    def turns(self) -> list[TurnSummary]:
        """The latest turns, oldest first."""
        return self._state.turns

    @property
    def _doing(self) -> Literal["running", "waiting", "closed", "idle"]:
        if self._running is not None:
            return "waiting" if self._running.waits_for_children else "running"
        if self._over:
            return "closed"
        return "waiting" if self._children.bound else "idle"

    def _is_running(self, message_id: str) -> bool:
        return self._message is not None and self._message.id == message_id
