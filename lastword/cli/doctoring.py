"""`doctor` and `backends`: what works here, what does not, and what to do about it."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from lastword.cli.connection import AsJson, DataDir, connect
from lastword.cli.errors import COMPLETED, NOT_COMPLETED, UNAVAILABLE
from lastword.cli.rendering import print_json
from lastword.core.errors import LastwordError
from lastword.core.worker_report import BackendReport


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)
    app.command("backends")(backends)


@dataclass
class Check:
    """One thing that works or does not. `remedy` is a whole sentence."""

    name: str
    ok: bool
    detail: str
    remedy: str | None = None


def doctor(as_json: AsJson = False, data_dir: DataDir = None) -> int:
    """Check server, worker, session log and backends; each problem comes with its remedy."""
    checks, facts, code = asyncio.run(_examine(data_dir))
    if as_json:
        shown = [{name: value for name, value in vars(check).items() if value is not None} for check in checks]
        print_json({"ok": code == COMPLETED, "checks": shown, **facts})
    else:
        for check in checks:
            print(f"{'ok     ' if check.ok else 'problem'}  {check.name:<12} {check.detail}")
            if check.remedy:
                print(f"{'':<9}{check.remedy}")
    return code


def backends(as_json: AsJson = False, data_dir: DataDir = None) -> int:
    """List the backends of the worker, what they can do, and what they lack."""

    async def ask() -> list[BackendReport]:
        client, _ = await connect(data_dir)
        return (await client.ping()).backends

    reports = asyncio.run(ask())
    if as_json:
        print_json([report.model_dump(mode="json", exclude_none=True) for report in reports])
        return COMPLETED
    for report in reports:
        able = [name for name, value in (report.capabilities or {}) if value is True] if report.capabilities else []
        print(f"{report.name:<12} {', '.join(able)}")
        for sentence in report.missing:
            print(f"{'':<13}{sentence}")
    return COMPLETED


async def _examine(data_dir: Path | None) -> tuple[list[Check], dict[str, Any], int]:
    from lastword.embedded.state import read_state
    from lastword.settings import load_settings, server_address

    checks: list[Check] = []
    settings = load_settings(data_dir=data_dir)
    state = read_state(settings.data_dir)
    facts: dict[str, Any] = {"data_dir": str(settings.data_dir)}
    if state is not None:
        facts["up"] = state.model_dump(exclude_none=True)
        checks.append(Check("up", True, f"pid {state.pid}, server {state.server_pid}, worker {state.worker_pid}"))
    else:
        checks.append(Check("up", True, "not running on this data directory"))
    address = server_address(settings)
    facts["address"] = address.target
    checks.append(await _check_store(settings.log_store))
    try:
        client, _ = await connect(data_dir)
    except LastwordError as error:
        checks.append(Check("server", False, address.target, str(error)))
        return checks, facts, UNAVAILABLE
    checks.append(Check("server", True, f"{address.target} (from {address.source})"))
    try:
        report = await client.ping()
    except LastwordError as error:
        checks.append(Check("worker", False, f"queue {client.task_queue!r}", str(error)))
        return checks, facts, UNAVAILABLE
    facts["worker"] = report.model_dump(mode="json", exclude_none=True)
    checks.append(Check("worker", True, f"pid {report.pid} on {report.host}, lastword {report.version}"))
    for backend in report.backends:
        # A backend that nobody has set up is no problem of the whole; it is told all the same.
        detail = "ready" if not backend.missing else "not ready"
        checks.append(Check(backend.name, True, detail, " ".join(backend.missing) or None))
    if not any(not backend.missing for backend in report.backends):
        checks.append(Check("backends", False, "none is ready", "See the remedies above."))
    return checks, facts, COMPLETED if all(check.ok for check in checks) else NOT_COMPLETED


async def _check_store(where: str) -> Check:
    """Write and read one small log, under a name that no session has."""
    from lastword.core.contract import LogRef
    from lastword.core.events import turn_start
    from lastword.sessions import open_store

    try:
        store = open_store(where)
        ref = LogRef(session_id="lastword-doctor", run_id=uuid.uuid4().hex)
        log = store.attempt(ref, turn=1, attempt=1, first_seq=0)
        log.append(turn_start(turn=1))
        await log.seal()
        read = [item async for item in store.read(ref)]
        await store.remove(ref)
    except LastwordError as error:
        return Check("session log", False, where, str(error))
    return Check("session log", len(read) == 1, store.address)
