"""Structured output: the answer that has to meet a JSON schema, given by the model as the call of one tool."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, Literal

import jsonschema
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.tools import ToolDefinition

from lastword.core.events import Block, text_block, text_of

ANSWER_TOOL: Final = "final_answer"
_TRIES: Final = 3


class AnswerSchema:
    """Judges replies against the schema, and counts how often one failed it."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._validator = jsonschema.Draft202012Validator(schema)
        self._failures = 0
        self.value: Any = None
        self.complaint = ""
        """What the model is told about its last answer."""
        self.tool = ToolDefinition(
            name=ANSWER_TOOL,
            description="Give the final answer.",
            parameters_json_schema=schema,
            kind="output",
        )

    def judge(self, response: ModelResponse, calls: Sequence[ToolCallPart]) -> Literal["met", "not yet", "given up"]:
        """Whether this reply answers. A reply that calls other tools is on its way."""
        given = [call for call in calls if call.tool_name == ANSWER_TOOL]
        if not given and calls:
            return "not yet"
        try:
            self.value = given[0].args_as_dict(raise_if_invalid=True) if given else json.loads(_text(response))
            self._validator.validate(self.value)
        except jsonschema.ValidationError as error:
            self.complaint = f"The answer does not meet the schema at {error.json_path}: {error.message}"
        except (ValueError, AssertionError):
            self.complaint = f"The answer has to be a JSON object, given by calling {ANSWER_TOOL}."
        else:
            return "met"
        self._failures += 1
        return "given up" if self._failures >= _TRIES else "not yet"

    def shown(self, content: Sequence[Block]) -> list[Block]:
        """The blocks with the answer as text: its tool is no tool, and its call would not read as the child's words."""
        return [
            text_block(_as_json(block["arguments"]))
            if block["type"] == "tool-call" and block["name"] == ANSWER_TOOL
            else block
            for block in content
        ]


def _text(response: ModelResponse) -> str:
    return text_of([{"type": "text", "text": part.content} for part in response.parts if part.part_kind == "text"])


def _as_json(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
