"""`lastword delegate`: hand a task to a child."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from lastword.cli.connection import AsJson, DataDir, connect
from lastword.cli.errors import exit_code_of
from lastword.cli.rendering import note, print_json
from lastword.core.errors import LastwordError, RequestInvalid


def register(app: typer.Typer) -> None:
    app.command("delegate")(delegate)


def delegate(
    prompt: Annotated[str, typer.Argument(help="What the child should do; - reads it from stdin.")],
    background: Annotated[bool, typer.Option("--background", help="Print the id and return at once.")] = False,
    id: Annotated[str | None, typer.Option("--id", help="The delegation's id; the same again attaches.")] = None,
    backend: Annotated[str, typer.Option("--backend", help="See `lastword backends`.")] = "in-process",
    model: Annotated[str | None, typer.Option("--model", help="PROVIDER:NAME, e.g. openai:gpt-5.")] = None,
    persona: Annotated[str | None, typer.Option("--persona", help="The system prompt.")] = None,
    label: Annotated[str | None, typer.Option("--label", help="A name for people.")] = None,
    cwd: Annotated[str | None, typer.Option("--cwd", help="The child's working directory.")] = None,
    timeout: Annotated[float | None, typer.Option("--timeout", help="Wall clock in seconds.")] = None,
    idle_timeout: Annotated[float | None, typer.Option("--idle-timeout", help="Seconds without an event.")] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", help="Output tokens of one reply.")] = None,
    token_budget: Annotated[int | None, typer.Option("--token-budget", help="Tokens of the whole turn.")] = None,
    max_steps: Annotated[int | None, typer.Option("--max-steps", help="Model requests.")] = None,
    max_tool_calls: Annotated[int | None, typer.Option("--max-tool-calls", help="Tool calls.")] = None,
    on_worker_loss: Annotated[
        str, typer.Option("--on-worker-loss", help="resume, restart or settle.", metavar="POLICY")
    ] = "resume",
    schema: Annotated[Path | None, typer.Option("--schema", help="File with a JSON schema for the answer.")] = None,
    mcp: Annotated[Path | None, typer.Option("--mcp", help="File with a list of MCP servers (JSON).")] = None,
    allow_tool: Annotated[list[str] | None, typer.Option("--allow-tool", help="Only these tools.")] = None,
    deny_tool: Annotated[list[str] | None, typer.Option("--deny-tool", help="Not these tools.")] = None,
    option: Annotated[list[str] | None, typer.Option("--option", help="KEY=JSON for the backend.")] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> int:
    """Hand a task to a child, show its words as they come, and end with its last word."""
    task: dict[str, Any] = {
        "prompt": sys.stdin.read() if prompt == "-" else prompt,
        "backend": backend,
        "model": model,
        "persona": persona,
        "label": label,
        "cwd": str(Path(cwd).absolute()) if cwd else None,
        "max_tokens": max_tokens,
        "on_worker_loss": on_worker_loss,
        "limits": {
            "wall_clock": timeout,
            "idle": idle_timeout,
            "tokens": token_budget,
            "steps": max_steps,
            "tool_calls": max_tool_calls,
        },
    }
    if schema is not None:
        task["output_schema"] = _json_file(schema, "--schema")
    if mcp is not None:
        task["mcp_servers"] = _json_file(mcp, "--mcp")
    if allow_tool or deny_tool:
        task["tool_filter"] = {"allow": allow_tool or None, "deny": deny_tool or []}
    if option:
        task["options"] = dict(_option(text) for text in option)
    return asyncio.run(_delegate(task, id, background, as_json, data_dir))


async def _delegate(
    task: dict[str, Any], id: str | None, background: bool, as_json: bool, data_dir: Path | None
) -> int:
    from lastword.cli.following import Follower
    from lastword.client import new_id

    chosen = id or new_id()
    try:
        request = _request(task)
        client, _ = await connect(data_dir)
        await client.start(request, id=chosen)
        if background:
            print_json({"id": chosen}) if as_json else print(chosen)
            return 0
        note(f"id: {chosen}")
        return await Follower(client, chosen, owns=True, as_json=as_json).run()
    except LastwordError as error:
        if as_json:
            print_json({"id": chosen, "is_error": True, "error": str(error)})
        print(f"error: {error}", file=sys.stderr)
        return exit_code_of(error)


def _request(task: dict[str, Any]) -> Any:
    from pydantic import ValidationError

    from lastword.core.contract import DelegationRequest

    try:
        return DelegationRequest.model_validate(task)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part not in ("str", "list[dict[str,any]]"))
        raise RequestInvalid(f"{where or 'request'}: {first['msg'].removeprefix('Value error, ')}.") from None


def _json_file(path: Path, flag: str) -> Any:
    try:
        return json.loads(path.read_text())
    except OSError as error:
        raise RequestInvalid(f"{flag} {path}: {error.strerror}; give a file that can be read.") from None
    except ValueError as error:
        raise RequestInvalid(f"{flag} {path} is not JSON ({error}); correct it.") from None


def _option(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise RequestInvalid(f"--option {text!r} has no '='; write KEY=JSON.")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
