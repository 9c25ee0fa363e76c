"""Conversations from a terminal."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

from tests.integration.conftest import until_exists
from tests.integration.test_cli import Terminal, terminal

__all__ = ["terminal"]


def script(*steps: dict[str, Any]) -> str:
    return json.dumps(steps)


async def test_a_chat_streams_interrupts_and_leaves_the_child(terminal: Terminal, tmp_path: Path) -> None:
    here = tmp_path / "here"
    process = await terminal.start("chat", "talk", "--backend", "scripted")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"good morning\n")
    async with asyncio.timeout(60):
        assert await process.stdout.readline() == b"good morning\n"
    process.stdin.write(f"{script({'delta': 'half'}, {'touch': str(here)}, {'fault': 'hang'})}\n".encode())
    async with asyncio.timeout(60):
        assert await process.stdout.readexactly(4) == b"half"
    await until_exists(here)
    process.send_signal(signal.SIGINT)
    await terminal.until_said(process, "interrupting")
    async with asyncio.timeout(60):
        assert await process.stdout.readline() == b"\n"
    process.stdin.write(f"{script({'recall': 'user'})}\n".encode())
    async with asyncio.timeout(60):
        assert (await process.stdout.readline()).startswith(b"good morning | [")
    process.stdin.close()
    done = await terminal.finish(process)
    assert done.code == 0
    assert "the child stays. Come back with: lastword chat talk" in done.err
    # Another terminal goes on with it.
    back = await terminal.run("chat", "talk", stdin="and again\n")
    assert (back.code, back.out) == (0, "and again\n")


async def test_messages_are_sent_asked_and_the_conversation_closed(terminal: Terminal) -> None:
    await terminal.run("chat", "office", "--backend", "scripted", stdin="")
    sent = await terminal.run("send", "office", "first", "--message-id", "m1")
    assert sent.out == "m1\n"
    asked = await terminal.run("ask", "office", "second")
    assert (asked.code, asked.out) == (0, "second\n")
    again = await terminal.run("ask", "office", "something else", "--message-id", "m1", "--json")
    assert again.json["content"] == [{"type": "text", "text": "first"}]
    cut = await terminal.run("ask", "office", script({"delta": "part"}, {"end": "max-tokens"}))
    assert (cut.code, cut.out) == (1, "part\n")
    async with asyncio.timeout(30):
        while not (rows := (await terminal.run("list", "--state", "idle", "--json")).json):
            await asyncio.sleep(0.2)
    assert ("office", "conversation", "idle") in [(row["id"], row["kind"], row["state"]) for row in rows]
    assert "(conversation)" in (await terminal.run("list")).out
    idle = await terminal.run("interrupt", "office")
    assert "no turn is running" in idle.err
    closed = await terminal.run("close", "office", "--json")
    assert closed.json == {"mode": "finish", "dropped": []}
    late = await terminal.run("send", "office", "too late")
    assert (late.code, late.out) == (2, "")
    unknown = await terminal.run("send", "nowhere", "x")
    assert (unknown.code, unknown.out) == (2, "")


async def test_what_takes_a_delegations_id_takes_a_conversations(terminal: Terminal, tmp_path: Path) -> None:
    here = tmp_path / "here"
    await terminal.run("chat", "desk", "--backend", "scripted", stdin="first\n")
    idle = await terminal.run("result", "desk", "--no-wait")
    assert (idle.code, idle.out) == (0, "first\n")
    await terminal.run("send", "desk", script({"delta": "half"}, {"touch": str(here)}, {"fault": "hang"}))
    await until_exists(here)
    early = await terminal.run("result", "desk", "--no-wait")
    assert (early.code, early.out) == (1, "")
    cancelled = await terminal.run("cancel", "desk")
    assert (cancelled.code, cancelled.out) == (0, "half\n")
    for command in ("result", "watch"):
        closed = await terminal.run(command, "desk")
        assert (closed.code, closed.out) == (1, "half\n")


async def test_a_fork_knows_what_was_said_and_not_what_is_being_said(terminal: Terminal, tmp_path: Path) -> None:
    here = tmp_path / "here"
    recall = script({"recall": "user"}, {"message": None})
    await terminal.run("chat", "origin", "--backend", "scripted", stdin="one\ntwo\n")
    hang = script({"delta": "in flight"}, {"touch": str(here)}, {"fault": "hang"})
    await terminal.run("send", "origin", hang)
    await until_exists(here)
    forked = await terminal.run("chat", "branch", "--backend", "scripted", "--fork", "origin", stdin=f"{recall}\n")
    assert forked.out == "one | two\n"
    # A fork of the fork knows what the fork was told, too.
    once = await terminal.run("delegate", recall, "--backend", "scripted", "--fork", "branch")
    assert once.out.startswith("one | two | [")
    taken = await terminal.run("chat", "branch", "--backend", "scripted", "--fork", "origin", stdin="x\n")
    assert taken.code == 2
    assert "a fork needs a new id" in taken.err
    unknown = await terminal.run("delegate", "x", "--backend", "scripted", "--fork", "nowhere")
    assert unknown.code == 2
    assert "No delegation 'nowhere'" in unknown.err
    await terminal.run("close", "origin", "--mode", "cancel")


async def test_a_child_reports_to_the_terminal_and_delegates(terminal: Terminal) -> None:
    steps = [
        {"host": {"id": "a", "tool": "report", "arguments": {"text": "half way"}}},
        {"delegate": {"id": "b", "prompt": "the leaf"}},
        {"message": None},
    ]
    words = ["delegate", json.dumps(steps), "--backend", "scripted", "--id", "reporting"]
    done = await terminal.run(*words, "--reports", "--delegation", "on")
    assert done.code == 0, done.err
    assert "report: half way" in done.err
    assert "[the leaf]" in done.out
    wrong = await terminal.run("delegate", "x", "--backend", "scripted", "--delegation", '{"max_live": 0}')
    assert wrong.code == 2
    assert "--delegation at max_live 0" in wrong.err
