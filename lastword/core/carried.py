"""What a conversation takes along when it continues as new: one payload, which the server bounds at 2 MB."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel

from lastword.core.bounds import bound_blocks
from lastword.core.contract import DelegationResult, OutputRef
from lastword.core.conversation import ConversationRequest, ConversationState, Kept
from lastword.core.tool_result import render

MAX_PAYLOAD: Final = 1900 * 1024
"""Of the server's 2 MB, less what it adds."""

SHORT_OUTPUT: Final = 4 * 1024
"""Bytes of the output of a result that is kept short. The session log has it all."""


def carried(request: ConversationRequest, state: ConversationState) -> ConversationRequest:
    """The request of the next run, with as much of the state as there is room for.

    What is given up, until it fits: the results of older messages, oldest first (that there were some is known); most
    of the last result's output; the oldest notices; the ids of the oldest messages; the oldest reports that the child
    was not told yet. What was accepted and is not answered is never given up.
    """
    following = request.model_copy(update={"carried": state, "first": None})
    for give_up in (_oldest_result, _length_of_the_last, _oldest_notice, _oldest_ids, _oldest_report):
        over = size_of(following) - MAX_PAYLOAD
        while over > 0 and (freed := give_up(state)):
            over -= freed
    return following


def size_of(value: BaseModel) -> int:
    """Bytes as it travels."""
    return len(value.model_dump_json().encode(errors="replace"))


def shorten(kept: Kept) -> None:
    """Of a result only the head and tail, if it is longer."""
    if kept.result is None or kept.shortened:
        return
    turn = kept.result.result
    output, whole = bound_blocks(turn.output, SHORT_OUTPUT)
    if whole is None:
        return
    ref = turn.output_ref or OutputRef(log=turn.log, turn=kept.turn, bytes=whole)
    shorter = turn.model_copy(update={"output": output, "output_ref": ref})
    rendered = render(shorter, id=kept.result.id, limit=SHORT_OUTPUT)
    kept.result = DelegationResult(id=kept.result.id, result=shorter, tool_result=rendered)
    kept.shortened = True


def _oldest_result(state: ConversationState) -> int:
    if len(state.kept) < 2:
        return 0
    oldest = next(iter(state.kept))
    kept = state.kept.pop(oldest)
    state.seen[oldest] = kept.turn
    return size_of(kept)


def _oldest_ids(state: ConversationState) -> int:
    # Many at once: each is small, and the newest are what is sent again.
    oldest = list(state.seen)[: max(len(state.seen) // 10, 1)]
    for message_id in oldest:
        del state.seen[message_id]
    return sum(len(message_id.encode(errors="replace")) + 8 for message_id in oldest)


def _oldest_notice(state: ConversationState) -> int:
    return size_of(state.notices.pop(0)) if len(state.notices) > 1 else 0


def _length_of_the_last(state: ConversationState) -> int:
    before = sum(map(size_of, state.kept.values()))
    for kept in state.kept.values():
        shorten(kept)
    return before - sum(map(size_of, state.kept.values()))


def _oldest_report(state: ConversationState) -> int:
    mailbox = state.children.mailbox if state.children else []
    for place, notice in enumerate(mailbox):
        if notice.kind == "report":
            return size_of(mailbox.pop(place))
    return 0
