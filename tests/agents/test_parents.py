"""Real MCP clients as parents: the inspector, fastmcp, Claude Code, and agents over ACP, with our server as it is."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import fastmcp
import pytest
from fastmcp.client.transports import StdioTransport

from lastword.backends.claude_agent import _program
from tests.agents.conftest import CACHE, Stage
from tests.agents.rigs import RIGS, Rig
from tests.integration.test_cli import Terminal
from tests.integration.test_mcp_server import TOKENS, http_server

pytestmark = pytest.mark.timeout(180)

WORDS = "three plain words"
MCP = ["-m", "lastword.cli", "mcp"]


@pytest.fixture
async def terminal(stage: Stage) -> AsyncIterator[Terminal]:
    """A worker, and the environment of a face beside it."""
    terminal = Terminal(stage.house.env.client.service_client.config.target_host, stage.house.data_dir)
    settings = stage.house.data_dir / "settings.toml"
    settings.write_text('[mcp]\nbackends = ["scripted"]\n')
    terminal.env["LASTWORD_SETTINGS"] = str(settings)
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "lastword.worker", env=terminal.env, stdout=asyncio.subprocess.PIPE
    )
    assert worker.stdout is not None
    async with asyncio.timeout(60):
        assert (await worker.stdout.readline()).decode().strip() == "worker ready"
    yield terminal
    worker.send_signal(signal.SIGTERM)
    async with asyncio.timeout(30):
        await worker.wait()


def face(terminal: Terminal) -> dict[str, str]:
    """What the server needs of the environment to find its Temporal server."""
    names = ("TEMPORAL_ADDRESS", "LASTWORD_DATA_DIR", "LASTWORD_TASK_QUEUE", "LASTWORD_SETTINGS")
    return {name: terminal.env[name] for name in names}


async def run(*command: str, cwd: Path, **env: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, env={**os.environ, **env}, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(120):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def inspector(stage: Stage, *words: str) -> tuple[int | None, Any, str]:
    program = str(CACHE / "node/node_modules/.bin/mcp-inspector")
    code, out, err = await run(program, "--cli", *words, cwd=stage.workspace)
    return code, json.loads(out) if out.strip().startswith("{") else out, err


async def test_the_inspector_delegates_over_stdio(stage: Stage, terminal: Terminal) -> None:
    env = [part for name, value in face(terminal).items() for part in ("-e", f"{name}={value}")]
    server = [*env, "--cwd", str(stage.workspace), sys.executable, *MCP]
    code, listed, err = await inspector(stage, *server, "--method", "tools/list")
    assert code == 0, err
    assert {"delegate", "result", "list"} <= {tool["name"] for tool in listed["tools"]}
    call = ["--method", "tools/call", "--tool-name", "delegate", "--tool-arg"]
    code, done, err = await inspector(stage, *server, *call, f"prompt={WORDS}")
    assert code == 0, err
    assert [block["text"] for block in done["content"]] == [WORDS]
    assert done["structuredContent"]["text"] == WORDS
    cut = json.dumps([{"delta": "half"}, {"end": "max-tokens"}])
    _, done, err = await inspector(stage, *server, *call, f"prompt={json.dumps(cut)}")
    assert done["isError"] is True, err
    assert done["content"][0]["text"].endswith("half")


async def test_the_inspector_needs_a_token_over_http(stage: Stage, terminal: Terminal) -> None:
    settings = Path(terminal.env["LASTWORD_SETTINGS"])
    async with http_server(terminal, settings) as url:
        header = ["--header", f"Authorization: Bearer {TOKENS['alice']}"]
        call = ["--method", "tools/call", "--tool-name", "delegate", "--tool-arg", f"prompt={WORDS}"]
        code, done, err = await inspector(stage, url, "--transport", "http", *header, *call)
        assert code == 0, err
        assert done["content"][0]["text"] == WORDS
        code, _, _ = await inspector(stage, url, "--transport", "http", *call)
        assert code != 0


async def test_fastmcp_delegates_gives_up_and_comes_back_by_the_id(
    stage: Stage, terminal: Terminal, tmp_path: Path
) -> None:
    ids: list[str] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        if message and message.startswith("id: "):
            ids.append(message.removeprefix("id: "))

    gate = tmp_path / "gate"
    slow = json.dumps([{"delta": "so far"}, {"wait_for": str(gate)}, {"delta": ", done"}, {"message": None}])
    transport = StdioTransport(sys.executable, MCP, env={**os.environ, **face(terminal)}, cwd=str(stage.workspace))
    async with fastmcp.Client(transport) as client:
        done = await client.call_tool("delegate", {"prompt": WORDS})
        with pytest.raises(Exception, match=r"(?i)time"):
            await client.call_tool("delegate", {"prompt": slow}, timeout=3, progress_handler=on_progress)
        gate.touch()
        later = await client.call_tool("result", {"id": ids[0]})
        failed = await client.call_tool(
            "delegate", {"prompt": json.dumps([{"delta": "half"}, {"end": "error"}])}, raise_on_error=False
        )
    assert done.content[0].text == WORDS
    assert later.content[0].text == "so far, done"
    assert failed.is_error is True


async def test_claude_code_delegates(stage: Stage, terminal: Terminal) -> None:
    """As the example does it: registered by our command, asked once."""
    prompt = f"hand it on [[scn:tool:mcp__lastword__delegate:{json.dumps({'prompt': WORDS})}]]"
    env = {**face(terminal), "CLAUDE": str(_program()), "PYTHONPATH": str(CACHE.parent)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "examples.claude_code_by_mcp", prompt, cwd=stage.workspace, env={**os.environ, **env},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(120):
        out, err = await process.communicate(b"y\n")
    assert process.returncode == 0, err.decode()
    registered = json.loads((stage.workspace / ".mcp.json").read_text())["mcpServers"]["lastword"]
    assert registered["args"] == ["mcp"]
    assert b"+" in out
    assert b"seen, done." in out
    assert any(WORDS in body and "tool_result" in body for body in _bodies(stage))


@pytest.mark.parametrize(
    "rig", [rig for rig in RIGS if rig.backend in ("acp:codex", "acp:opencode")], ids=lambda r: r.name
)
async def test_an_agent_over_acp_delegates_by_the_mcp_server(stage: Stage, terminal: Terminal, rig: Rig) -> None:
    server = {"name": "lastword", "command": sys.executable, "args": MCP, "env": face(terminal)}
    prompt = f"hand it on [[scn:tool:{rig.host_tool}:{json.dumps({'prompt': WORDS})}]]"
    request = stage.request(
        rig, prompt, mcp_servers=[server], permissions={"mode": "allow"}, limits={"wall_clock": 120}
    )
    async with stage.worker(rig):
        done = await stage.house.client.run(request)
    assert done.result.stop_reason == "completed", done.result
    results = [body for body in _bodies(stage) if body.count(WORDS) > 1]
    assert results, "its model was not told what the child said"


def _bodies(stage: Stage) -> list[str]:
    return [json.dumps(body) for _, body in stage.fake.requests]
