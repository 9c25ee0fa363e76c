"""From settings to a client."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lastword.core.errors import ConfigurationError, ServerUnreachable

if TYPE_CHECKING:
    from temporalio.client import Client

    from lastword.client import DelegationClient
    from lastword.conversing import ConversationClient
    from lastword.settings import ServerAddress

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Data directory; default LASTWORD_DATA_DIR or the platform's.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout.")]

_CONNECT_GRACE = 5.0


async def connect(data_dir: Path | None) -> DelegationClient:
    """A client of the server that the settings name. Raises ServerUnreachable, ConfigurationError."""
    from lastword.client import DelegationClient
    from lastword.sessions import open_store
    from lastword.settings import load_settings, server_address

    settings = load_settings(data_dir=data_dir)
    client = await connect_to(server_address(settings))
    return DelegationClient(client, task_queue=settings.task_queue, store=open_store(settings.log_store))


async def converse(data_dir: Path | None) -> ConversationClient:
    """The same for conversations."""
    from lastword.conversing import ConversationClient

    client = await connect(data_dir)
    return ConversationClient(client.client, task_queue=client.task_queue, store=client.store)


async def connect_to(address: ServerAddress) -> Client:
    """Connect within a few seconds. Raises ServerUnreachable, ConfigurationError."""
    from temporalio.client import Client

    from lastword.converter import data_converter

    try:
        if "://" in address.target:
            raise ValueError("it is a URL")
        async with asyncio.timeout(_CONNECT_GRACE):
            return await Client.connect(**address.options, data_converter=data_converter)
    except (ValueError, TypeError) as error:
        raise ConfigurationError(
            f"The Temporal address {address.target!r} (from {address.source}) cannot be used ({error})."
            " Set TEMPORAL_ADDRESS to HOST:PORT."
        ) from None
    except (RuntimeError, TimeoutError) as error:
        if "Unauthenticated" in str(error) or "PermissionDenied" in str(error):
            raise ConfigurationError(
                f"The Temporal server at {address.target} (from {address.source}) does not accept these credentials."
                " Check TEMPORAL_API_KEY, TEMPORAL_NAMESPACE and the TLS settings."
            ) from None
        raise ServerUnreachable(
            f"No Temporal server answers at {address.target} (from {address.source})."
            " Start one with `lastword up`, or set TEMPORAL_ADDRESS."
        ) from None
