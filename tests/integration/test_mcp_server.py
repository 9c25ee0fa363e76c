"""The MCP server under the official client: stdio and HTTP, progress, cancels, time limits, callers."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from lastword.mcp_server.calling import Caller
from tests.integration.conftest import until_exists
from tests.integration.test_cli import Terminal, terminal
from tests.integration.test_up import free_port

__all__ = ["terminal"]

WORK: dict[str, Any] = {"message": None}
TOKENS = {"alice": "token-of-alice-0123456789", "bob": "token-of-bob-0123456789"}


def script(*steps: dict[str, Any]) -> str:
    return json.dumps(steps)


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    file = tmp_path / "settings.toml"
    file.write_text('[mcp]\nbackends = ["scripted", "in-process"]\nlimits = {wall_clock = 120}\n')
    return file


@asynccontextmanager
async def stdio(terminal: Terminal, settings: Path, *words: str, **more: Any) -> AsyncIterator[Client]:
    env = {**terminal.env, "LASTWORD_SETTINGS": str(settings)}
    server = StdioServerParameters(command=sys.executable, args=["-m", "lastword.cli", "mcp", *words], env=env)
    async with Client(server, **more) as client:
        yield client


@asynccontextmanager
async def http_server(terminal: Terminal, settings: Path, *words: str) -> AsyncIterator[str]:
    port = str(free_port())
    tokens = ",".join(f"{name}:{token}" for name, token in TOKENS.items())
    env = {"LASTWORD_SETTINGS": str(settings), "LASTWORD_MCP_TOKEN": tokens}
    process = await terminal.start("mcp", "--http", "--port", port, *words, **env)
    try:
        await terminal.until_said(process, "serving")
        async with asyncio.timeout(30):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", int(port))
                except OSError:
                    await asyncio.sleep(0.05)
                    continue
                writer.close()
                break
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        async with asyncio.timeout(30):
            await process.communicate()


@asynccontextmanager
async def http(url: str, token: str) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as web,
        Client(streamable_http_client(url, http_client=web)) as client,
    ):
        yield client


def text(done: Any) -> str:
    return "".join(block.text for block in done.content)


async def test_a_task_is_handed_on_and_its_answer_is_text_and_structure_alike(
    terminal: Terminal, settings: Path
) -> None:
    async with stdio(terminal, settings) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        done = await client.call_tool("delegate", {"prompt": "three plain words"})
    assert sorted(tools) == sorted(
        ["delegate", "delegate_many", "result", "ask", "send", "interrupt", "cancel", "list", "read_log"]
    )
    offered = tools["delegate"].input_schema["properties"]
    assert offered["backend"]["enum"] == ["scripted", "in-process"]
    # One model is no choice; what belongs to the deployment is not the model's at all.
    assert sorted(offered) == ["backend", "background", "continuable", "label", "prompt"]
    assert (done.is_error, text(done)) == (False, "three plain words")
    assert done.structured_content is not None
    assert done.structured_content["text"] == text(done)
    assert done.structured_content["state"] == "completed"


async def test_a_child_that_did_not_finish_is_an_error_with_its_partial_as_the_contract_renders_it(
    terminal: Terminal, settings: Path
) -> None:
    async with stdio(terminal, settings) as client:
        done = await client.call_tool("delegate", {"prompt": script({"delta": "half"}, {"end": "max-tokens"})})
    assert done.is_error is True
    assert text(done) == (
        "The child's reply was cut at its output token limit (max-tokens).\n"
        "Partial text of the child, not a finished answer:\nhalf"
    )
    assert done.structured_content is None


async def test_progress_tells_the_id_first_and_then_the_tail(
    terminal: Terminal, settings: Path, tmp_path: Path
) -> None:
    gate, told = tmp_path / "gate", []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")
        if "so far" in told[-1]:
            gate.touch()

    slow = script({"delta": "so far"}, {"wait_for": str(gate)}, {"delta": ", done"}, WORK)
    async with stdio(terminal, settings) as client:
        done = await client.call_tool("delegate", {"prompt": slow}, progress_callback=on_progress)
    assert told[0].startswith("id: mcp-")
    assert any(message.endswith("so far") for message in told)
    assert text(done) == "so far, done"


async def test_a_call_answers_before_its_client_gives_up_and_is_gone_on_with_by_its_id(
    terminal: Terminal, settings: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    slow = script({"delta": "so far"}, {"wait_for": str(gate)}, {"delta": ", done"}, WORK)
    async with stdio(terminal, settings, "--wait", "2") as client:
        cut = await client.call_tool("delegate", {"prompt": slow})
        assert cut.structured_content is not None
        id = cut.structured_content["id"]
        gate.touch()
    # Another connection of the same caller.
    async with stdio(terminal, settings) as client:
        done = await client.call_tool("result", {"id": id})
    assert cut.is_error is False
    assert cut.structured_content["state"] == "running"
    assert text(cut).startswith(f"Still running; its id is {id}.")
    assert text(cut).endswith("So far:\nso far")
    assert text(done) == "so far, done"


async def test_a_clients_cancel_settles_the_child_and_its_time_limit_does_not(
    terminal: Terminal, settings: Path, tmp_path: Path
) -> None:
    ids: list[str] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        if message and message.startswith("id: "):
            ids.append(message.removeprefix("id: "))

    def hanging(here: Path) -> dict[str, str]:
        return {"prompt": script({"delta": "so far"}, {"touch": str(here)}, {"fault": "hang"})}

    async with stdio(terminal, settings, "--wait", "4") as client:
        with pytest.raises(Exception, match=r"[Tt]imed out"):
            await client.call_tool(
                "delegate", hanging(tmp_path / "1"), read_timeout_seconds=2, progress_callback=on_progress
            )
        call = asyncio.create_task(client.call_tool("delegate", hanging(tmp_path / "2"), progress_callback=on_progress))
        await until_exists(tmp_path / "2")
        call.cancel()
        await asyncio.wait([call])
        gave_up, cancelled = ids
        after = await client.call_tool("result", {"id": cancelled})
        # It is waited for as long as a call may take: whatever would settle it has had the time to.
        still = await client.call_tool("result", {"id": gave_up})
        listed = text(await client.call_tool("list", {"running": True}))
        stopped = await client.call_tool("cancel", {"id": gave_up})
    assert text(still).startswith("Still running")
    assert f"{gave_up} running" in listed
    assert cancelled not in listed
    for done in (after, stopped):
        assert text(done).startswith("The child was cancelled before it finished (aborted).")
        assert text(done).endswith("so far")


async def test_many_are_answered_in_their_order(terminal: Terminal, settings: Path) -> None:
    tasks = [{"prompt": "first"}, {"prompt": script({"delta": "half"}, {"end": "error"})}, {"prompt": "third"}]
    async with stdio(terminal, settings) as client:
        done = await client.call_tool("delegate_many", {"tasks": tasks})
    parts = text(done).split("## ")[1:]
    assert [part.split("\n", 1)[1].strip() for part in parts] == [
        "first",
        "The child failed (error).\nPartial text of the child, not a finished answer:\nhalf",
        "third",
    ]
    assert done.is_error is False


async def test_one_of_many_that_no_worker_can_run_is_told_of_that_one(terminal: Terminal, tmp_path: Path) -> None:
    nowhere = tmp_path / "settings.toml"
    nowhere.write_text('[mcp]\nbackends = ["nowhere"]\n')
    async with stdio(terminal, nowhere) as client:
        done = await client.call_tool("delegate_many", {"tasks": [{"prompt": "a"}, {"prompt": "b"}]})
        one = await client.call_tool("delegate", {"prompt": "a"})
    assert (done.is_error, one.is_error) == (True, True)
    assert text(done).count("This worker has no backend 'nowhere'") == 2
    assert text(done).count("## ") == 2
    assert "This worker has no backend 'nowhere'" in text(one)


async def test_a_continuable_child_is_asked_more_and_stopped(
    terminal: Terminal, settings: Path, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    async with stdio(terminal, settings) as client:
        first = await client.call_tool("delegate", {"prompt": "one", "continuable": True})
        assert first.structured_content is not None
        id = first.structured_content["id"]
        second = await client.call_tool("ask", {"id": id, "prompt": script({"recall": "user"}, WORK)})
        hang = script({"delta": "half"}, {"touch": str(here)}, {"fault": "hang"})
        await client.call_tool("send", {"id": id, "prompt": hang})
        await until_exists(here)
        cut = await client.call_tool("interrupt", {"id": id})
        log = await client.call_tool("read_log", {"id": id})
        over = await client.call_tool("cancel", {"id": id})
        once = await client.call_tool("delegate", {"prompt": "once"})
        assert once.structured_content is not None
        refused = await client.call_tool("ask", {"id": once.structured_content["id"], "prompt": "more"})
    assert (text(first), text(second)) == ("one", "one")
    assert text(cut).endswith("half")
    assert "user/message" in text(log)
    assert "has ended" in text(over)
    assert refused.is_error is True
    assert "was not started as continuable" in text(refused)


async def test_bad_input_is_an_answer_that_says_what_to_do(terminal: Terminal, settings: Path) -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("delegate", {"prompt": " "}, "the prompt is empty"),
        ("delegate", {"prompt": "x", "backend": "acp:claude"}, "'acp:claude' is not on offer; choose one of: scripted"),
        ("delegate", {"prompt": "x", "model": "openai:gpt-5"}, "is not on offer"),
        ("delegate", {"prompt": "x", "permissions": {"mode": "allow"}}, "permissions: Extra inputs are not permitted"),
        ("result", {"id": "somebody-elses"}, "You have no child 'somebody-elses'"),
        ("result", {"id": f"{Caller('other').prefix}123"}, "You have no child"),
        ("nonsense", {}, "There is no tool 'nonsense'"),
    ]
    async with stdio(terminal, settings) as client:
        for tool, arguments, why in cases:
            done = await client.call_tool(tool, arguments)
            assert (done.is_error, why in text(done)) == (True, True), (tool, arguments, text(done))


async def test_without_a_server_the_tools_are_there_and_say_what_is_missing(terminal: Terminal, settings: Path) -> None:
    nowhere = Terminal("127.0.0.1:1", terminal.folder)
    async with stdio(nowhere, settings) as client:
        assert (await client.list_tools()).tools
        done = await client.call_tool("delegate", {"prompt": "x"})
    assert done.is_error is True
    assert "No Temporal server answers" in text(done)


async def test_over_http_two_callers_do_not_see_each_other(terminal: Terminal, settings: Path) -> None:
    async with http_server(terminal, settings) as url:
        async with http(url, TOKENS["alice"]) as alice, http(url, TOKENS["bob"]) as bob:
            done = await alice.call_tool("delegate", {"prompt": "for alice"})
            assert done.structured_content is not None
            id = done.structured_content["id"]
            own = await alice.call_tool("result", {"id": id})
            others = await bob.call_tool("result", {"id": id})
            async with asyncio.timeout(30):
                while id not in text(await alice.call_tool("list", {})):
                    await asyncio.sleep(0.2)
            listed = await bob.call_tool("list", {})
        # What a caller started is there after it has come back.
        async with http(url, TOKENS["alice"]) as again:
            assert text(await again.call_tool("result", {"id": id})) == "for alice"
    assert text(own) == text(done) == "for alice"
    assert (others.is_error, text(listed)) == (True, "You have no children.")


async def test_over_http_a_stranger_is_refused(terminal: Terminal, settings: Path) -> None:
    known = {"Authorization": f"Bearer {TOKENS['alice']}"}
    cases: list[tuple[dict[str, str], int]] = [
        ({}, 401),
        ({"Authorization": "Bearer wrong-token-0123456789"}, 401),
        ({"Authorization": f"Basic {TOKENS['alice']}"}, 401),
        ({**known, "Origin": "http://evil.example"}, 403),
        ({**known, "Host": "evil.example"}, 421),
        (known, 200),
    ]
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        },
    }
    accept = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    async with http_server(terminal, settings) as url, httpx2.AsyncClient() as web:
        for headers, status in cases:
            answer = await web.post(url, json=hello, headers={**accept, **headers})
            assert answer.status_code == status, (headers, answer.text)


async def test_beyond_the_loopback_a_token_of_ones_own_is_needed(terminal: Terminal, settings: Path) -> None:
    done = await terminal.run("mcp", "--http", "--host", "0.0.0.0", LASTWORD_SETTINGS=str(settings))
    assert done.code == 2
    assert "set LASTWORD_MCP_TOKEN" in done.err
    short = await terminal.run("mcp", "--http", LASTWORD_SETTINGS=str(settings), LASTWORD_MCP_TOKEN="short")
    assert short.code == 2
    assert "less than 16 characters" in short.err
