"""What a worker says of itself, to the ping of a doctor."""

from __future__ import annotations

from pydantic import BaseModel

from lastword.core.contract import Capabilities


class BackendReport(BaseModel):
    """One backend: what it can do, and what is missing to use it, each with the remedy."""

    name: str
    capabilities: Capabilities | None = None
    version: str | None = None
    """Of the program that runs its children, where there is one and it tells."""
    missing: list[str] = []


class WorkerReport(BaseModel):
    """A worker and its backends."""

    version: str
    pid: int
    host: str
    log_store: str
    default_model: str | None = None
    backends: list[BackendReport]
