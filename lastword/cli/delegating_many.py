"""`lastword delegate --many FILE`: a file of tasks, a file of results, and what goes on between them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lastword.cli.asking import request_of
from lastword.cli.connection import connect
from lastword.cli.errors import COMPLETED, INTERRUPTED, NOT_COMPLETED
from lastword.cli.rendering import note, result_json
from lastword.core.errors import RequestInvalid

if TYPE_CHECKING:
    from lastword.many import Asked, Settled

_FEW = 20
"""Up to so many, each one's ending is a line; of more, only the failures are."""
_HEAD = 60


def tasks_of(path: Path, common: dict[str, Any]) -> list[Asked]:
    """The file's lines as requests, each over the options of the command line. Raises RequestInvalid with the line."""
    from lastword.many import Asked

    try:
        raw = path.read_bytes()
    except OSError as error:
        raise RequestInvalid(f"--many {path}: {error.strerror}; give a file that can be read.") from None
    batch = hashlib.sha256(raw).hexdigest()[:10]
    asked: list[Asked] = []
    for number, line in enumerate(raw.decode(errors="replace").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
            if isinstance(fields, str):
                fields = {"prompt": fields}
            if not isinstance(fields, dict):
                raise ValueError("it is neither an object nor a string")
            id = str(fields.pop("id", f"many-{batch}-{len(asked)}"))
            asked.append(Asked(id, request_of({**common, **fields})))
        except (ValueError, RequestInvalid) as error:
            raise RequestInvalid(f"--many {path}, line {number}: {error}") from None
    ids = [one.id for one in asked]
    if repeated := next((id for id in ids if ids.count(id) > 1), None):
        raise RequestInvalid(f"--many {path} has the id {repeated!r} twice; give each line its own.")
    if not asked:
        raise RequestInvalid(f"--many {path} has no task; write one JSON object with a prompt on each line.")
    return asked


async def run_file(
    path: Path, common: dict[str, Any], *, concurrency: int, out: Path | None, data_dir: Path | None
) -> int:
    """Run the file's tasks. Stopped by Ctrl-C, the children go on, and the same command goes on with them."""
    from lastword.many import delegate_many

    asked = tasks_of(path, common)
    results = _ResultFile(out or path.with_suffix(".results.jsonl"))
    known = results.known({one.id for one in asked})
    todo = [one for one in asked if one.id not in known]
    progress = _Progress(len(asked), len(known))
    client = await connect(data_dir)
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)

    async def go() -> None:
        stream = delegate_many(client, todo, concurrency=concurrency, on_start=lambda index: progress.started())
        async for settled in stream:
            line = _line(settled)
            known[settled.id] = line
            results.add(line)
            progress.settled(settled)

    running, waiting = asyncio.create_task(go()), asyncio.create_task(stopped.wait())
    await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    progress.close()
    if not running.done():
        running.cancel()
        await asyncio.wait([running])
        note(f"let go: {len(known)} of {len(asked)} are in {results.path}; the others go on. The same command takes"
             " them up again")  # fmt: skip
        return INTERRUPTED
    running.result()
    in_order = [known[one.id] for one in asked]
    results.replace(in_order)
    for line in in_order:
        print(json.dumps(line, ensure_ascii=False))
    sys.stdout.flush()
    failed = sum(bool(line["is_error"]) for line in in_order)
    note(f"{len(asked)} settled, {failed} not completed; {results.path}")
    return NOT_COMPLETED if failed else COMPLETED


def _line(settled: Settled) -> dict[str, Any]:
    if settled.result is not None:
        return result_json(settled.result)
    return {"id": settled.id, "is_error": True, "error": str(settled.error)}


class _ResultFile:
    """One line a settled task: appended as they settle, put in order when all have."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def known(self, ids: set[str]) -> dict[str, dict[str, Any]]:
        """What an earlier run of the same tasks has written; a last line that was cut is none."""
        found: dict[str, dict[str, Any]] = {}
        if self.path.exists():
            for line in self.path.read_text(errors="replace").splitlines():
                try:
                    value = json.loads(line)
                except ValueError:
                    continue
                if isinstance(value, dict) and value.get("id") in ids:
                    found[value["id"]] = value
        return found

    def add(self, line: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def replace(self, lines: list[dict[str, Any]]) -> None:
        beside = self.path.with_name(self.path.name + ".new")
        beside.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
        os.replace(beside, self.path)


class _Progress:
    """On stderr: one line that is kept current on a terminal, a line now and then elsewhere."""

    def __init__(self, total: int, known: int) -> None:
        self._total = total
        self._settled = known
        self._running = 0
        self._failed = 0
        self._live = sys.stderr.isatty()
        self._every = max(total // 10, 1)
        if known:
            note(f"{known} of {total} settled before")

    def started(self) -> None:
        self._running += 1
        self._show()

    def settled(self, one: Settled) -> None:
        from lastword.core.events import text_of

        self._running -= 1
        self._settled += 1
        self._failed += not one.completed
        if self._total <= _FEW or not one.completed:
            reason = one.result.result.stop_reason if one.result else "rejected"
            text = text_of(one.result.result.output) if one.result else str(one.error)
            self._clear()
            note(f"{one.id}: {reason}: {' '.join(text.split())[:_HEAD]}", style="dim" if one.completed else "yellow")
        if self._live or self._settled % self._every == 0:
            self._show()

    def close(self) -> None:
        self._clear()

    def _show(self) -> None:
        told = f"{self._settled}/{self._total} settled, {self._running} running, {self._failed} not completed"
        if self._live:
            print(f"\r\x1b[2K{told}", end="", file=sys.stderr, flush=True)
        elif self._settled and self._settled % self._every == 0 and self._total > _FEW:
            note(told)

    def _clear(self) -> None:
        if self._live:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
