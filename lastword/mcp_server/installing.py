"""Registering the server with an agent: the change to its configuration, shown before it is made, and undone.

Where an agent keeps its MCP servers is from its own documentation: Claude Code, opencode and Gemini CLI in files of the
project (`.mcp.json`, `opencode.json`, `.gemini/settings.json`), Codex in the `config.toml` of `CODEX_HOME`.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from lastword.core.errors import ConfigurationError

Agent: TypeAlias = Literal["claude", "codex", "opencode", "gemini"]

NAME: Final = "lastword"
_BEGIN: Final = "# >>> lastword mcp"
_END: Final = "# <<< lastword mcp"


@dataclass(frozen=True)
class Change:
    """One file as it is and as it would be; None is no file."""

    path: Path
    before: str | None
    after: str | None

    @property
    def is_empty(self) -> bool:
        return self.before == self.after

    @property
    def diff(self) -> str:
        """For a person: a unified diff."""
        before, after = (self.before or "").splitlines(), (self.after or "").splitlines()
        return "\n".join(difflib.unified_diff(before, after, str(self.path), str(self.path), lineterm=""))

    def make(self) -> None:
        """Write the file, or take it away."""
        if self.after is None:
            self.path.unlink(missing_ok=True)
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Beside it first: a full disk must not cost an agent its configuration.
        beside = self.path.with_name(f"{self.path.name}.lastword")
        beside.write_text(self.after, encoding="utf-8")
        if self.path.exists():
            beside.chmod(self.path.stat().st_mode & 0o777)
        beside.replace(self.path)


def change_for(
    agent: Agent, command: Sequence[str], *, project: Path, environ: Mapping[str, str], undo: bool = False
) -> Change:
    """What registering the command with the agent changes, or `undo` of it. Raises ConfigurationError."""
    if agent == "codex":
        home = environ.get("CODEX_HOME")
        path = (Path(home) if home else Path.home() / ".codex") / "config.toml"
        return _in_toml(path, command, undo=undo)
    if agent == "claude":
        entry: dict[str, Any] = {"type": "stdio", "command": command[0], "args": list(command[1:])}
        return _in_json(project / ".mcp.json", "mcpServers", entry, undo=undo)
    if agent == "opencode":
        entry = {"type": "local", "command": list(command), "enabled": True}
        return _in_json(project / "opencode.json", "mcp", entry, undo=undo)
    entry = {"command": command[0], "args": list(command[1:])}
    return _in_json(project / ".gemini" / "settings.json", "mcpServers", entry, undo=undo)


def _in_json(path: Path, key: str, entry: dict[str, Any], *, undo: bool) -> Change:
    before = _read(path)
    try:
        settings = json.loads(before) if before is not None and before.strip() else {}
        servers = {**settings.get(key, {})}
    except (ValueError, AttributeError, TypeError):
        raise ConfigurationError(
            f"{str(path)!r} is not plain JSON with an object {key!r}; put this under {key!r} by hand:"
            f" {json.dumps({NAME: entry})}"
        ) from None
    if undo:
        if NAME not in servers:
            return Change(path, before, before)
        del servers[NAME]
    else:
        servers[NAME] = entry
    settings = {**settings, key: servers}
    if undo and not servers:
        del settings[key]
    if undo and not settings:
        return Change(path, before, None)
    return Change(path, before, json.dumps(settings, indent=2, ensure_ascii=False) + "\n")


def _in_toml(path: Path, command: Sequence[str], *, undo: bool) -> Change:
    """A marked block at the end: the rest of the file, its comments too, stays as it is."""
    before = _read(path)
    rest = _without_block(before or "")
    if undo:
        after = rest if before is not None and rest.strip() else None
        return Change(path, before, after if _BEGIN in (before or "") else before)
    try:
        taken = tomllib.loads(rest).get("mcp_servers", {})
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{str(path)!r} is not TOML ({error}); correct it first.") from None
    if NAME in taken:
        raise ConfigurationError(f"{str(path)!r} has a server {NAME!r} of its own; take it out, or leave it be.")
    entry = [f"command = {json.dumps(command[0])}", f"args = {json.dumps(command[1:])}"]
    block = "\n".join([_BEGIN, f"[mcp_servers.{NAME}]", *entry, _END])
    return Change(path, before, f"{rest.rstrip()}\n\n{block}\n".lstrip("\n"))


def _without_block(text: str) -> str:
    begin, end = text.find(_BEGIN), text.find(_END)
    if begin < 0 or end < begin:
        return text
    return text[:begin].rstrip("\n") + "\n" + text[end + len(_END) :].lstrip("\n")


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{str(path)!r} cannot be read ({error}).") from None


def here() -> Path:
    """The project: where the command is run."""
    return Path(os.getcwd())
