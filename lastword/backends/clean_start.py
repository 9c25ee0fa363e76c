"""Starts a program for an SDK that would hand it the worker's whole environment.

`launcher` writes a small executable to give to the SDK in the program's place. It takes the environment that the child
may have from one variable, leaves the worker's session, and becomes the program. Run as a script it is what that
executable runs, with the standard library alone.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "LASTWORD_CLEAN_START"


def launcher(folder: Path) -> Path:
    """An executable in the folder that starts what `clean_start` describes."""
    path = folder / "start"
    command = shlex.join([sys.executable, "-I", "-S", __file__])
    path.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    path.chmod(0o700)
    return path


def clean_start(program: str, environment: Mapping[str, str], keep: tuple[str, ...] = ()) -> dict[str, str]:
    """What the SDK has to add to the environment: the program, its environment, and prefixes of what the SDK adds."""
    return {VARIABLE: json.dumps({"program": program, "environment": dict(environment), "keep": keep})}


def main() -> None:
    start = json.loads(os.environ[VARIABLE])
    kept = {name: value for name, value in os.environ.items() if name.startswith(tuple(start["keep"]))}
    os.setsid()
    os.execve(start["program"], [start["program"], *sys.argv[1:]], {**kept, **start["environment"]})


if __name__ == "__main__":
    main()
