"""Waiting in a workflow that may be cancelled meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from temporalio import workflow


async def until(condition: Callable[[], bool], on_cancel: Callable[[], object] = lambda: None) -> None:
    """Wait for the condition. A cancel of the workflow is told to `on_cancel`, and the waiting goes on."""
    while True:
        try:
            await workflow.wait_condition(condition)
            return
        except asyncio.CancelledError:
            on_cancel()
