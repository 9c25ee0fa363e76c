"""`log`: everything a child said and did."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lastword.cli.connection import DataDir, connect
from lastword.cli.errors import COMPLETED, told_as_json
from lastword.cli.inspecting import Id
from lastword.core.errors import LastwordError

if TYPE_CHECKING:
    from lastword.client import DelegationClient
    from lastword.core.events import SessionEvent
    from lastword.core.ports import Gap

_SHOWN_CHARS = 2000
_CUT_MARK = " [cut; all of it with --json]"


def register(app: typer.Typer) -> None:
    app.command("log")(log)


def log(
    id: Id,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line, one an event.")] = False,
    data_dir: DataDir = None,
) -> int:
    """Print the session log: what is sealed, then the live tail of one that runs. What cannot be read is named."""

    async def go() -> int:
        items = whole_log(await connect(data_dir), id)
        if as_json:
            async for item in items:
                print(log_json(item))
        else:
            async for item in _merged(items):
                print(log_line(item))
        return COMPLETED

    with told_as_json(as_json, id):
        return asyncio.run(go())


async def whole_log(client: DelegationClient, id: str) -> AsyncIterator[SessionEvent | Gap]:
    """Every event in order: sealed, then the live tail. A Gap stands for what exists and cannot be read."""
    from lastword.core.packing import RowReader
    from lastword.core.ports import Gap

    progress = await client.describe(id)
    known = progress.checkpoint.sealed_seq if progress.checkpoint else 0
    if progress.phase == "closed":
        # One that was rejected has no result, and no log either.
        with suppress(LastwordError):
            known = (await client.result(id)).result.next_seq
    end = 0
    async for item in client.log(id):
        if progress.checkpoint is not None and _first_seq(item) >= known:
            # A listing taken while the log is written may show later segments without earlier ones. What was sealed at
            # the checkpoint is all there; the rest is in its tail.
            break
        if isinstance(item, Gap):
            end = max(end, item.end_seq or item.first_seq + 1)
        elif item.seq is not None:
            end = max(end, item.seq + 1)
        yield item
    if end < known:
        yield Gap(first_seq=end, end_seq=known, reason="missing")
        end = known
    reader = RowReader()
    for row in progress.checkpoint.tail if progress.checkpoint else []:
        for event in reader.read(row):
            if event.seq is not None and event.seq >= end:
                yield event


def _first_seq(item: SessionEvent | Gap) -> int:
    from lastword.core.ports import Gap

    return item.first_seq if isinstance(item, Gap) else item.seq or 0


async def _merged(items: AsyncIterator[SessionEvent | Gap]) -> AsyncIterator[SessionEvent | Gap]:
    """Neighbouring deltas of one block as one event, numbered as the first."""
    from lastword.core.ports import Gap

    run: list[SessionEvent] = []
    async for item in items:
        delta = None if isinstance(item, Gap) else _delta_key(item)
        if run and (delta is None or delta != _delta_key(run[0])):
            yield _joined(run)
            run = []
        if delta is not None and not isinstance(item, Gap):
            run.append(item)
        else:
            yield item
    if run:
        yield _joined(run)


def _delta_key(event: SessionEvent) -> tuple[Any, ...] | None:
    """What deltas of one block have in common; None for what is no delta of text."""
    chunk = event.data.get("chunk")
    if not isinstance(chunk, dict) or not isinstance(chunk.get("text"), str):
        return None
    return (event.type, event.data.get("turn"), event.data.get("step"), chunk.get("type"), chunk.get("index"))


def _joined(run: list[SessionEvent]) -> SessionEvent:
    text = "".join(event.data["chunk"]["text"] for event in run)
    data = {**run[0].data, "chunk": {**run[0].data["chunk"], "text": text}}
    return run[0].model_copy(update={"data": data})


def log_json(item: SessionEvent | Gap) -> str:
    """One line of JSON."""
    from lastword.core.ports import Gap

    data = {"gap": vars(item)} if isinstance(item, Gap) else item.model_dump(mode="json", exclude_none=True)
    return json.dumps(data, ensure_ascii=False)


def log_line(item: SessionEvent | Gap) -> str:
    """One line for people: number, time, type, and what it carries."""
    from lastword.core import events
    from lastword.core.ports import Gap

    if isinstance(item, Gap):
        last = item.end_seq - 1 if item.end_seq is not None else "?"
        return (
            f"{item.first_seq:>6}  --- {item.reason}: events {item.first_seq} to {last} {item.segment or ''}".rstrip()
        )
    at = datetime.fromtimestamp((item.time or 0) / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
    kind, shown = item.type, {key: value for key, value in item.data.items() if key not in ("turn", "step")}
    carried = json.dumps(shown, ensure_ascii=False) if shown else ""
    if _delta_key(item) is not None:
        kind, carried = str(item.data["chunk"].get("type")), json.dumps(item.data["chunk"]["text"], ensure_ascii=False)
    elif kind == events.BACKEND_STATE:
        carried = ""
    elif kind == events.AGENT_STDERR:
        # Somebody looks for the reason of a failure: a line is a line.
        return "\n".join([f"{item.seq:>6}  {at}  {kind}", *(f"{'':>8}{line}" for line in shown.get("lines", []))])
    if len(carried) > _SHOWN_CHARS:
        carried = carried[:_SHOWN_CHARS] + _CUT_MARK
    return f"{item.seq if item.seq is not None else '?':>6}  {at}  {kind:<17} {carried}".rstrip()
