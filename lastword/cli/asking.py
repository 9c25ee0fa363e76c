"""From flags, files and stdin to a request; what is wrong with them is told by their flag."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from lastword.core.errors import RequestInvalid

if TYPE_CHECKING:
    from pydantic import BaseModel

    from lastword.core.contract import DelegationRequest
    from lastword.core.conversation import ConversationRequest

Permissions = Annotated[
    str | None,
    typer.Option("--permissions", help="reject, allow, ask, or a policy: JSON, or a file with it.", metavar="POLICY"),
]
Mcp = Annotated[str | None, typer.Option("--mcp", help="MCP servers: a JSON list, or a file with one.")]
Delegation = Annotated[
    str | None,
    typer.Option("--delegation", help="The child may delegate: on, or a policy, JSON or a file.", metavar="POLICY"),
]
Reports = Annotated[bool, typer.Option("--reports", help="The child may report while it runs.")]
Fork = Annotated[
    str | None, typer.Option("--fork", help="A new child knows the completed turns of this one.", metavar="ID")
]
"""Options that every command has that starts a child."""

_Request = TypeVar("_Request", bound="BaseModel")

_FLAGS = {
    "prompt": "the prompt",
    "max_tokens": "--max-tokens",
    "on_worker_loss": "--on-worker-loss",
    "label": "--label",
    "permissions": "--permissions",
    "delegation": "--delegation",
    "output_schema": "--schema",
    "mcp_servers": "--mcp",
    "limits.wall_clock": "--timeout",
    "limits.idle": "--idle-timeout",
    "limits.tokens": "--token-budget",
    "limits.cost_usd": "--max-cost",
    "limits.steps": "--max-steps",
    "limits.tool_calls": "--max-tool-calls",
}
"""The flag of each field that may be refused."""


def request_of(fields: dict[str, Any]) -> DelegationRequest:
    """The request. Raises RequestInvalid with the flag, its value and what it should be."""
    from lastword.core.contract import DelegationRequest

    return _validated(DelegationRequest, fields)


def conversation_of(fields: dict[str, Any]) -> ConversationRequest:
    """The request of a conversation; as `request_of`."""
    from lastword.core.conversation import ConversationRequest

    return _validated(ConversationRequest, fields)


def _validated(kind: type[_Request], fields: dict[str, Any]) -> _Request:
    from pydantic import ValidationError

    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
    where, value = ".".join(str(part) for part in first["loc"]), first["input"]
    message = first["msg"].removeprefix("Value error, ")
    if where.startswith("prompt"):
        raise RequestInvalid(f"{message[:1].upper()}{message[1:]}.")
    field = next((field for field in _FLAGS if where == field or where.startswith(f"{field}.")), where)
    inside = where.removeprefix(field).removeprefix(".")
    shown = f" {value}" if isinstance(value, int | float | str) and len(str(value)) <= 60 else ""
    raise RequestInvalid(f"{_FLAGS.get(field, field)}{f' at {inside}' if inside else ''}{shown}: {message}.")


def prompt_of(argument: str) -> str:
    """The prompt, from stdin if the argument is `-`."""
    if argument != "-":
        return argument
    data = sys.stdin.buffer.read()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise RequestInvalid(f"The prompt on stdin is not UTF-8 at byte {error.start}; convert it.") from None


def json_file(path: Path, flag: str) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise RequestInvalid(f"{flag} {path}: {error.strerror}; give a file that can be read.") from None
    except ValueError as error:
        raise RequestInvalid(f"{flag} {path} is not JSON ({error}); correct it.") from None


def mcp_servers(text: str) -> list[Any]:
    """A server or a list of them, as JSON or in a file."""
    value = _json(text, "--mcp") if text.lstrip()[:1] in ("[", "{") else json_file(Path(text), "--mcp")
    return value if isinstance(value, list) else [value]


def permission_policy(text: str) -> Any:
    """One of the modes that need no more said, or a policy as JSON or in a file."""
    if text in ("reject", "allow", "ask"):
        return {"mode": text}
    if text.lstrip()[:1] == "{":
        return _json(text, "--permissions")
    return json_file(Path(text), "--permissions")


def delegation_policy(text: str) -> Any:
    """`on` for the defaults, else a policy as JSON or in a file."""
    if text == "on":
        return {}
    return _json(text, "--delegation") if text.lstrip()[:1] == "{" else json_file(Path(text), "--delegation")


def backend_options(pairs: Sequence[str], script: Path | None) -> dict[str, Any]:
    """`KEY=JSON` pairs; a value that is no JSON is the text itself."""
    options = dict(_option(pair) for pair in pairs)
    if script is not None:
        options["script"] = json_file(script, "--script")
    return options


def _option(pair: str) -> tuple[str, Any]:
    key, equals, value = pair.partition("=")
    if not equals or not key:
        raise RequestInvalid(f"--option {pair!r} is not of the form KEY=JSON.")
    if value.lstrip()[:1] in ("[", "{", '"'):
        return key, _json(value, f"--option {key}")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _json(text: str, flag: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise RequestInvalid(f"{flag} is not JSON ({error}); correct it.") from None
