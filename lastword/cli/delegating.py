"""`lastword delegate`: hand a task to a child."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lastword.cli.asking import (
    Delegation,
    Fork,
    Mcp,
    Permissions,
    Reports,
    backend_options,
    delegation_policy,
    json_file,
    mcp_servers,
    permission_policy,
    prompt_of,
    request_of,
)
from lastword.cli.connection import AsJson, DataDir, connect
from lastword.cli.delegating_many import run_file
from lastword.cli.errors import COMPLETED, told_as_json
from lastword.cli.rendering import note, print_json
from lastword.core.errors import RequestInvalid, ServerUnreachable

if TYPE_CHECKING:
    from lastword.core.contract import DelegationRequest


_WITHOUT_WORKSPACE = ("in-process", "scripted")


def register(app: typer.Typer) -> None:
    app.command("delegate")(delegate)


def delegate(
    prompt: Annotated[
        str | None, typer.Argument(help="What the child should do; - reads it from stdin.", show_default=False)
    ] = None,
    many: Annotated[
        Path | None, typer.Option("--many", help="File of tasks, a JSON object with a prompt on each line.")
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, max=500, help="Of --many, at a time.")] = 8,
    out: Annotated[Path | None, typer.Option("--out", help="Of --many, the file of results.")] = None,
    background: Annotated[bool, typer.Option("--background", help="Print the id and return at once.")] = False,
    id: Annotated[str | None, typer.Option("--id", help="The delegation's id; the same again attaches.")] = None,
    backend: Annotated[str, typer.Option("--backend", help="See `lastword backends`.")] = "in-process",
    model: Annotated[str | None, typer.Option("--model", help="PROVIDER:NAME, e.g. openai:gpt-5.")] = None,
    persona: Annotated[str | None, typer.Option("--persona", help="The system prompt.")] = None,
    label: Annotated[str | None, typer.Option("--label", help="A name for people.")] = None,
    cwd: Annotated[
        str | None,
        typer.Option("--cwd", help="The child's working directory; for an agent of `lastword up`, this one."),
    ] = None,
    timeout: Annotated[float | None, typer.Option("--timeout", help="Wall clock in seconds.")] = None,
    idle_timeout: Annotated[float | None, typer.Option("--idle-timeout", help="Seconds without an event.")] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", help="Output tokens of one reply.")] = None,
    token_budget: Annotated[int | None, typer.Option("--token-budget", help="Tokens of the whole turn.")] = None,
    max_cost: Annotated[float | None, typer.Option("--max-cost", help="US dollars of the whole turn.")] = None,
    max_steps: Annotated[int | None, typer.Option("--max-steps", help="Model requests.")] = None,
    max_tool_calls: Annotated[int | None, typer.Option("--max-tool-calls", help="Tool calls.")] = None,
    on_worker_loss: Annotated[
        str, typer.Option("--on-worker-loss", help="resume, restart or settle.", metavar="POLICY")
    ] = "resume",
    permissions: Permissions = None,
    delegation: Delegation = None,
    reports: Reports = False,
    fork: Fork = None,
    schema: Annotated[Path | None, typer.Option("--schema", help="File with a JSON schema for the answer.")] = None,
    mcp: Mcp = None,
    allow_tool: Annotated[list[str] | None, typer.Option("--allow-tool", help="Only these tools.")] = None,
    deny_tool: Annotated[list[str] | None, typer.Option("--deny-tool", help="Not these tools.")] = None,
    option: Annotated[list[str] | None, typer.Option("--option", help="KEY=JSON for the backend.")] = None,
    script: Annotated[Path | None, typer.Option("--script", help="File with a scripted child's steps.")] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> int:
    """Hand a task to a child, show its words as they come, and end with its last word."""
    from lastword.starting import new_id

    chosen = new_id() if id is None else id
    with told_as_json(as_json, chosen):
        fields: dict[str, Any] = {
            "backend": backend,
            "model": model,
            "persona": persona,
            "label": label,
            "cwd": str(Path(cwd).absolute()) if cwd else _workspace(backend, data_dir),
            "max_tokens": max_tokens,
            "on_worker_loss": on_worker_loss,
            "reports": reports,
            "limits": {
                "wall_clock": timeout,
                "idle": idle_timeout,
                "tokens": token_budget,
                "cost_usd": max_cost,
                "steps": max_steps,
                "tool_calls": max_tool_calls,
            },
        }
        if permissions is not None:
            fields["permissions"] = permission_policy(permissions)
        if delegation is not None:
            fields["delegation"] = delegation_policy(delegation)
        if schema is not None:
            fields["output_schema"] = json_file(schema, "--schema")
        if mcp is not None:
            fields["mcp_servers"] = mcp_servers(mcp)
        if allow_tool or deny_tool:
            fields["tool_filter"] = {"allow": allow_tool or None, "deny": deny_tool or []}
        if option or script is not None:
            fields["options"] = backend_options(option or [], script)
        if (prompt is None) == (many is None):
            raise RequestInvalid("Give either a prompt or --many FILE.")
        if many is not None and fork is not None:
            raise RequestInvalid("--fork is for one task, not for --many; leave one of them out.")
        if many is not None:
            return asyncio.run(run_file(many, fields, concurrency=concurrency, out=out, data_dir=data_dir))
        request = request_of({**fields, "prompt": prompt_of(str(prompt))})
        return asyncio.run(_delegate(request, fork, chosen, background, as_json, data_dir))


def _workspace(backend: str, data_dir: Path | None) -> str | None:
    """Where an agent works that nobody named a directory for: here, if its worker runs on this machine."""
    from lastword.embedded.state import read_state
    from lastword.settings import load_settings

    if backend in _WITHOUT_WORKSPACE or os.environ.get("TEMPORAL_ADDRESS"):
        return None
    return os.getcwd() if read_state(load_settings(data_dir=data_dir).data_dir) else None


async def _delegate(
    request: DelegationRequest, fork: str | None, id: str, background: bool, as_json: bool, data_dir: Path | None
) -> int:
    from lastword.cli.following import Follower
    from lastword.core.names import check_id

    check_id(id)
    client = await connect(data_dir)
    if fork is not None:
        request = request.model_copy(update={"seed": await client.transcript(fork)})
    if not background:

        async def start() -> None:
            # Whoever reads the id may press Ctrl-C at once: by now that reaches the child.
            note(f"id: {id}")
            await client.start(request, id=id)

        return await Follower(client, id, owns=True, as_json=as_json).run(start)
    try:
        await client.start(request, id=id)
    except ServerUnreachable as error:
        # Its answer may be lost, not the start.
        raise ServerUnreachable(f"{error}\nWhether {id} was started shows: lastword watch {id}") from None
    if as_json:
        print_json({"id": id})
    else:
        print(id, flush=True)
    return COMPLETED
