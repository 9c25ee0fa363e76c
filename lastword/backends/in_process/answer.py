"""Structured output: the answer that has to meet a JSON schema, given by the model as the call of one tool."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import jsonschema
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.tools import ToolDefinition
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from lastword.core.errors import RequestRejected
from lastword.core.events import Block, text_block, text_of

ANSWER_TOOL: Final = "final_answer"
_TRIES: Final = 3


class AnswerSchema:
    """Judges replies against the schema, and counts how often one failed it."""

    def __init__(self, schema: dict[str, Any]) -> None:
        """Raises RequestRejected for a schema that no answer can be checked against."""
        _check(schema)
        # A registry of its own: the default one fetches what a schema refers to, in the event loop.
        self._validator = jsonschema.Draft202012Validator(schema, registry=Registry())
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
        shown: list[Block] = []
        for block in content:
            if block["type"] != "tool-call" or block["name"] != ANSWER_TOOL:
                shown.append(block)
            elif text := answer_text(block["arguments"]):
                shown.append(text_block(text))
        return shown


def _text(response: ModelResponse) -> str:
    return text_of([{"type": "text", "text": part.content} for part in response.parts if part.part_kind == "text"])


def answer_text(arguments: Any) -> str:
    """The answer's JSON, or the piece of it that came; empty if nothing did."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False) if arguments else ""


def _check(schema: dict[str, Any]) -> None:
    if schema.get("type") != "object":
        raise RequestRejected(
            f"The output schema has the type {schema.get('type')!r}; it has to be 'object': make it a property of one."
        )
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise RequestRejected(f"The output schema is no valid JSON schema at {error.json_path}; correct it.") from None
    resolver = Registry().resolver_with_root(DRAFT202012.create_resource(schema))
    for ref in _references(schema):
        try:
            resolver.lookup(ref)
        except Unresolvable:
            raise RequestRejected(
                f"The output schema refers to {ref!r}, which is not in it; put the definition under '$defs'."
            ) from None


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(ref := schema.get("$ref"), str):
            yield ref
        schema = list(schema.values())
    if isinstance(schema, list):
        for item in schema:
            yield from _references(item)
