"""How what a child says reaches a terminal: its words to stdout, everything about it to stderr."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from rich.console import Console

from lastword.core import events
from lastword.core.tool_result import headline

if TYPE_CHECKING:
    from lastword.core.contract import DelegationResult
    from lastword.core.events import SessionEvent
    from lastword.watching import Watched

status = Console(stderr=True, highlight=False, soft_wrap=True)


def note(text: str) -> None:
    """One line of status."""
    status.print(text, style="dim", markup=False)


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))


def result_json(done: DelegationResult) -> dict[str, Any]:
    """The one object that `--json` prints."""
    return {
        "id": done.id,
        "is_error": done.tool_result.is_error,
        "content": done.tool_result.content,
        "result": done.result.model_dump(mode="json"),
    }


class LiveText:
    """Prints the child's words as they come, each once."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._step: tuple[Any, Any] | None = None
        self._streamed = False
        self._open_line = False
        self._last_text = ""
        self.missed = False

    def take(self, item: Watched) -> None:
        """Show one watched item, as far as it is the child's words."""
        from lastword.watching import EventSeen, EventsMissed

        if isinstance(item, EventSeen):
            self._take_event(item.event)
        elif isinstance(item, EventsMissed):
            self.missed = True

    def finish(self, done: DelegationResult) -> None:
        """End the text, and say what the output is if what was shown is not it."""
        output = events.text_of(done.result.output)
        if self.missed or (output and not self._last_text.endswith(output) and not done.result.output_ref):
            self._end_line()
            if not self._quiet:
                note("the output, by the rule:")
            self._write(output)
        self._end_line()

    def _take_event(self, event: SessionEvent) -> None:
        step = (event.data.get("turn"), event.data.get("step"))
        if event.type == events.ASSISTANT_CHUNK:
            chunk = event.data.get("chunk", {})
            if chunk.get("type") == "text-delta" and chunk.get("text"):
                self._begin(step)
                self._streamed = True
                self._write(chunk["text"])
        elif event.type == events.ASSISTANT_MESSAGE:
            if self._streamed and step == self._step:
                return
            content = event.data.get("message", {}).get("content")
            if isinstance(content, list) and (text := events.text_of(content)):
                self._begin(step)
                self._write(text)
        elif event.type == events.TOOL_CALL and not self._quiet:
            self._end_line()
            note(f"tool: {event.data.get('name')}")

    def _begin(self, step: tuple[Any, Any]) -> None:
        if step != self._step:
            self._end_line()
            self._step, self._streamed, self._last_text = step, False, ""

    def _write(self, text: str) -> None:
        self._last_text += text
        if self._quiet:
            return
        sys.stdout.write(text)
        sys.stdout.flush()
        self._open_line = not text.endswith("\n")

    def _end_line(self) -> None:
        if self._open_line:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._open_line = False


def note_ending(done: DelegationResult) -> None:
    """Why a turn that did not complete ended, on stderr."""
    result = done.result
    if not result.completed:
        status.print(headline(result.stop_reason), style="yellow", markup=False)
        if result.diagnostic:
            note(result.diagnostic)
    if result.output_ref is not None:
        note(f"the output has {result.output_ref.bytes} bytes; all of it: lastword result {done.id} --full")
    if result.disposal_error:
        note("processes of the child could not be proved gone; see the worker's log")
