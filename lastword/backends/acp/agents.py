"""Agents that speak the Agent Client Protocol: how each is started, and what has to be known about it.

One table. What differs between agents is data here; the code of the backend treats them alike. The observations are of
the versions that `docs/children.md` names.
"""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict, Field

_PROVIDER_KEYS: Final = [
    *("ANTHROPIC_*", "OPENAI_*", "GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY", "DEEPSEEK_*", "OPENROUTER_API_KEY"),
]


class AcpAgent(BaseModel):
    """One agent. A settings file may change any field of a preset, or define an agent of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: list[str] = Field(min_length=1)
    """Program and arguments; the program is looked for on the worker's PATH."""
    env: dict[str, str] = {}
    """Set for the agent, on top of the allow-listed environment."""
    env_from_worker: list[str] = []
    """Names of variables it takes from the worker's environment, its model's key among them. `NAME*` is all that begin
    so."""
    mode: str | None = None
    """The session mode to set: the one in which a person, here the permission policy, is asked."""
    asks: bool = True
    """It asks for permissions. One that does not does what its model says, so it starts only where that is allowed."""
    unidentified_notices: bool = False
    """Message chunks without a `messageId` are the agent's own words, not its model's."""
    notices: list[str] = []
    """Patterns of what else is the agent's own: a message that begins so, or a chunk without `messageId` that is so."""
    retries: list[str] = []
    """Patterns of notices by which the agent tells that it asks its model again: what it said before is an attempt."""
    host_tool: str = ""
    """How it titles a call of a tool of the host's, by which a child delegates and reports, when it asks for a
    permission. What the request itself lets the child do is not asked for again."""
    handshake_timeout: float = Field(default=60.0, gt=0, le=600)
    """Seconds for each answer before the prompt."""
    version: list[str] = []
    """Arguments that make the program print its version; one that comes from npm needs none."""
    install: str = ""
    """How to get it."""


PRESETS: Final[dict[str, AcpAgent]] = {
    "claude": AcpAgent(
        command=["claude-agent-acp"],
        env={"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
        env_from_worker=["ANTHROPIC_*", "CLAUDE_*", "IS_SANDBOX"],
        # It starts in `auto`, where a model approves.
        mode="default",
        unidentified_notices=True,
        notices=[r"API Error", r"Failed to authenticate\. API Error"],
        host_tool="mcp__lastword__{tool}",
        install="npm install -g @agentclientprotocol/claude-agent-acp (Node 22 or newer)",
    ),
    "codex": AcpAgent(
        command=["codex-acp"],
        env_from_worker=["OPENAI_*", "CODEX_*"],
        mode="read-only",
        host_tool="mcp.lastword.{tool}",
        unidentified_notices=True,
        install="npm install -g @agentclientprotocol/codex-acp",
    ),
    "opencode": AcpAgent(
        command=["opencode", "acp"],
        # Its own default is to ask for nothing.
        env={"OPENCODE_PERMISSION": '{"edit":"ask","bash":"ask","webfetch":"ask","external_directory":"ask"}'},
        env_from_worker=["OPENCODE_*", *_PROVIDER_KEYS],
        install="npm install -g opencode-ai",
    ),
    "gemini": AcpAgent(
        command=["gemini", "--acp"],
        env_from_worker=["GEMINI_*", "GOOGLE_*"],
        mode="default",
        host_tool="{tool} (lastword MCP Server)",
        install="npm install -g @google/gemini-cli",
    ),
    "qwen": AcpAgent(
        command=["qwen", "--acp"],
        env_from_worker=["QWEN_*", "OPENAI_*", "DASHSCOPE_API_KEY"],
        mode="default",
        host_tool="{tool} (lastword MCP Server)",
        install="npm install -g @qwen-code/qwen-code (Node 22 or newer)",
    ),
    "pi": AcpAgent(
        command=["pi-acp"],
        env_from_worker=["PI_*", *_PROVIDER_KEYS],
        asks=False,
        notices=[r"pi v\d[^\n]*\n.*", r"Retry finished, resuming\."],
        retries=[r"Retrying \(attempt \d+/\d+, waiting \S+\)\.\.\."],
        install="npm install -g pi-acp @earendil-works/pi-coding-agent (Node 22 or newer)",
    ),
    "dsh": AcpAgent(
        command=["dsh", "--profile", "acp"],
        version=["--version"],
        env_from_worker=["DSH_*", "DEEPSEEK_*"],
        install="pip install --pre deepseek-harness-sdk deepseek-harness-runtime-bin, and set DSH_HOME",
    ),
}
