"""From settings to a client of the server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from temporalio.client import Client

from lastword.client import DelegationClient
from lastword.converter import data_converter
from lastword.core.errors import ConfigurationError, ServerUnreachable
from lastword.sessions import open_store
from lastword.settings import ServerAddress, load_settings, server_address

_CONNECT_GRACE: Final = 5.0


async def connect_client(data_dir: Path | None = None) -> DelegationClient:
    """A client of the server that the settings name. Raises ServerUnreachable, ConfigurationError."""
    settings = load_settings(data_dir=data_dir)
    client = await connect_to(server_address(settings))
    return DelegationClient(client, task_queue=settings.task_queue, store=open_store(settings.log_store))


async def connect_to(address: ServerAddress) -> Client:
    """Connect within a few seconds. Raises ServerUnreachable, ConfigurationError."""
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
