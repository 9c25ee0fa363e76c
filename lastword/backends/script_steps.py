"""The steps that a scripted child knows. Each is a JSON object with the key that names it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from lastword.core.events import Block, text_block
from lastword.core.host_tools import DELEGATE, DelegateArguments


class _Step(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Delta(_Step):
    """Stream one piece of text."""

    delta: str
    every_ms: int = 0

    def texts(self) -> Iterator[str]:
        yield self.delta


class CountRange(BaseModel):
    start: int = Field(default=0, alias="from")
    end: int = Field(alias="to")
    every_ms: int = 0


class Count(_Step):
    """Stream `0 `, `1 `, ... up to, not including, `to`: text whose completeness shows by itself."""

    count: CountRange

    @property
    def every_ms(self) -> int:
        return self.count.every_ms

    def texts(self) -> Iterator[str]:
        return (f"{n} " for n in range(self.count.start, self.count.end))


class TextSize(BaseModel):
    bytes: int = Field(gt=0)
    delta_bytes: int = Field(default=8, gt=0)
    every_ms: int = 0
    seed: int = 0


class Text(_Step):
    """Stream pseudo-random words of a size, the same for the same seed."""

    text: TextSize

    @property
    def every_ms(self) -> int:
        return self.text.every_ms

    def texts(self) -> Iterator[str]:
        chosen = random.Random(self.text.seed)
        letters = "abcdefghijklmnopqrstuvwxyz     "
        left = self.text.bytes
        while left > 0:
            size = min(self.text.delta_bytes, left)
            yield "".join(chosen.choices(letters, k=size))
            left -= size


class Reasoning(_Step):
    """Stream one piece of reasoning."""

    reasoning: str


class Message(_Step):
    """Commit a message and end the step: text, blocks, or null for what the step streamed."""

    message: str | list[Block] | None
    usage: dict[str, int] | None = None

    def blocks(self, streamed: str) -> list[Block]:
        if self.message is None:
            return [text_block(streamed)] if streamed else []
        return [text_block(self.message)] if isinstance(self.message, str) else self.message


class Attempt(_Step):
    """A model attempt that fails and commits nothing."""

    attempt: Literal[True]


class Tool(BaseModel):
    """A tool call: it appends its id to a file, takes its time, waits for a file, and gives a result."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    name: str = "tool"
    arguments: Any = {}
    appends_to: str | None = None
    takes_ms: int = 0
    waits_for: str | None = None
    result: str = ""


class ToolStep(_Step):
    tool: Tool


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str = "other"
    title: str = ""
    paths: list[str] = []


class Ask(_Step):
    """Ask for a permission, and stream `allowed ` or `rejected `."""

    ask: Asked


class HostCall(BaseModel):
    """A call of one of the host's tools."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    tool: str
    arguments: dict[str, Any] = {}
    patience: float | None = None


class Task(DelegateArguments):
    """What is delegated, and the id of the call."""

    id: str

    @property
    def call(self) -> HostCall:
        arguments = self.model_dump(mode="json", exclude={"id"}, exclude_unset=True)
        return HostCall(id=self.id, tool=DELEGATE.name, arguments=arguments)


class Delegate(_Step):
    """Delegate, one task or several at once, and stream what came of each in brackets."""

    delegate: Task | list[Task]

    @property
    def calls(self) -> list[HostCall]:
        tasks = self.delegate if isinstance(self.delegate, list) else [self.delegate]
        return [task.call for task in tasks]


class Host(_Step):
    """Call a tool of the host's, or several at once, and stream what came of each in brackets."""

    host: HostCall | list[HostCall]

    @property
    def calls(self) -> list[HostCall]:
        return self.host if isinstance(self.host, list) else [self.host]


class Recall(_Step):
    """Stream what was said before this turn, by the `user` or by the `assistant`."""

    recall: Literal["user", "assistant"]


class Pause(_Step):
    """Say nothing for a while."""

    pause_ms: int = Field(ge=0)


class WaitFor(_Step):
    """Say nothing until a file exists."""

    wait_for: str


class Touch(_Step):
    """Create a file: tells a test that the child got here."""

    touch: str


class Fault(_Step):
    """Break off: raise, end without `turn/end`, commit a malformed message and end, or hang until cancelled."""

    fault: Literal["raise", "eof", "malformed", "hang"]


class End(_Step):
    """End the turn with a reason."""

    end: str
    category: str | None = None


Step: TypeAlias = Annotated[
    Delta
    | Count
    | Text
    | Reasoning
    | Message
    | Attempt
    | ToolStep
    | Ask
    | Delegate
    | Host
    | Recall
    | Pause
    | WaitFor
    | Touch
    | Fault
    | End,
    Field(union_mode="smart"),
]
