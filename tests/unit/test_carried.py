"""What a conversation takes along when it continues as new fits, and gives up nothing that is not answered."""

from __future__ import annotations

import pytest

from lastword.core.carried import MAX_PAYLOAD, SHORT_OUTPUT, carried, size_of
from lastword.core.children import ChildrenState
from lastword.core.contract import MAX_REQUEST_BYTES, DelegationResult, LogRef, SeedMessage, Timing, TurnResult
from lastword.core.conversation import ConversationRequest, ConversationState, Kept, Message
from lastword.core.events import text_block, text_of
from lastword.core.notices import Notice
from lastword.core.tool_result import render

LOG = LogRef(session_id="s", run_id="r")


def settled(turn: int, text: str, structured: object = None) -> Kept:
    result = TurnResult(
        output=[text_block(text)],
        stop_reason="completed",
        structured=structured,
        timing=Timing(started=0, ended=1),
        log=LOG,
    )
    done = DelegationResult(id="s", result=result, tool_result=render(result, id="s"))
    return Kept(state="settled", turn=turn, result=done)


def notice(seq: int, kind: str, size: int) -> Notice:
    return Notice.model_validate({"child_id": "s/1", "seq": seq, "kind": kind, "turn": 1, "text": "n" * size})


def full() -> tuple[ConversationRequest, ConversationState]:
    """Everything as large as it may be."""
    request = ConversationRequest(seed=[SeedMessage(role="user", content="s" * 1_000_000)])
    state = ConversationState(
        log=LOG,
        inbox=[Message(id=f"q{n}", prompt="ü" * 125_000) for n in range(2)],
        seen={f"{n:05}" + "i" * 195: n for n in range(20_000)},
        kept={f"m{n}": settled(n, "o" * SHORT_OUTPUT, structured="x" * 20_000) for n in range(1, 64)},
        notices=[notice(n, "report", 8_000) for n in range(16)],
        children=ChildrenState(mailbox=[notice(n, "report", 8_000) for n in range(16)]),
    )
    state.kept["m64"] = settled(64, "last " * 50_000)
    return request, state


def test_what_is_within_the_limit_is_carried_as_it_is() -> None:
    state = ConversationState(log=LOG, kept={"m1": settled(1, "one"), "m2": settled(2, "two" * 50_000)}, seen={"m0": 1})
    before = state.model_copy(deep=True)
    following = carried(ConversationRequest(first=Message(id="m", prompt="x")), state)
    assert following.carried == before
    assert following.first is None


def test_the_fullest_state_fits_and_keeps_what_is_not_answered() -> None:
    request, state = full()
    following = carried(request, state)
    assert size_of(following) <= MAX_PAYLOAD
    kept = following.carried
    assert kept is not None
    assert [message.id for message in kept.inbox] == ["q0", "q1"]
    assert list(kept.kept) == ["m64"]
    assert kept.kept["m64"].result is not None
    assert text_of(kept.kept["m64"].result.result.output).startswith("last last")
    # The newest ids are known, those of results that were given up among them.
    assert kept.seen["m63"] == 63
    assert kept.notices[-1].seq == 15


def test_results_are_given_up_first_and_oldest_first() -> None:
    state = ConversationState(log=LOG, seen={"m0": 0}, notices=[notice(1, "report", 10), notice(2, "report", 10)])
    state.kept = {f"m{n}": settled(n, "o" * 100, structured="x" * 300_000) for n in range(1, 9)}
    kept = carried(ConversationRequest(), state).carried
    assert kept is not None
    assert list(kept.kept) == ["m3", "m4", "m5", "m6", "m7", "m8"]
    assert kept.seen == {"m0": 0, "m1": 1, "m2": 2}
    assert len(kept.notices) == 2


def test_a_request_that_cannot_travel_is_told_with_its_size() -> None:
    with pytest.raises(ValueError, match=f"has 1[0-9]{{6}} bytes, at most {MAX_REQUEST_BYTES}"):
        ConversationRequest(persona="p" * 1_100_000).check_size()
