"""The rest of the core: counting, deciding, rendering, bounding, refusing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lastword.backends.scripted import ScriptedBackend
from lastword.core import events, names
from lastword.core.admission import admit
from lastword.core.bounds import bound_blocks, cut_text, encoded_size
from lastword.core.checkpoint import Checkpoint, checkpoint_of
from lastword.core.contract import (
    ChildTask,
    DelegationRequest,
    Limits,
    LogRef,
    Timing,
    ToolFilter,
    TurnResult,
    TurnSpec,
    Usage,
)
from lastword.core.diagnostic import MAX_BYTES, Diagnostic, PermissionFact, bounded
from lastword.core.errors import CheckpointInvalid, RequestInvalid, RequestRejected
from lastword.core.events import text_block
from lastword.core.recovery import plan_recovery
from lastword.core.tally import Tally
from lastword.core.tool_result import PARTIAL_LABEL, headline, render

LOG = LogRef(session_id="d", run_id="r")


def result(stop_reason: str, text: str = "", diagnostic: str | None = None) -> TurnResult:
    return TurnResult(
        output=[text_block(text)] if text else [],
        stop_reason=stop_reason,
        diagnostic=diagnostic,
        timing=Timing(started=0, ended=1),
        log=LOG,
    )


def rendered(turn: TurnResult, **options: Any) -> str:
    return events.text_of(render(turn, id="d", **options).content)


# -- the tool result --


def test_a_completed_turn_is_its_output_and_nothing_else() -> None:
    tool = render(result("completed", "the answer"), id="d")
    assert (tool.is_error, tool.content) == (False, [text_block("the answer")])


def test_a_failed_turn_has_headline_diagnostic_and_labelled_partial_in_that_order() -> None:
    tool = render(result("error", "half", "backend=x stage=turn category=crash"), id="d")
    assert tool.is_error is True
    assert events.text_of(tool.content).splitlines() == [
        headline("error"), "backend=x stage=turn category=crash", PARTIAL_LABEL, "half",
    ]  # fmt: skip


def test_without_text_there_is_no_label_and_without_diagnostic_no_line() -> None:
    assert rendered(result("aborted")) == headline("aborted")


def test_an_unknown_reason_is_named_and_a_failure() -> None:
    tool = render(result("moonphase"), id="d")
    assert tool.is_error is True
    assert "moonphase" in events.text_of(tool.content)


def test_a_limit_keeps_head_and_tail_and_says_how_to_read_the_whole() -> None:
    text = rendered(result("completed", "head" + "x" * 5000 + "tail"), limit=400)
    assert text.startswith("head")
    assert text.endswith("tail")
    assert "bytes cut" in text
    assert "lastword result d --full" in text
    assert len(text) < 600


def test_absent_is_not_null_on_the_wire() -> None:
    assert "diagnostic" not in result("completed", "x").model_dump()
    assert "usage" not in result("completed", "x").model_dump()


# -- bounds --


@given(
    st.lists(
        st.text(max_size=3000).map(text_block) | st.text(max_size=3000).map(lambda t: {"type": "image", "data": t}),
        max_size=5,
    ),
    st.integers(2000, 6000),
)
def test_bounded_blocks_fit_and_whole_ones_are_untouched(blocks: list[Any], limit: int) -> None:
    bounded_blocks, whole = bound_blocks(blocks, limit)
    if encoded_size(blocks) <= limit:
        assert (bounded_blocks, whole) == (blocks, None)
    else:
        assert whole == encoded_size(blocks)
        assert encoded_size(bounded_blocks) <= limit + 300


def test_a_cut_text_keeps_whole_characters() -> None:
    cut = cut_text("é" * 1000, 101)
    assert cut.encode().decode() == cut
    assert cut.startswith("é")
    assert cut.endswith("é")


# -- diagnostic --


def test_a_diagnostic_shows_allow_listed_facts_only() -> None:
    facts = {"backend": "acp:x", "stage": "secret words", "category": "more secret words", "stderr": "sk-canary"}
    assert Diagnostic.model_validate(facts).render() == "backend=acp:x stage=unknown category=unknown"


def test_a_diagnostic_has_its_numbers_and_the_latest_permission() -> None:
    fact = PermissionFact(mode="rules", request_kind="execute", decision="reject", reason="rule")
    text = Diagnostic(backend="b", category="crash", exit_code=3, signal=9, permission=fact).render()
    assert text == "backend=b stage=turn category=crash exit_code=3 signal=9 permission=rules/execute/reject/rule"


@given(st.text(min_size=2000, max_size=6000))
def test_a_long_diagnostic_is_cut_at_a_character_with_a_mark(text: str) -> None:
    cut = bounded(text)
    assert len(cut.encode()) <= MAX_BYTES
    assert cut == text or cut.endswith("[cut]")


# -- tally --


def test_the_tally_counts_steps_tools_and_usage_and_leaves_the_unknown_unknown() -> None:
    tally = Tally()
    usage = {"input_tokens": 3, "output_tokens": 4}
    for event in (
        events.step_start(turn=1, step=1),
        events.assistant_message([], turn=1, step=1, usage=usage),
        events.tool_call("1", "t", {}, turn=1, step=1),
        events.assistant_attempt(turn=1, step=2, usage=usage),
        events.assistant_message([], turn=1, step=2, usage={"input_tokens": "many"}),
    ):
        tally.push(event)
    assert (tally.steps, tally.tool_calls) == (1, 1)
    assert tally.usage.model_dump() == {"input_tokens": 6, "output_tokens": 8}
    assert Usage().known is False


def test_a_limit_refuses_the_event_that_would_break_it() -> None:
    tally = Tally(steps=2, tool_calls=1, usage=Usage(input_tokens=5, output_tokens=5))
    step, tool = events.step_start(turn=1, step=3), events.tool_call("1", "t", {}, turn=1, step=2)
    assert tally.refusal(step, Limits(steps=3, tokens=11, tool_calls=1), "b") is None
    for limits, event, category in (
        (Limits(steps=2), step, "step-limit"),
        (Limits(tokens=10), step, "token-limit"),
        (Limits(tokens=10), tool, "token-limit"),
        (Limits(tool_calls=1), tool, "tool-call-limit"),
    ):
        refusal = tally.refusal(event, limits, "b")
        assert refusal is not None
        assert refusal.category == category


# -- recovery --


@pytest.mark.parametrize(
    ("policy", "facts", "plan"),
    [
        ("resume", {"resumable": True}, "resume"),
        ("resume", {"resumable": True, "tools_called": True}, "resume"),
        ("resume", {"resumable": False}, "restart"),
        ("resume", {"resumable": False, "tools_called": True}, "settle"),
        ("restart", {"resumable": True}, "restart"),
        ("restart", {"resumable": False, "tools_called": True}, "restart"),
        ("restart", {"resumable": True, "lost": False}, "resume"),
        ("settle", {"resumable": True}, "settle"),
        ("settle", {"resumable": True, "lost": False}, "resume"),
        ("settle", {"resumable": False, "tools_called": True, "lost": False}, "settle"),
        ("resume", {"resumable": True, "ended": True}, "finished"),
        ("settle", {"resumable": False, "ended": True}, "finished"),
    ],
)
def test_the_plan_for_a_turn_taken_over(policy: Any, facts: dict[str, bool], plan: str) -> None:
    all_facts = {"lost": True, "ended": False, "tools_called": False, **facts}
    assert plan_recovery(policy, **all_facts) == plan


# -- requests and ids --


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"prompt": "x" * 262_145}, "262145 bytes"),
        ({"prompt": "  "}, "empty"),
        ({"prompt": "x", "limits": {"wall": 1}}, "Extra inputs"),
        ({"prompt": "x", "limits": {"wall_clock": 1e300}}, "less than or equal to 31536000"),
        ({"prompt": "x", "limits": {"idle": float("inf")}}, "finite"),
        ({"prompt": "x", "mcp_servers": [{"name": "n"}]}, "either a command or a url"),
        ({"prompt": "x", "on_worker_loss": "pray"}, "'resume', 'restart' or 'settle'"),
    ],
)
def test_a_malformed_request_is_refused_with_the_fact(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        DelegationRequest.model_validate(fields)


def test_equal_requests_have_one_fingerprint_and_others_another() -> None:
    one, same = DelegationRequest(prompt="x"), DelegationRequest.model_validate({"prompt": "x"})
    assert one.fingerprint() == same.fingerprint()
    assert one.fingerprint() != DelegationRequest(prompt="x", max_tokens=3).fingerprint()


@pytest.mark.parametrize("id", ["", " x", "a/b", "a\nb", "é" * 101])
def test_an_id_that_cannot_be_is_refused(id: str) -> None:
    with pytest.raises(RequestInvalid):
        names.check_id(id)


def test_folders_tell_sessions_apart_that_a_file_system_may_not() -> None:
    folders = {names.folder_of(id, run) for id in ("A b", "a b", "a-b") for run in ("1", "2")}
    assert len(folders) == 6
    assert all(folder.isascii() and len(folder) <= 64 for folder in folders)


def spec(**task: Any) -> TurnSpec:
    depth = {name: task.pop(name) for name in ("depth", "max_depth") if name in task}
    child = ChildTask.model_validate({"prompt": "x", "backend": "scripted", **task})
    return TurnSpec(id="d", turn_run_id="r", log=LOG, task=child, **depth)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"backend": "nope"}, r"'nope'; it has: scripted"),
        ({"persona": "terse"}, r"does not support persona; backends that do: none"),
        ({"prompt": [{"type": "image", "data": ""}]}, r"prompt block image"),
        ({"depth": 4}, r"depth 4, at most 3"),
        ({"depth": 1, "max_depth": 0}, r"at most 0"),
    ],
)
def test_admission_refuses_with_the_capability_and_who_has_it(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestRejected, match=words):
        admit(spec(**fields), {"scripted": ScriptedBackend()})


def test_admission_gives_the_backend() -> None:
    backend = ScriptedBackend()
    assert admit(spec(limits={"tokens": 5}), {"scripted": backend}) is backend


def test_deny_wins_over_allow() -> None:
    assert [ToolFilter(allow=["a", "b"], deny=["b"]).permits(name) for name in "abc"] == [True, False, False]


# -- checkpoint --


def test_a_checkpoint_survives_the_way_through_heartbeat_details() -> None:
    checkpoint = Checkpoint(attempt=2, sealed_seq=7, tail=[{"event": {"type": "x"}}], started=5)
    assert checkpoint_of([json.loads(checkpoint.model_dump_json())]) == checkpoint
    assert checkpoint_of([]) is None


@pytest.mark.parametrize("details", [[{"version": 9}], ["text"], [{"version": 1}]])
def test_a_checkpoint_of_another_version_is_refused_not_guessed(details: list[Any]) -> None:
    with pytest.raises(CheckpointInvalid):
        checkpoint_of(details)
