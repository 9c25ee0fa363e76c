"""`watch`, `cancel`, `result`, `list`: looking at delegations from any terminal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lastword.cli.connection import AsJson, DataDir, connect
from lastword.cli.errors import COMPLETED, NOT_COMPLETED, told_as_json
from lastword.cli.rendering import note, note_ending, print_json, print_text, result_json

if TYPE_CHECKING:
    from lastword.client import DelegationClient
    from lastword.core.contract import DelegationResult
    from lastword.core.events import Block
    from lastword.listing import DelegationInfo

Id = Annotated[str, typer.Argument(help="The delegation's id.", metavar="ID")]

_ANSWER_GRACE = 5.0
"""Seconds after which it is said that nobody answers a cancel."""


class ListState(StrEnum):
    running = "running"
    waiting = "waiting"
    idle = "idle"
    closed = "closed"


def register(app: typer.Typer) -> None:
    app.command("watch")(watch)
    app.command("cancel")(cancel)
    app.command("result")(result)
    app.command("list")(list_)


def watch(id: Id, as_json: AsJson = False, data_dir: DataDir = None) -> int:
    """Show what a child says, from its beginning, until it has closed. Ctrl-C lets go; the child goes on.

    Of a conversation: from the beginning of its turn until its newest message is answered.
    """

    async def go() -> int:
        from lastword.cli.following import Follower

        client = await connect(data_dir)
        await client.describe(id)
        return await Follower(client, id, owns=False, as_json=as_json).run()

    with told_as_json(as_json, id):
        return asyncio.run(go())


def cancel(
    id: Id,
    force: Annotated[bool, typer.Option("--force", help="Terminate, and settle without a worker.")] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> int:
    """Cancel a child and print its partial text; a conversation closes. One that has settled gives its result."""

    async def go() -> int:
        client = await connect(data_dir)
        done = await _cancelled(client, id, force)
        if as_json:
            print_json(result_json(done))
        else:
            _print_output(done)
        note(f"{id}: {done.result.stop_reason}")
        return COMPLETED

    with told_as_json(as_json, id):
        return asyncio.run(go())


async def _cancelled(client: DelegationClient, id: str, force: bool) -> DelegationResult:
    cancelling = asyncio.create_task(client.cancel(id, force=force))
    if not (await asyncio.wait({cancelling}, timeout=_ANSWER_GRACE))[0]:
        note(
            f"the child has not ended after {_ANSWER_GRACE:g} s; waiting. If no worker runs, settle it from here:"
            f" lastword cancel {id} --force"
        )
    return await cancelling


def result(
    id: Id,
    full: Annotated[bool, typer.Option("--full", help="The whole output, however long.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for one that still runs.")] = True,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> int:
    """Print the output of a child; of a conversation the answer to its newest message."""

    async def go() -> int:
        client = await connect(data_dir)
        progress = await client.describe(id)
        at_work = progress.phase not in ("closed", "idle")
        if at_work and not wait:
            fact = f"{id} is {progress.phase}"
            if as_json:
                print_json({"id": id, "is_error": True, "error": fact, "phase": progress.phase})
            note(f"{fact}; its words so far: lastword watch {id}")
            return NOT_COMPLETED
        if at_work:
            note(f"{id} is {progress.phase}; waiting (Ctrl-C stops waiting)")
        done = await client.result(id)
        if full:
            done = await _with_full_output(client, done)
        if as_json:
            print_json(result_json(done))
        else:
            _print_output(done)
        note_ending(done)
        return COMPLETED if done.result.completed else NOT_COMPLETED

    with told_as_json(as_json, id):
        return asyncio.run(go())


async def _with_full_output(client: DelegationClient, done: DelegationResult) -> DelegationResult:
    """The result with all of its output, as far as the session log can be read; what cannot is told."""
    from lastword.core.bounds import encoded_size

    cut = done.result.output_ref
    if cut is None:
        return done
    output: Sequence[Block] = await client.full_output(done.id, turn=cut.turn)
    if (size := encoded_size(output)) != cut.bytes:
        note(
            f"the output has {cut.bytes} bytes, the session log here holds {size}. Set LASTWORD_LOG_STORE or --data-dir"
            f" to the worker's; what its log lacks shows: lastword log {done.id}",
            style="yellow",
        )
        return done
    whole = done.result.model_copy(update={"output": list(output), "output_ref": None})
    return done.model_copy(update={"result": whole})


def _print_output(done: DelegationResult) -> None:
    from lastword.core.events import text_of

    print_text(text_of(done.result.output))


def list_(
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many, newest first.")] = 20,
    state: Annotated[ListState | None, typer.Option("--state", help="Only those in this state.")] = None,
    running: Annotated[bool, typer.Option("--running", help="The same as --state running.")] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> int:
    """List delegations and conversations, newest first, with what they do or how they ended."""

    async def go() -> int:
        client = await connect(data_dir)
        rows = await client.list(limit=limit, state="running" if running else state.value if state else None)
        if as_json:
            print_json([_info_json(row) for row in rows])
        elif rows:
            print_table(rows)
        else:
            note("no delegations")
        return COMPLETED

    with told_as_json(as_json):
        return asyncio.run(go())


def _info_json(row: DelegationInfo) -> dict[str, Any]:
    closed = row.closed.isoformat() if row.closed else None
    values = {**vars(row), "started": row.started.isoformat(), "closed": closed}
    return {name: value for name, value in values.items() if value is not None}


def print_table(rows: Sequence[DelegationInfo]) -> None:
    """One row a delegation; ids whole, whatever the width."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("id", "state", "stop reason", "backend", "model", "label", "started", "took"):
        table.add_column(name, no_wrap=name in ("id", "state", "stop reason", "started", "took"), overflow="fold")
    for row in rows:
        took = f"{((row.closed or datetime.now(UTC)) - row.started).total_seconds():.1f} s"
        started = row.started.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        reason = row.stop_reason or ("(conversation)" if row.kind == "conversation" else None)
        cells = (row.id, row.state, reason, row.backend, row.model, row.label, started, took)
        # As text: a label may look like markup.
        table.add_row(*(Text(cell or "") for cell in cells))
    # Without a terminal there is no width to fit into: a row is a line.
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else 1000).print(table)
    sys.stdout.flush()
