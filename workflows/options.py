"""What a delegation asks of Temporal, made of the numbers in `core/options.py`."""

from __future__ import annotations

from datetime import timedelta

from temporalio.common import RetryPolicy

from lastword.core import options

HEARTBEAT_TIMEOUT = timedelta(seconds=options.HEARTBEAT_TIMEOUT)

RUN_MARGIN = timedelta(seconds=options.CANCEL_GRACE + options.DISPOSE_GRACE + 10)
"""The server's own wall clock comes this much after the activity's, which keeps the partial: it is the net below it."""

UNBOUNDED = timedelta(days=365)
"""Temporal wants one of its timeouts set; this is none."""

ATTEMPT_RETRY = RetryPolicy(maximum_attempts=1)
"""The workflow starts the attempts. Server-side retries lose the checkpoint when a cancel arrives between two."""

SETTLE_RETRY = RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=10))
"""Settling is idempotent and must happen: it is tried until it succeeds."""

SETTLE_TIMEOUT = timedelta(minutes=5)
"""One try: reading a long log back takes seconds, not minutes."""
