"""Claude Code as the parent, by MCP: registers the server with the project of this directory, and asks once.

Run it beside a `lastword up`, in a project: `python -m examples.claude_code_by_mcp "Delegate a short story"`. It shows
what it changes in `.mcp.json` and asks before; `lastword mcp uninstall claude` undoes it. CLAUDE names the program.
"""

import os
import shlex
import subprocess
import sys


def main(prompt: str) -> int:
    subprocess.run([sys.executable, "-m", "lastword.cli", "mcp", "install", "claude"], check=True)
    claude = shlex.split(os.environ.get("CLAUDE", "claude"))
    words = ["-p", prompt, "--mcp-config", ".mcp.json", "--allowedTools", "mcp__lastword__delegate"]
    return subprocess.run([*claude, *words], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
