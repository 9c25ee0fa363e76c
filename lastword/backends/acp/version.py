"""Which version of an agent is installed, without a session with it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lastword.backends.acp.agents import AcpAgent
from lastword.backends.child_process import child_environment

_PATIENCE: Final = 5.0
_VERSION: Final = re.compile(r"\d+\.\d+[\w.+-]*")


def npm_version(path: str) -> str | None:
    """Of the npm package that the program belongs to; most agents come so, and starting one takes seconds."""
    for folder in Path(path).resolve().parents:
        try:
            facts = json.loads((folder / "package.json").read_text())
        except (OSError, ValueError):
            continue
        if isinstance(facts, dict) and isinstance(facts.get("version"), str):
            return str(facts["version"])
    return None


def told_version(command: Sequence[str], agent: AcpAgent) -> str | None:
    """What the program itself prints, if it does so soon."""
    try:
        done = subprocess.run(
            command,
            env=child_environment(agent.env, agent.env_from_worker),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            text=True,
            errors="replace",
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(done.stdout[:1000])
    return found.group() if found else None
