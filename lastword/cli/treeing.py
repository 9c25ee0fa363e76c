"""`tree`: who runs under whom."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lastword.cli.connection import AsJson, DataDir, connect
from lastword.cli.errors import COMPLETED, told_as_json
from lastword.cli.rendering import note, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lastword.trees import TreeRow


def register(app: typer.Typer) -> None:
    app.command("tree")(tree)


def tree(
    id: Annotated[str | None, typer.Argument(help="A root; all that runs without.", metavar="[ID]")] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> int:
    """Show a delegation and its descendants: state, elapsed time, tokens, last line of text."""

    async def go() -> int:
        from lastword.trees import tree as rows_of

        rows = await rows_of(await connect(data_dir), id)
        if as_json:
            print_json([_json(row) for row in rows])
        elif rows:
            _print(rows)
        else:
            note("nothing runs")
        return COMPLETED

    with told_as_json(as_json, id):
        return asyncio.run(go())


def _json(row: TreeRow) -> dict[str, Any]:
    values = {**vars(row), "started": row.started.isoformat(), "elapsed": round(row.elapsed, 1), "depth": row.depth}
    values["closed"] = row.closed.isoformat() if row.closed else None
    return {name: value for name, value in values.items() if value is not None}


def _print(rows: Sequence[TreeRow]) -> None:
    """One line a node, indented by its depth below the first."""
    top = min(row.depth for row in rows)
    for row in rows:
        told = [
            f"{'  ' * (row.depth - top)}{row.id if row.depth == top else '/' + row.id.rpartition('/')[2]}",
            (row.stop_reason or row.state) if row.state == "closed" else row.state,
            f"{row.elapsed:.1f} s",
            *([f"{row.tokens} tokens"] if row.tokens is not None else []),
            *([row.label] if row.label else []),
            *([f"| {row.last_line}"] if row.last_line else []),
        ]
        print("  ".join(told))
    sys.stdout.flush()
