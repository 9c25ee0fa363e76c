"""Real Temporal servers for the tests, from the packages that ship their binaries."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from temporalio.testing import WorkflowEnvironment

from lastword.converter import data_converter


def binary(name: str) -> str:
    """Next to the interpreter first: the tests must not depend on what else the machine has."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    assert found, f"{name} is not installed; run `make setup`"
    return found


async def start_dev_server(*, more: Sequence[str] = (), **options: object) -> WorkflowEnvironment:
    return await WorkflowEnvironment.start_local(
        data_converter=data_converter,
        dev_server_existing_path=binary("temporal"),
        dev_server_extra_args=[
            "--sqlite-pragma", "journal_mode=WAL", "--sqlite-pragma", "synchronous=NORMAL", *more,
        ],
        dev_server_log_level="error",
        **options,  # type: ignore[arg-type]
    )  # fmt: skip


async def start_skipping_server() -> WorkflowEnvironment:
    return await WorkflowEnvironment.start_time_skipping(
        data_converter=data_converter, test_server_existing_path=binary("temporal-test-server")
    )
