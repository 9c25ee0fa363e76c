"""The real agents: how each is pointed at the fake model, and what was seen of it.

Expectations are observations of the pinned versions. Where an agent calls a cut answer a success, no client can tell;
the table in docs/children.md says so.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DEEP_AGENT = str(Path(__file__).with_name("deep_agent.py"))
WORDS = "Hello from the fake model."
CUT = "This answer is cut off in the mid"


@dataclass(frozen=True)
class Rig:
    """One agent. `tool` writes out.txt; `seen` is what its cases end with where that is not what the model meant."""

    backend: str
    tool: tuple[str, dict[str, Any]]
    agent: dict[str, Any] = field(default_factory=dict)
    """An entry of the settings file, for one that is no preset."""
    seen: dict[str, str] = field(default_factory=dict)
    resumes: bool | None = True
    """None: now and then."""
    asks: bool = True
    model: str | None = None
    starts_only_if_allowed: bool = False
    host_tool: str | None = None
    """How its model calls the tool `delegate`; None for one that takes no MCP servers."""

    @property
    def name(self) -> str:
        return self.backend.removeprefix("acp:")

    @property
    def agents(self) -> dict[str, Any]:
        return {self.name: self.agent} if self.agent else {}


SHELL = "echo written > out.txt"

RIGS = [
    Rig(
        "acp:claude",
        ("Bash", {"command": SHELL, "description": "write"}),
        host_tool="mcp__lastword__delegate",
        # It asks its model three times to go on after a cut, and tells an error of its own then.
        seen={"cut": "error", "cut-call": "completed"},
    ),
    Rig(
        "acp:codex",
        ("exec_command", {"cmd": SHELL, "sandbox_permissions": "require_escalated", "justification": "to write"}),
        host_tool="mcp__lastword/delegate",
        # It calls them all a success; that its thread has failed it tells beside.
        seen={"cut": "error", "cut-call": "error", "refusal": "error", "drop": "error"},
    ),
    Rig(
        "acp:opencode",
        ("bash", {"command": SHELL, "description": "write"}),
        host_tool="lastword_delegate",
        seen={"cut": "completed", "cut-call": "completed", "drop": "timeout"},
    ),
    Rig(
        "acp:gemini",
        ("run_shell_command", {"command": SHELL, "description": "write"}),
        host_tool="mcp_lastword_delegate",
        seen={"cut": "completed", "cut-call": "completed", "refusal": "completed", "drop": "error"},
        # It does not find a session that began in the same minute in which it is to be loaded.
        resumes=None,
    ),
    Rig(
        "acp:qwen",
        ("run_shell_command", {"command": SHELL, "is_background": False}),
        host_tool="mcp__lastword__delegate",
        seen={"cut": "completed", "cut-call": "completed", "refusal": "completed", "drop": "error"},
    ),
    Rig(
        "acp:pi",
        ("bash", {"command": SHELL}),
        model="fake/fake-model",
        seen={"cut": "completed", "cut-call": "completed", "refusal": "completed", "drop": "completed"},
        asks=False,
        starts_only_if_allowed=True,
    ),
    Rig(
        "acp:dsh",
        ("write", {"file_path": "out.txt", "content": "written\n"}),
        host_tool="mcp__lastword__delegate",
        seen={"refusal": "error"},
        asks=False,
    ),
    Rig(
        "deepseek-harness",
        ("write", {"file_path": "out.txt", "content": "written\n"}),
        seen={"refusal": "error"},
        asks=False,
    ),
    Rig(
        "claude-agent",
        ("Bash", {"command": SHELL, "description": "write"}),
        host_tool="mcp__lastword__delegate",
        seen={"cut-call": "completed"},
    ),
    Rig(
        "acp:deepagents",
        ("write_file", {"file_path": "/out.txt", "content": "written\n"}),
        agent={"command": [sys.executable, DEEP_AGENT], "env_from_worker": ["OPENAI_*"]},
        seen={"cut": "completed", "cut-call": "completed", "refusal": "completed", "drop": "error"},
        resumes=False,
        asks=False,
    ),
]


def surroundings(home: Path, url: str, path: str) -> dict[str, str]:
    """A worker's environment in which every agent talks to the fake model and to nobody else."""
    home.mkdir(parents=True, exist_ok=True)
    _write(
        home / "codex/config.toml",
        'model = "gpt-5"\nmodel_provider = "fake"\n'
        f'[model_providers.fake]\nname = "fake"\nbase_url = "{url}/v1"\nwire_api = "responses"\n'
        'env_key = "OPENAI_API_KEY"\n',
    )
    off = {"privacy": {"usageStatisticsEnabled": False}, "telemetry": {"enabled": False}}
    for name, auth in {".gemini": "gemini-api-key", ".qwen": "openai"}.items():
        _write(home / name / "settings.json", json.dumps({"security": {"auth": {"selectedType": auth}}, **off}))
    provider = {
        "baseUrl": f"{url}/v1",
        "api": "openai-completions",
        "apiKey": "dummy",
        "models": [{"id": "fake-model"}],
    }
    _write(home / ".pi/agent/models.json", json.dumps({"providers": {"fake": provider}}))
    opencode = {
        "model": "fake/fake-model",
        "autoupdate": False,
        "share": "disabled",
        "provider": {
            "fake": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "fake",
                "options": {"baseURL": f"{url}/v1", "apiKey": "dummy"},
                "models": {"fake-model": {"name": "fake-model"}},
            }
        },
    }
    return {
        "HOME": str(home),
        "PATH": path,
        "OPENAI_API_KEY": "dummy",
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_MODEL": "fake-model",
        "ANTHROPIC_API_KEY": "dummy",
        "ANTHROPIC_BASE_URL": url,
        "CLAUDE_CONFIG_DIR": str(home / "claude"),
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "IS_SANDBOX": "1",
        "CODEX_HOME": str(home / "codex"),
        "OPENCODE_CONFIG_CONTENT": json.dumps(opencode),
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_API_KEY": "dummy",
        # It starts MCP servers only in a folder that it trusts.
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "DSH_HOME": str(home / "dsh"),
        "DEEPSEEK_BASE_URL": f"{url}/v1",
        "DEEPSEEK_API_KEY": "dummy",
    }


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
