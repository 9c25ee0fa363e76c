"""From settings to a client."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lastword.client import DelegationClient
    from lastword.conversing import ConversationClient

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Data directory; default LASTWORD_DATA_DIR or the platform's.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object to stdout.")]


async def connect(data_dir: Path | None) -> DelegationClient:
    """A client of the server that the settings name. Raises ServerUnreachable, ConfigurationError."""
    from lastword.connecting import connect_client

    return await connect_client(data_dir)


async def converse(data_dir: Path | None) -> ConversationClient:
    """The same for conversations."""
    from lastword.conversing import ConversationClient

    client = await connect(data_dir)
    return ConversationClient(client.client, task_queue=client.task_queue, store=client.store)
