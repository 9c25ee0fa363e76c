"""From settings to a running worker: backends, session store, plugin, and the way Temporal must be held."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from temporalio.client import Client
from temporalio.worker import Worker

from lastword.activities.describe_worker import DescribeWorkerActivity
from lastword.activities.lifecycle import LogLineObserver
from lastword.activities.ownership import ServerProbe
from lastword.activities.run_child_turn import ChildTurnActivities
from lastword.backends.orphan_guard import reap_abandoned
from lastword.backends.registry import installed_backends
from lastword.converter import data_converter
from lastword.core import names, options
from lastword.core.errors import LastwordError, ServerUnreachable
from lastword.core.permissions import PermissionPolicy
from lastword.core.ports import Backend, LifecycleObserver, SessionStore
from lastword.plugin import LastwordPlugin
from lastword.process_exit import leave
from lastword.sessions import open_store
from lastword.settings import Settings, load_settings, server_address

logger = logging.getLogger("lastword.worker")

READY = "worker ready"
"""What the process says on stdout when it takes tasks."""


@asynccontextmanager
async def open_worker(
    client: Client,
    *,
    backends: Mapping[str, Backend],
    store: SessionStore,
    store_address: str = "",
    observers: Sequence[LifecycleObserver] | None = None,
    task_queue: str = names.TASK_QUEUE,
    default_model: str | None = None,
    max_children: int = 1000,
    permissions: PermissionPolicy | None = None,
    workflows: bool = True,
    activities: bool = True,
) -> AsyncIterator[Worker]:
    """A worker that takes tasks while the context is open; leaving it hands the turns under way over.

    `permissions` is the policy of tasks that bring none; without it their requests are rejected. With `workflows` or
    `activities` False it leaves that half to other workers of the queue.
    """
    probe = ServerProbe(lambda: client.service_client.check_health(timeout=timedelta(seconds=2)))
    turns = ChildTurnActivities(
        backends=backends,
        store=store,
        observers=[LogLineObserver()] if observers is None else observers,
        probe=probe,
        permissions=permissions,
    )
    describe = DescribeWorkerActivity(backends=backends, log_store=store_address, default_model=default_model)
    ours = (turns.run_child_turn, turns.settle, describe.describe_worker)
    worker = Worker(
        client,
        task_queue=task_queue,
        plugins=[LastwordPlugin(ours if activities else (), workflows=workflows)],
        max_concurrent_activities=max_children,
        max_cached_workflows=options.CACHED_WORKFLOWS,
        max_heartbeat_throttle_interval=timedelta(seconds=options.BEAT_INTERVAL),
        default_heartbeat_throttle_interval=timedelta(seconds=options.BEAT_INTERVAL),
        graceful_shutdown_timeout=timedelta(seconds=options.SHUTDOWN_GRACE),
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=options.STICKY_TIMEOUT),
    )
    async with probe.running(), worker:
        yield worker


async def run_worker(settings: Settings) -> None:
    """Run a worker until SIGTERM or SIGINT; then it hands its turns over. Raises LastwordError if it cannot start."""
    store = open_store(settings.log_store)
    backends = installed_backends(
        default_model=settings.default_model, local_model_url=settings.local_model_url, agents=settings.agents
    )
    for chatty in ("httpx", "httpx2"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    client = await _connect(settings)
    if left := await asyncio.to_thread(reap_abandoned):
        logger.warning("ended %d children that a dead worker had left running", left)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with open_worker(
        client,
        backends=backends,
        store=store,
        store_address=store.address,
        task_queue=settings.task_queue,
        default_model=settings.default_model,
        max_children=settings.max_children,
        permissions=settings.permissions,
    ):
        if settings.default_model is not None:
            # Loading an agent framework takes seconds; the first delegation should not wait for it.
            await asyncio.to_thread(backends["in-process"].missing)
        logger.info("worker %d takes tasks from the queue %r", os.getpid(), settings.task_queue)
        print(READY, flush=True)
        await stopping.wait()
        logger.info("worker %d hands its turns over", os.getpid())


async def _connect(settings: Settings) -> Client:
    address = server_address(settings)
    try:
        return await Client.connect(**address.options, data_converter=data_converter)
    except RuntimeError as error:
        raise ServerUnreachable(
            f"No Temporal server answers at {address.target} (from {address.source}). Start one with `lastword up`,"
            " or set TEMPORAL_ADDRESS."
        ) from error


def main() -> None:
    """`python -m lastword.worker`, `python worker.py`, `lastword worker`."""
    try:
        settings = load_settings()
        logging.basicConfig(
            level=settings.log_level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
        )
        asyncio.run(run_worker(settings))
    except LastwordError as error:
        print(f"error: {error}", file=sys.stderr)
        leave(3 if isinstance(error, ServerUnreachable) else 2)
    leave(0)


if __name__ == "__main__":
    main()
