"""Which error is which exit code."""

from __future__ import annotations

from lastword.core.errors import LastwordError, ServerUnreachable, WorkerUnavailable

COMPLETED = 0
NOT_COMPLETED = 1
USAGE = 2
UNAVAILABLE = 3
INTERRUPTED = 130


def exit_code_of(error: LastwordError) -> int:
    """No server or worker is 3; everything else that is refused is the caller's to correct."""
    return UNAVAILABLE if isinstance(error, ServerUnreachable | WorkerUnavailable) else USAGE
