"""What reaches stdout and stderr, from watched items made here."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import cast

import pytest

from lastword.cli.inspecting import print_table
from lastword.cli.reading_log import _merged, log_json, log_line, whole_log
from lastword.cli.rendering import LiveText, note, note_ending, print_json, result_json
from lastword.client import DelegationClient, DelegationInfo
from lastword.core import events
from lastword.core.checkpoint import Checkpoint
from lastword.core.contract import DelegationResult, LogRef, OutputRef, Timing, TurnResult
from lastword.core.events import Block, SessionEvent, text_block
from lastword.core.output import final_assistant_output
from lastword.core.packing import RowPacker
from lastword.core.ports import Gap
from lastword.core.tool_result import render
from lastword.watching import EventSeen, EventsMissed, Progress

LOG = LogRef(session_id="s", run_id="r")


def result_of(output: Sequence[Block], stop_reason: str = "completed", **fields: object) -> DelegationResult:
    turn = TurnResult.model_validate(
        {"output": list(output), "stop_reason": stop_reason, "timing": Timing(started=0, ended=1), "log": LOG, **fields}
    )
    return DelegationResult(id="the-id", result=turn, tool_result=render(turn, id="the-id"))


def delta(text: str, step: int = 1) -> SessionEvent:
    return events.text_delta(text, turn=1, step=step)


def message(text: str, step: int = 1) -> SessionEvent:
    return events.assistant_message([text_block(text)] if text else [], turn=1, step=step)


def show(capsys: pytest.CaptureFixture[str], *said: SessionEvent, output: list[Block] | None = None) -> tuple[str, str]:
    """stdout and stderr of a child that said this and gave the output of the rule, or another one."""
    live = LiveText()
    for event in said:
        live.take(EventSeen(event))
    live.finish(result_of(final_assistant_output(said) or [] if output is None else output))
    captured = capsys.readouterr()
    return captured.out, captured.err


Case = tuple[list[SessionEvent], str]
CASES: dict[str, Case] = {
    "streamed and committed": ([delta("a"), delta("b"), message("ab")], "ab\n"),
    "committed without streaming": ([message("whole")], "whole\n"),
    "two steps": ([delta("one"), message("one"), delta("two", 2), message("two", 2)], "one\ntwo\n"),
    "streamed, never committed": ([delta("half")], "half\n"),
    "the message goes on where the stream stopped": ([delta("abc"), message("abc and more")], "abc and more\n"),
    "an attempt that failed": (
        [delta("Hel"), events.assistant_attempt(turn=1, step=1), delta("Hello"), message("Hello")],
        "Hel\nHello\n",
    ),
    "the same step number again": (
        [events.step_start(turn=1, step=1), delta("a"), events.step_start(turn=1, step=1), delta("ab"), message("ab")],
        "a\nab\n",
    ),
    "text that ends its line": ([delta("line\n"), message("line\n")], "line\n"),
    "reasoning": ([events.reasoning_delta("hm", turn=1, step=1), message("so")], "so\n"),
    "nothing": ([message("")], ""),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_childs_words_are_shown_once_and_nothing_else_is(capsys: pytest.CaptureFixture[str], case: Case) -> None:
    said, shown = case
    assert show(capsys, *said) == (shown, "")


def test_text_around_a_tool_call_is_one_output_and_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    call = events.tool_call("1", "search", {}, turn=1, step=1)
    assert show(capsys, delta("x"), call, delta("y", 2)) == ("x\ny\n", "tool: search\n")


def test_an_earlier_message_as_output_is_told_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = show(capsys, message("A"), delta("B", 2))
    assert out == "A\nB\n"
    assert "lastword result the-id" in err


def test_an_output_that_was_never_shown_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = show(capsys, delta("abc"), message("xyz"))
    assert (out, err) == ("abc\nxyz\n", "the output:\n")


def test_words_that_were_missed_are_made_up_for_by_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    live = LiveText()
    live.take(EventSeen(delta("b")))
    live.take(EventsMissed(Gap(0, 1, "missing")))
    live.finish(result_of([text_block("ab")]))
    captured = capsys.readouterr()
    assert captured.out == "b\nab\n"
    assert "could not be read" in captured.err


def test_malformed_events_are_no_words(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = [
        SessionEvent(type=events.ASSISTANT_MESSAGE, data={"message": "text"}),
        SessionEvent(type=events.ASSISTANT_MESSAGE, data={"message": {"content": ["text"]}}),
        SessionEvent(type=events.ASSISTANT_CHUNK, data={"chunk": None}),
        SessionEvent(type=events.ASSISTANT_CHUNK, data={"chunk": {"type": "text-delta", "text": 7}}),
    ]
    assert show(capsys, *wrong, delta("t")) == ("t\n", "")


def test_quiet_shows_nothing_of_the_child(capsys: pytest.CaptureFixture[str]) -> None:
    live = LiveText(quiet=True)
    for event in (delta("a"), events.tool_call("1", "n", {}, turn=1, step=1), message("b", 2)):
        live.take(EventSeen(event))
    live.finish(result_of([text_block("other")]))
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


@pytest.mark.parametrize(
    ("done", "said"),
    [
        (result_of([text_block("x")]), ""),
        (result_of([text_block("x")], "max-tokens"), "(max-tokens)"),
        (result_of([text_block("x")], "error", diagnostic="backend=b stage=turn"), "backend=b stage=turn"),
        (result_of([text_block("x")], "new-reason"), "unknown to this version (new-reason)"),
        (result_of([]), "the child said nothing"),
        (result_of([{"type": "tool-call", "id": "1"}]), "no text, but tool-call"),
        (result_of([text_block("x")], output_ref=OutputRef(log=LOG, turn=1, bytes=9)), "result the-id --full"),
        (result_of([text_block("x")], disposal_error=True), "could not be proved gone"),
    ],
)
def test_how_it_ended_is_told_on_stderr(capsys: pytest.CaptureFixture[str], done: DelegationResult, said: str) -> None:
    note_ending(done)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert bool(said) == bool(captured.err)


def test_the_one_object_of_json_leaves_out_what_is_absent(capsys: pytest.CaptureFixture[str]) -> None:
    print_json(result_json(result_of([text_block("half")], "timeout", diagnostic="d")))
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {"id", "is_error", "content", "result"}
    assert (told["is_error"], told["result"]["diagnostic"], told["result"]["attempts"]) == (True, "d", 1)
    assert not {"usage", "structured", "output_ref"} & set(told["result"])


def test_status_lines_show_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    note("[bold]x[/nope] :smile: " + "y" * 200)
    assert capsys.readouterr().err == "[bold]x[/nope] :smile: " + "y" * 200 + "\n"


def test_a_row_of_the_list_is_a_line_whatever_its_label_looks_like(capsys: pytest.CaptureFixture[str]) -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    label = "[red]a[/nope] " + "long " * 30
    print_table(
        [DelegationInfo("lw-" + "i" * 60, "delegation", "closed", at, at, label, "scripted", None, "max-tokens")]
    )
    header, row = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["id", "state", "stop"]
    for part in ("lw-" + "i" * 60, "closed", "max-tokens", "scripted", label.strip(), "0.0 s"):
        assert part in row


async def _each(items: Sequence[SessionEvent | Gap]) -> AsyncIterator[SessionEvent | Gap]:
    for item in items:
        yield item


def _numbered(*said: SessionEvent) -> list[SessionEvent]:
    return [event.model_copy(update={"seq": n, "time": 0}) for n, event in enumerate(said)]


async def test_the_log_for_people_merges_deltas_and_names_gaps() -> None:
    items: list[SessionEvent | Gap] = [*_numbered(delta("a"), delta("b"), delta("c", 2), message("c", 2))]
    items.insert(2, Gap(5, 8, "damaged", "segment"))
    lines = [log_line(item) async for item in _merged(_each(items))]
    assert [line.split()[0] for line in lines] == ["0", "5", "2", "3"]
    assert lines[0].endswith('text-delta        "ab"')
    assert lines[1].endswith("--- damaged: events 5 to 7 segment")


class _WritingClient:
    """A client of a delegation that runs: its log is being written while it is read."""

    async def describe(self, id: str) -> Progress:
        packer = RowPacker()
        for event in _numbered(delta("a"), delta("b"), delta("c"), delta("d"))[2:]:
            packer.append(event)
        return Progress(id, "r", "running", Checkpoint(attempt=1, sealed_seq=2, tail=packer.rows))

    async def log(self, id: str) -> AsyncIterator[SessionEvent | Gap]:
        for event in _numbered(delta("a"), delta("b")):
            yield event
        # Listed before the segment in front of it.
        yield Gap(2, 4, "missing")
        yield delta("e").model_copy(update={"seq": 4})


async def test_what_is_sealed_while_the_log_is_read_is_no_gap() -> None:
    client = cast(DelegationClient, _WritingClient())
    items = [item async for item in whole_log(client, "id")]
    assert [item.seq for item in items if isinstance(item, SessionEvent)] == [0, 1, 2, 3]
    assert not any(isinstance(item, Gap) for item in items)


def test_a_long_line_of_the_log_says_that_it_is_cut() -> None:
    (event,) = _numbered(message("x" * 5000))
    assert log_line(event).endswith("[cut; all of it with --json]")
    assert json.loads(log_json(event))["data"]["message"]["content"][0]["text"] == "x" * 5000
    assert json.loads(log_json(Gap(1, None, "missing")))["gap"]["first_seq"] == 1
