"""Registering the MCP server with an agent: shown, made, made again, undone."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from lastword.core.errors import ConfigurationError
from lastword.mcp_server.installing import Change, change_for

COMMAND = ["/opt/lastword", "mcp"]
FILES: dict[str, tuple[str, list[str]]] = {
    "claude": (".mcp.json", ["mcpServers", "lastword"]),
    "opencode": ("opencode.json", ["mcp", "lastword"]),
    "gemini": (".gemini/settings.json", ["mcpServers", "lastword"]),
    "codex": ("codex/config.toml", ["mcp_servers", "lastword"]),
}


def change(agent: Any, folder: Path, *, undo: bool = False) -> Change:
    return change_for(agent, COMMAND, project=folder, environ={"CODEX_HOME": str(folder / "codex")}, undo=undo)


def read(path: Path) -> Any:
    text = path.read_text()
    return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)


@pytest.mark.parametrize("agent", sorted(FILES))
def test_a_server_is_registered_once_and_taken_out_again(tmp_path: Path, agent: str) -> None:
    file, keys = FILES[agent]
    made = change(agent, tmp_path)
    assert "+" in made.diff
    assert str(made.path) in made.diff
    assert not made.path.exists()
    made.make()
    entry: Any = read(tmp_path / file)
    for key in keys:
        entry = entry[key]
    assert [
        *([entry["command"]] if isinstance(entry["command"], str) else entry["command"]),
        *entry.get("args", []),
    ] == COMMAND
    assert change(agent, tmp_path).is_empty
    change(agent, tmp_path, undo=True).make()
    assert not (tmp_path / file).exists()
    assert change(agent, tmp_path, undo=True).is_empty


@pytest.mark.parametrize("agent", sorted(FILES))
def test_what_else_is_in_the_file_stays(tmp_path: Path, agent: str) -> None:
    file, _ = FILES[agent]
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    own = '# mine\nmodel = "gpt"\n\n[mcp_servers.files]\ncommand = "cat"\n'
    if agent != "codex":
        own = json.dumps({"model": "gpt", FILES[agent][1][0]: {"files": {"command": "cat"}}}, indent=2) + "\n"
    path.write_text(own)
    path.chmod(0o600)
    change(agent, tmp_path).make()
    both = read(path)
    assert sorted(both[FILES[agent][1][0]]) == ["files", "lastword"]
    assert both["model"] == "gpt"
    assert path.stat().st_mode & 0o777 == 0o600
    change(agent, tmp_path, undo=True).make()
    assert path.read_text() == own


@pytest.mark.parametrize(
    ("agent", "text", "why"),
    [
        ("claude", "{ // a comment\n}", "is not plain JSON"),
        ("opencode", '{"mcp": []}', "is not plain JSON with an object 'mcp'"),
        ("codex", "= broken", "is not TOML"),
        ("codex", "[mcp_servers.lastword]\n", "has a server 'lastword' of its own"),
    ],
)
def test_a_file_that_cannot_be_changed_safely_is_left_alone(tmp_path: Path, agent: str, text: str, why: str) -> None:
    path = tmp_path / FILES[agent][0]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=why):
        change(agent, tmp_path)
    assert path.read_text() == text
