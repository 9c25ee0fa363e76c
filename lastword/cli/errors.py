"""Which error is which exit code, and how an error is told."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from lastword.cli.rendering import print_json
from lastword.core.errors import LastwordError, ServerUnreachable, WorkerUnavailable

COMPLETED = 0
NOT_COMPLETED = 1
USAGE = 2
UNAVAILABLE = 3
INTERRUPTED = 130


def exit_code_of(error: LastwordError) -> int:
    """No server or worker is 3; everything else that is refused is the caller's to correct."""
    return UNAVAILABLE if isinstance(error, ServerUnreachable | WorkerUnavailable) else USAGE


def tell(error: LastwordError) -> int:
    """Say it on stderr; the exit code."""
    print(f"error: {error}", file=sys.stderr)
    return exit_code_of(error)


@contextmanager
def told_as_json(as_json: bool, id: str | None = None) -> Iterator[None]:
    """With `--json` an error is an object on stdout too; it is raised on in any case."""
    try:
        yield
    except LastwordError as error:
        if as_json:
            print_json({**({"id": id} if id is not None else {}), "is_error": True, "error": str(error)})
        raise
