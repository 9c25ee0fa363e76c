"""`doctor` and `backends`: what works here, what does not, and what to do about it."""

from __future__ import annotations

import asyncio
import platform
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from lastword.cli.connection import AsJson, DataDir, connect
from lastword.cli.errors import COMPLETED, NOT_COMPLETED, UNAVAILABLE, exit_code_of, told_as_json
from lastword.cli.rendering import print_json
from lastword.core.errors import LastwordError

if TYPE_CHECKING:
    from lastword.core.worker_report import BackendReport, WorkerReport
    from lastword.settings import Settings


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)
    app.command("backends")(backends)


@dataclass
class Check:
    """One thing that works or does not. `remedy` is a whole sentence; beside `ok` it says what could be had."""

    name: str
    ok: bool
    detail: str
    remedy: str | None = None

    @property
    def verdict(self) -> str:
        return "problem" if not self.ok else "note" if self.remedy else "ok"


@dataclass
class Examination:
    """What was found."""

    checks: list[Check] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    unavailable: bool = False
    """No server or no worker."""

    def found(self, name: str, detail: str, *, ok: bool = True, remedy: str | None = None) -> None:
        self.checks.append(Check(name, ok, detail, remedy))

    @property
    def code(self) -> int:
        if self.unavailable:
            return UNAVAILABLE
        return COMPLETED if all(check.ok for check in self.checks) else NOT_COMPLETED


def doctor(as_json: AsJson = False, data_dir: DataDir = None) -> int:
    """Check server, worker, session log and backends; each problem comes with its remedy."""
    found = asyncio.run(examine(data_dir))
    if as_json:
        shown = [{name: value for name, value in vars(check).items() if value is not None} for check in found.checks]
        print_json({"ok": found.code == COMPLETED, "checks": shown, **found.facts})
    else:
        for check in found.checks:
            print(f"{check.verdict:<9}{check.name:<13} {check.detail}")
            if check.remedy:
                print(f"{'':<9}{check.remedy}")
    return found.code


def backends(as_json: AsJson = False, data_dir: DataDir = None) -> int:
    """List the backends of the worker, what they can do, and what they lack."""

    async def ask() -> list[BackendReport]:
        return (await (await connect(data_dir)).ping()).backends

    with told_as_json(as_json):
        reports = asyncio.run(ask())
    if as_json:
        print_json([report.model_dump(mode="json", exclude_none=True) for report in reports])
        return COMPLETED
    for report in reports:
        able = [name for name, value in report.capabilities or () if value is True]
        print(f"{report.name:<14} {'ready' if not report.missing else 'not ready'} {report.version or ''}".rstrip())
        if able:
            print(f"{'':<15}can: {', '.join(able)}")
        for sentence in report.missing:
            print(f"{'':<15}{sentence}")
    return COMPLETED


async def examine(data_dir: Path | None) -> Examination:
    """Look at everything that can be looked at; nothing found is raised."""
    from lastword.settings import load_settings

    found = Examination()
    try:
        settings = load_settings(data_dir=data_dir)
    except LastwordError as error:
        found.found("settings", "cannot be used", ok=False, remedy=str(error))
        return found
    _look_at_up(found, settings)
    await _look_at_log(found, settings)
    await _look_at_server(found, settings)
    return found


def _look_at_up(found: Examination, settings: Settings) -> None:
    from lastword.embedded.state import read_state

    found.facts["data_dir"] = str(settings.data_dir)
    state = read_state(settings.data_dir)
    if state is None:
        found.found("up", f"not running on {settings.data_dir}")
        return
    found.facts["up"] = state.model_dump(exclude_none=True)
    worker = f"worker pid {state.worker_pid}" if state.worker_pid else "worker not started yet"
    found.found("up", f"pid {state.pid}, server pid {state.server_pid} at {state.address}, {worker}")


async def _look_at_log(found: Examination, settings: Settings) -> None:
    """Write and read one small log, under a name that no session has."""
    from lastword.core.contract import LogRef
    from lastword.core.events import turn_start
    from lastword.sessions import open_store

    try:
        store = open_store(settings.log_store)
        ref = LogRef(session_id="lastword-doctor", run_id=uuid.uuid4().hex)
        log = store.attempt(ref, turn=1, attempt=1, first_seq=0)
        log.append(turn_start(turn=1))
        await log.seal()
        read = [item async for item in store.read(ref)]
        await store.remove(ref)
    except LastwordError as error:
        found.found("session log", "cannot be used", ok=False, remedy=str(error))
        return
    found.facts["log_store"] = store.address
    if len(read) == 1:
        found.found("session log", store.address)
    else:
        remedy = "What is written there must be readable at once; choose another store with LASTWORD_LOG_STORE."
        found.found("session log", f"{store.address} lost what was written", ok=False, remedy=remedy)


async def _look_at_server(found: Examination, settings: Settings) -> None:
    from lastword.client import DelegationClient
    from lastword.connecting import connect_to
    from lastword.settings import server_address

    try:
        address = server_address(settings)
        found.facts["address"] = address.target
        client = DelegationClient(await connect_to(address), task_queue=settings.task_queue)
    except LastwordError as error:
        found.unavailable = exit_code_of(error) == UNAVAILABLE
        found.found("server", "cannot be used", ok=False, remedy=str(error))
        return
    found.found("server", f"{address.target} (from {address.source})")
    try:
        report = await client.ping()
    except LastwordError as error:
        found.unavailable = exit_code_of(error) == UNAVAILABLE
        found.found("worker", f"none on the queue {settings.task_queue!r}", ok=False, remedy=str(error))
        return
    found.facts["worker"] = report.model_dump(mode="json", exclude_none=True)
    found.found("worker", f"pid {report.pid} on {report.host}, lastword {report.version}")
    _compare_logs(found, report)
    for backend in report.backends:
        # A backend that nobody has set up is no problem of the whole; it is told all the same.
        state = "not ready" if backend.missing else "ready"
        detail = f"{state}, version {backend.version}" if backend.version else state
        found.found(backend.name, detail, remedy=" ".join(backend.missing) or None)
    if all(backend.missing for backend in report.backends):
        found.found("backends", "none is ready", ok=False, remedy="See the remedies above.")


def _compare_logs(found: Examination, report: WorkerReport) -> None:
    """A terminal that reads another store than the worker writes sees only what heartbeats carry."""
    here = found.facts.get("log_store")
    comparable = "://" in report.log_store or report.host == platform.node()
    if here and report.log_store and comparable and here != report.log_store:
        remedy = f"Set LASTWORD_LOG_STORE={report.log_store} here, or use the worker's data directory."
        found.found("session log", f"the worker writes to {report.log_store}", ok=False, remedy=remedy)
