"""The tools that a child's host offers to the child's model: what it may delegate, and how it reports.

One table for every backend; how a tool gets to the model is the backend's, what it does is the host's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from lastword.core.contract import CheckedPrompt
from lastword.core.notices import check_report


class Arguments(BaseModel):
    """What a model gives to a tool. What is misspelt is told, not dropped."""

    model_config = ConfigDict(extra="forbid")


class TaskArguments(Arguments):
    prompt: CheckedPrompt = Field(
        json_schema_extra={"type": "string"},
        description="The whole task, standing on its own: goal, material or where it is, and what to give back.",
    )
    label: str | None = Field(default=None, max_length=200, description="A few words that name it.")


class BackgroundArguments(TaskArguments):
    background: bool = Field(default=False, description="Return the id at once; get the answer with `result`.")
    continuable: bool = Field(default=False, description="Keep the child after its answer, for `ask` and `send`.")


class DelegateArguments(BackgroundArguments):
    fork: bool = Field(default=False, description="The child knows the completed turns of this conversation.")


class ChildArguments(Arguments):
    id: str = Field(description="The child's id.")


class SayArguments(ChildArguments):
    prompt: CheckedPrompt = Field(json_schema_extra={"type": "string"}, description="What it is asked next.")


class ListArguments(Arguments):
    pass


class ReportArguments(Arguments):
    text: str = Field(description="What the parent should know now.")

    @field_validator("text")
    @classmethod
    def _checked(cls, text: str) -> str:
        return check_report(text)


@dataclass(frozen=True)
class ToolSpec:
    """A tool of the host, as a model sees it."""

    name: str
    description: str
    arguments: type[BaseModel]
    acts: bool = True
    """A call of it that is repeated after a lost worker is the same call, not another one."""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""
        schema = self.arguments.model_json_schema()
        for field in schema.get("properties", {}).values():
            field.pop("title", None)
            # What may be text or absent is text, for the models that know no alternatives.
            kinds = [kind for kind in field.pop("anyOf", []) if kind.get("type") in ("string", "boolean")]
            if kinds and "type" not in field:
                field["type"] = kinds[0]["type"]
        return {"type": "object", "properties": {}, **{k: v for k, v in schema.items() if k not in ("title", "$defs")}}


DELEGATE: Final = ToolSpec(
    "delegate",
    "Hand a part of the task to another agent and get its answer. Use it for work that stands on its own. The other"
    " agent sees nothing of this conversation: the prompt has to say everything it needs, and what to give back.",
    DelegateArguments,
)
ASK: Final = ToolSpec("ask", "Ask a continuable child of yours more, and get its answer.", SayArguments)
SEND: Final = ToolSpec(
    "send", "Give a continuable child of yours more to do; get its answer later with `result`.", SayArguments
)
RESULT: Final = ToolSpec(
    "result",
    "Wait for a child of yours and get what it reported and answered since you last asked.",
    ChildArguments,
    acts=False,
)
INTERRUPT: Final = ToolSpec(
    "interrupt", "Stop what a child of yours is doing now, and get what it has said so far.", ChildArguments
)
CANCEL: Final = ToolSpec("cancel", "End a child of yours for good; what it has said so far is kept.", ChildArguments)
LIST: Final = ToolSpec("list", "Your children, and what each is doing.", ListArguments, acts=False)
REPORT: Final = ToolSpec(
    "report",
    "Tell your parent something before you are done: a finding, a problem, how far you are. It is not your answer.",
    ReportArguments,
)

DELEGATING: Final = (DELEGATE, ASK, SEND, RESULT, INTERRUPT, CANCEL, LIST)

_Arguments_ = TypeVar("_Arguments_", bound=BaseModel)


def parse(kind: type[_Arguments_], arguments: Mapping[str, Any]) -> _Arguments_:
    """The arguments. Raises ValueError in words that a model can act on."""
    try:
        return kind.model_validate(dict(arguments))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{where}: {first['msg'].removeprefix('Value error, ')}" if where else first["msg"]) from None
