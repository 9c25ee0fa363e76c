"""`watch`, `cancel`, `result`, `list`, `log`: looking at delegations from any terminal."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lastword.cli.connection import AsJson, DataDir, connect
from lastword.cli.errors import COMPLETED, NOT_COMPLETED
from lastword.cli.rendering import note, note_ending, print_json, result_json, status
from lastword.core import events

if TYPE_CHECKING:
    from lastword.client import DelegationClient, DelegationInfo
    from lastword.core.events import SessionEvent
    from lastword.core.ports import Gap

Id = Annotated[str, typer.Argument(help="The delegation's id.", metavar="ID")]


def register(app: typer.Typer) -> None:
    app.command("watch")(watch)
    app.command("cancel")(cancel)
    app.command("result")(result)
    app.command("list")(list_)
    app.command("log")(log)


def watch(id: Id, as_json: AsJson = False, data_dir: DataDir = None) -> int:
    """Show what a child says, from its beginning, until it has closed. Ctrl-C lets go; the child goes on."""

    async def go() -> int:
        from lastword.cli.following import Follower

        client, _ = await connect(data_dir)
        await client.describe(id)
        return await Follower(client, id, owns=False, as_json=as_json).run()

    return asyncio.run(go())


def cancel(
    id: Id,
    force: Annotated[bool, typer.Option("--force", help="Terminate, and settle without a worker.")] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> int:
    """Cancel a child and print its partial text. A delegation that has settled gives its result."""

    async def go() -> int:
        client, _ = await connect(data_dir)
        done = await client.cancel(id, force=force)
        if as_json:
            print_json(result_json(done))
        else:
            _print_text(events.text_of(done.result.output))
            note(f"{id}: {done.result.stop_reason}")
        return COMPLETED

    return asyncio.run(go())


def result(
    id: Id,
    full: Annotated[bool, typer.Option("--full", help="The whole output, however long.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for one that still runs.")] = True,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> int:
    """Print the output of a delegation."""

    async def go() -> int:
        client, _ = await connect(data_dir)
        progress = await client.describe(id)
        if progress.phase != "closed":
            note(f"{id} is {progress.phase}" + ("; waiting (Ctrl-C stops waiting)" if wait else ""))
            if not wait:
                return NOT_COMPLETED
        done = await client.result(id)
        if as_json:
            shown = result_json(done)
            if full:
                shown["result"]["output"] = await client.full_output(id)
            print_json(shown)
        else:
            _print_text(events.text_of(await client.full_output(id) if full else done.result.output))
            note_ending(done)
        return COMPLETED if done.result.completed else NOT_COMPLETED

    return asyncio.run(go())


def list_(
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many, newest first.")] = 20,
    running: Annotated[bool, typer.Option("--running", help="Only those that run.")] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> int:
    """List delegations, newest first, with how they ended."""

    async def go() -> int:
        client, _ = await connect(data_dir)
        rows = await client.list(limit=limit, running_only=running)
        if as_json:
            print_json([_info_json(row) for row in rows])
        elif rows:
            _print_table(rows)
        else:
            note("no delegations")
        return COMPLETED

    return asyncio.run(go())


def log(id: Id, as_json: AsJson = False, data_dir: DataDir = None) -> int:
    """Print the session log: what is sealed, then the live tail of one that runs. `--json` prints one event a line."""

    async def go() -> int:
        client, _ = await connect(data_dir)
        async for item in _whole_log(client, id, merge=not as_json):
            print(_log_json(item) if as_json else _log_line(item))
        return COMPLETED

    return asyncio.run(go())


async def _whole_log(client: DelegationClient, id: str, *, merge: bool) -> Any:
    from lastword.core.packing import RowReader
    from lastword.core.ports import Gap

    progress = await client.describe(id)
    end = 0
    async for item in client.log(id, merge_deltas=merge):
        if not isinstance(item, Gap) and item.seq is not None:
            end = max(end, item.seq + 1)
        yield item
    if progress.checkpoint is not None:
        end = max(end, progress.checkpoint.sealed_seq)
        reader = RowReader()
        for row in progress.checkpoint.tail:
            for event in reader.read(row, merge_deltas=merge):
                if event.seq is not None and event.seq >= end:
                    yield event


def _log_json(item: SessionEvent | Gap) -> str:
    from lastword.core.ports import Gap

    if isinstance(item, Gap):
        return json.dumps({"gap": vars(item)})
    return json.dumps(item.model_dump(mode="json", exclude_none=True), ensure_ascii=False)


def _log_line(item: SessionEvent | Gap) -> str:
    from lastword.core.ports import Gap

    if isinstance(item, Gap):
        end = item.end_seq if item.end_seq is not None else "?"
        return f"{item.first_seq:>6}  --- {item.reason}: events {item.first_seq} to {end} {item.segment or ''}"
    at = datetime.fromtimestamp((item.time or 0) / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
    data = {key: value for key, value in item.data.items() if key not in ("turn", "step")}
    if item.type == events.ASSISTANT_CHUNK:
        shown = json.dumps(data.get("chunk", {}).get("text", ""), ensure_ascii=False)
    elif item.type == events.BACKEND_STATE:
        shown = ""
    else:
        shown = json.dumps(data, ensure_ascii=False)
    return f"{item.seq:>6}  {at}  {item.type:<18} {shown[:2000]}"


def _print_text(text: str) -> None:
    if text:
        print(text, end="" if text.endswith("\n") else "\n")


def _info_json(row: DelegationInfo) -> dict[str, Any]:
    values = {**vars(row), "started": row.started.isoformat(), "closed": row.closed.isoformat() if row.closed else None}
    return {name: value for name, value in values.items() if value is not None}


def _print_table(rows: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("id", "state", "backend", "model", "label", "started", "took", box=None, header_style="bold")
    for row in rows:
        end = row.closed or datetime.now(UTC)
        table.add_row(
            row.id, row.stop_reason or "running", row.backend, row.model, row.label,
            row.started.astimezone().strftime("%m-%d %H:%M:%S"), f"{(end - row.started).total_seconds():.1f} s",
        )  # fmt: skip
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else 200).print(table)
    status.file.flush()
