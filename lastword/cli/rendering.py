"""How what a child says reaches a terminal: its words to stdout, everything about it to stderr."""

from __future__ import annotations

import hashlib
import json
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from lastword.core.contract import DelegationResult
    from lastword.core.events import SessionEvent
    from lastword.watching import Watched


@cache
def _status() -> Console:
    from rich.console import Console

    # Ids and labels are shown as they are: no markup, no emoji codes, no line breaks of ours.
    return Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)


def note(text: str, *, style: str = "dim") -> None:
    """One line of status."""
    _status().print(text, style=style)


def print_text(text: str) -> None:
    """The child's words, with a line end after them."""
    if text:
        print(text, end="" if text.endswith("\n") else "\n", flush=True)


def print_json(value: Any) -> None:
    """One object, on one line unless a person reads it."""
    print(json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None), flush=True)


def result_json(done: DelegationResult) -> dict[str, Any]:
    """The one object that `--json` prints."""
    return {
        "id": done.id,
        "is_error": done.tool_result.is_error,
        "content": done.tool_result.content,
        "result": done.result.model_dump(mode="json"),
    }


class LiveText:
    """Prints the child's words as they come, each once. A step's words are one passage, on lines of their own."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._step: tuple[Any, Any] | None = None
        self._passage = _Passage()
        self._whole = _Passage()
        self._earlier: set[bytes] = set()
        self._open_line = False
        self._missed = False

    def take(self, item: Watched) -> None:
        """Show one watched item, as far as it is the child's words."""
        from lastword.watching import EventSeen, EventsMissed

        if isinstance(item, EventSeen):
            self._take_event(item.event)
        elif isinstance(item, EventsMissed):
            self._missed = True

    def finish(self, done: DelegationResult) -> None:
        """End the text. What the output is, is said if the words shown last are not it, and shown if none were."""
        from lastword.core.events import text_of

        output = text_of(done.result.output)
        # Of a cut output nobody can tell whether it was shown; its reader is told how to get it all.
        shown = done.result.output_ref is not None or output == "" or self._passage.is_text(output)
        if self._missed or not (shown or self._was_shown(output)):
            self.end_line()
            if not self._quiet and output:
                missed = "some of its words could not be read here; " if self._missed else ""
                note(f"{missed}the output:")
            self._write(output)
        elif not shown and not self._whole.is_text(output) and not self._quiet:
            self.end_line()
            note(f"the output is an earlier message; it alone: lastword result {done.id}")
        self.end_line()

    def end_line(self) -> None:
        """Make what comes next begin on a line of its own."""
        if self._open_line:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._open_line = False

    def _was_shown(self, output: str) -> bool:
        return self._whole.is_text(output) or _Passage(output).digest in self._earlier

    def _take_event(self, event: SessionEvent) -> None:
        from lastword.core import events

        step = (event.data.get("turn"), event.data.get("step"))
        if event.type == events.ASSISTANT_CHUNK:
            chunk = event.data.get("chunk")
            text = chunk.get("text") if isinstance(chunk, dict) and chunk.get("type") == "text-delta" else None
            if isinstance(text, str) and text:
                self._say(text, step)
        elif event.type == events.ASSISTANT_MESSAGE:
            self._take_message(event, step)
        elif event.type in (events.ASSISTANT_ATTEMPT, events.STEP_START):
            # A model attempt is over, or begins: what comes now is another passage, even under the same step number.
            self._step = None
        elif event.type == events.TOOL_CALL and not self._quiet:
            self.end_line()
            note(f"tool: {event.data.get('name')}")
        elif event.type == events.CHILD_REPORT and not self._quiet:
            self.end_line()
            note(f"report: {event.data.get('text')}", style="cyan")

    def _take_message(self, event: SessionEvent, step: tuple[Any, Any]) -> None:
        from lastword.core.events import text_of

        message = event.data.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        try:
            text = text_of(content) if isinstance(content, list) else ""
        except AttributeError:
            # Blocks that are no objects: the child broke off with this.
            text = ""
        if step != self._step:
            self._say(text, step)
        elif self._passage.begins(text):
            self._say(text[self._passage.chars :], step)
        self._step = None

    def _say(self, text: str, step: tuple[Any, Any]) -> None:
        if not text:
            return
        if step != self._step:
            self.end_line()
            self._earlier.add(self._passage.digest)
            self._step, self._passage = step, _Passage()
        self._passage.add(text)
        self._whole.add(text)
        self._write(text)

    def _write(self, text: str) -> None:
        if self._quiet or not text:
            return
        sys.stdout.write(text)
        sys.stdout.flush()
        self._open_line = not text.endswith("\n")


class _Passage:
    """A text that grows, known by its digest: a child may say more than a terminal should keep."""

    def __init__(self, text: str = "") -> None:
        self.chars = 0
        self._hash = hashlib.blake2b(digest_size=16)
        self.add(text)

    def add(self, text: str) -> None:
        self.chars += len(text)
        self._hash.update(text.encode(errors="replace"))

    @property
    def digest(self) -> bytes:
        return self._hash.digest()

    def is_text(self, text: str) -> bool:
        return len(text) == self.chars and _Passage(text).digest == self.digest

    def begins(self, text: str) -> bool:
        return self.is_text(text[: self.chars])


def note_ending(done: DelegationResult) -> None:
    """On stderr: why a turn that did not complete ended, and what stdout does not show."""
    from lastword.core.events import text_of
    from lastword.core.tool_result import headline

    result = done.result
    if not result.completed:
        note(headline(result.stop_reason), style="yellow")
        if result.diagnostic:
            note(result.diagnostic)
    if not text_of(result.output):
        kinds = sorted({str(block.get("type")) for block in result.output})
        note(
            f"no text, but {', '.join(kinds)}: lastword result {done.id} --json" if kinds else "the child said nothing"
        )
    if result.output_ref is not None:
        note(f"the output has {result.output_ref.bytes} bytes; all of it: lastword result {done.id} --full")
    if result.disposal_error:
        note("processes of the child could not be proved gone; see the worker's log")
