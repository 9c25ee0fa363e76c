"""What the backends of agent programs have in common: what such a program is not asked for, and its version."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version

from lastword.core.contract import ChildTask


def unmet(backend: str, task: ChildTask | None) -> list[str]:
    """What of the task no agent program here can do, each as one sentence with the remedy."""
    found = []
    if task is not None and task.cwd is not None and not os.path.isdir(task.cwd):
        found.append(f"The worker has no directory {task.cwd!r}; choose another --cwd.")
    if task is not None and task.options:
        found.append(f"The backend {backend!r} has no options; leave --option out.")
    return found


def distribution_version(name: str) -> str | None:
    """Of the installed Python distribution, None if it is not there."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
