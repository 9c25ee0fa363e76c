"""The one way out of a process that used Temporal's SDK."""

from __future__ import annotations

import gc
import logging
import os
import sys
from contextlib import suppress
from typing import NoReturn


def leave(code: int) -> NoReturn:
    """End the process now, with everything flushed.

    The interpreter's own exit tears the SDK's threads down in an order that now and then aborts it (exit code 134).
    The caller has closed what it opened; clients are dropped here.
    """
    gc.collect()
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)
