"""From settings to a client."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lastword.core.errors import ServerUnreachable

if TYPE_CHECKING:
    from lastword.client import DelegationClient
    from lastword.settings import Settings

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Data directory; default LASTWORD_DATA_DIR or the platform's.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout.")]

_CONNECT_GRACE = 5.0


async def connect(data_dir: Path | None) -> tuple[DelegationClient, Settings]:
    """A client of the server that the settings name. Raises ServerUnreachable, ConfigurationError."""
    from temporalio.client import Client

    from lastword.client import DelegationClient
    from lastword.converter import data_converter
    from lastword.sessions import open_store
    from lastword.settings import load_settings, server_address

    settings = load_settings(data_dir=data_dir)
    address = server_address(settings)
    try:
        async with asyncio.timeout(_CONNECT_GRACE):
            client = await Client.connect(**address.options, data_converter=data_converter)
    except (RuntimeError, TimeoutError):
        raise ServerUnreachable(
            f"No Temporal server answers at {address.target} (from {address.source})."
            " Start one with `lastword up`, or set TEMPORAL_ADDRESS."
        ) from None
    store = open_store(settings.log_store)
    return DelegationClient(client, task_queue=settings.task_queue, store=store), settings
