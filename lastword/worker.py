"""From settings to a running worker: backends, session store, plugin, and the way Temporal must be held."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from temporalio.client import Client
from temporalio.worker import Worker

from lastword.activities.describe_worker import DescribeWorkerActivity
from lastword.activities.lifecycle import LogLineObserver
from lastword.activities.ownership import ServerProbe
from lastword.activities.run_child_turn import ChildTurnActivities
from lastword.core import names, options
from lastword.core.ports import Backend, LifecycleObserver, SessionStore
from lastword.plugin import LastwordPlugin

logger = logging.getLogger("lastword.worker")

MAX_CHILDREN = 1000
"""Children that one worker runs at once. The rest waits in the queue, where another worker may take it."""


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
    max_children: int = MAX_CHILDREN,
) -> AsyncIterator[Worker]:
    """A worker that takes tasks while the context is open; leaving it hands the turns under way over."""
    probe = ServerProbe(lambda: client.service_client.check_health(timeout=timedelta(seconds=2)))
    turns = ChildTurnActivities(
        backends=backends,
        store=store,
        observers=[LogLineObserver()] if observers is None else observers,
        probe=probe,
    )
    describe = DescribeWorkerActivity(backends=backends, log_store=store_address, default_model=default_model)
    worker = Worker(
        client,
        task_queue=task_queue,
        plugins=[LastwordPlugin([turns.run_child_turn, turns.settle, describe.describe_worker])],
        max_concurrent_activities=max_children,
        max_heartbeat_throttle_interval=timedelta(seconds=options.BEAT_INTERVAL),
        default_heartbeat_throttle_interval=timedelta(seconds=options.BEAT_INTERVAL),
        graceful_shutdown_timeout=timedelta(seconds=options.SHUTDOWN_GRACE),
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=options.STICKY_TIMEOUT),
    )
    async with probe.running(), worker:
        yield worker
