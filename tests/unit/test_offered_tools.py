"""The host's tools at an agent of its own process: who may call, by what they are told apart, and how they end."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from lastword.backends import tool_relay
from lastword.backends.acp.turn import Inbox
from lastword.backends.child_process import ChildProcess, child_environment
from lastword.backends.offered_tools import missing_for_tools, offered_tools
from lastword.core import host_tools
from lastword.core.contract import ChildTask, DelegationPolicy, McpServer
from tests.hosts import FixedHost

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
TOOLS = (*host_tools.DELEGATING, host_tools.REPORT)


class McpClient:
    """A client by hand, over the relay that an agent would start."""

    def __init__(self, server: McpServer, **env: str) -> None:
        self._server = server
        self._env = env
        self._number = 0

    async def __aenter__(self) -> McpClient:
        env = child_environment({**self._server.env, **self._env})
        self.process = await ChildProcess.spawn(str(self._server.command), self._server.args, env=env)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.process.close()

    async def begin(self) -> dict[str, Any]:
        hello = await self.ask("initialize", HELLO)
        await self._send({"method": "notifications/initialized"})
        return hello

    async def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        self._number += 1
        await self._send({"id": self._number, "method": method, "params": params or {}})
        async with asyncio.timeout(20):
            while line := await self.process.stdout.readline():
                answer = json.loads(line)
                if answer.get("id") == self._number:
                    assert "error" not in answer, answer
                    result: dict[str, Any] = answer["result"]
                    return result
        raise EOFError

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return await self.ask("tools/call", {"name": tool, "arguments": arguments})

    async def _send(self, message: dict[str, Any]) -> None:
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        await self.process.stdin.drain()


async def test_a_child_sees_and_calls_its_hosts_tools() -> None:
    host = FixedHost(tools=TOOLS)
    async with offered_tools(host) as (server,), McpClient(server) as client:
        await client.begin()
        listed = await client.ask("tools/list")
        done = await client.call("delegate", prompt="the leaf")
    assert [tool["name"] for tool in listed["tools"]] == [tool.name for tool in TOOLS]
    assert listed["tools"][0]["inputSchema"]["required"] == ["prompt"]
    assert done["content"] == [{"type": "text", "text": "answer to the leaf"}]
    assert done["isError"] is False
    assert [(tool, arguments) for tool, arguments, _ in host.called] == [("delegate", {"prompt": "the leaf"})]


async def test_the_same_call_of_another_attempt_is_the_same_call() -> None:
    """Agents number their calls anew when they are taken up, so a call is known by what it says."""
    ids: list[list[str]] = []
    for _ in range(2):
        host = FixedHost(tools=TOOLS)
        async with offered_tools(host) as (server,), McpClient(server) as client:
            await client.begin()
            for prompt in ("a", "b", "a"):
                await client.call("delegate", prompt=prompt)
            await client.call("result", id="x")
        ids.append([call_id for _, _, call_id in host.called])
    assert ids[0][:3] == ids[1][:3]
    assert len(set(ids[0])) == 4
    # To wait again is another question.
    assert ids[0][3] != ids[1][3]


async def test_a_wrong_token_or_another_childs_is_refused() -> None:
    host, other = FixedHost(tools=TOOLS), FixedHost(tools=TOOLS)
    async with offered_tools(host) as (server,), offered_tools(other) as (others,):
        for token in ("wrong", "", others.env[tool_relay.TOKEN]):
            async with McpClient(server, **{tool_relay.TOKEN: token}) as client:
                with pytest.raises((EOFError, ConnectionError)):
                    await client.ask("initialize", HELLO)
    assert host.called == other.called == []


async def test_nobody_else_can_come_near_the_socket_and_it_goes_with_the_child() -> None:
    async with offered_tools(FixedHost(tools=TOOLS)) as (server,):
        path = Path(server.env[tool_relay.SOCKET])
        assert path.parent.stat().st_mode & 0o777 == 0o700
        async with McpClient(server) as client:
            await client.begin()
            waiting = client.process
    assert not path.parent.exists()
    assert waiting.exit_code is not None


async def test_a_relay_ends_when_its_worker_is_gone() -> None:
    async with offered_tools(FixedHost(tools=TOOLS)) as (server,):
        client = await McpClient(server).__aenter__()
        await client.begin()
    try:
        assert await client.process.wait(10) is not None
    finally:
        await client.process.close()


async def test_a_child_without_tools_gets_no_server() -> None:
    async with offered_tools(FixedHost()) as servers:
        assert servers == []


def test_without_mcp_a_task_that_needs_it_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    task = ChildTask(prompt="x", delegation=DelegationPolicy())
    assert missing_for_tools(ChildTask(prompt="x"), "pip") == []
    assert missing_for_tools(task, "pip install it") == [
        "mcp is not installed where the worker runs, by which a child delegates: pip install it."
    ]


@pytest.mark.parametrize(
    ("call", "is_asked"),
    [
        ({"title": "lastword.delegate", "kind": "other", "rawInput": {"prompt": "x"}}, False),
        ({"title": "lastword.delegate", "kind": "other"}, False),
        ({"title": "lastword.report", "kind": "other", "rawInput": {"text": "x"}}, False),
        (
            {
                "title": "lastword.delegate",
                "kind": "execute",
                "rawInput": {"server": "lastword", "tool": "delegate", "arguments": {"prompt": "x"}},
            },
            False,
        ),
        # A command that is called so is a command.
        ({"title": "lastword.delegate", "kind": "execute", "rawInput": {"command": "lastword.delegate"}}, True),
        ({"title": "lastword.delegate", "kind": "execute"}, True),
        ({"title": "lastword.delegate", "kind": "other", "rawInput": {"prompt": "x", "subagent": "y"}}, True),
        ({"title": "lastword.delegate", "kind": "edit", "rawInput": {"prompt": "x"}}, True),
        ({"title": "lastword.delegate please", "kind": "other", "rawInput": {"prompt": "x"}}, True),
        ({"title": "lastword.cancel_all", "kind": "other", "rawInput": {}}, True),
    ],
)
async def test_only_a_call_of_a_tool_of_the_host_is_not_asked_for(call: dict[str, Any], is_asked: bool) -> None:
    host = FixedHost("reject", tools=TOOLS)
    inbox = Inbox(host, "lastword.{tool}")
    options = [{"optionId": kind, "kind": kind} for kind in ("allow_once", "reject_once")]
    answer = await inbox.on_request(
        "session/request_permission", {"toolCall": {"toolCallId": "1", **call}, "options": options}
    )
    assert answer["outcome"]["optionId"] == ("reject_once" if is_asked else "allow_once")
    assert bool(host.asked) is is_asked
