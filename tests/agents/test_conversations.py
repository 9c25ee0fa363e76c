"""Conversations with real agents: their own memory of earlier turns outlives the worker."""

from __future__ import annotations

import os

import pytest

from lastword.conversing import ConversationClient
from lastword.core.conversation import ConversationRequest
from lastword.core.events import text_of
from tests.agents.conftest import Stage
from tests.agents.rigs import RIGS, WORDS, Rig
from tests.integration.test_up import free_port, terminal_of

TALKERS = [rig for rig in RIGS if rig.backend in ("acp:opencode", "acp:dsh", "deepseek-harness", "claude-agent")]

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.parametrize("rig", TALKERS, ids=[rig.backend for rig in TALKERS]),
]


async def test_an_agent_remembers_after_its_worker_was_killed(stage: Stage, rig: Rig) -> None:
    client = ConversationClient(stage.house.env.client, task_queue=stage.house.queue)
    worker = await stage.house.worker_process().start()
    id = await client.start(ConversationRequest(backend=rig.backend, cwd=str(stage.workspace)))
    first = await client.ask(id, "the first question [[scn:text]]")
    await worker.kill()
    other = await stage.house.worker_process().start()
    try:
        second = await client.ask(id, "the second question [[scn:text]]")
    finally:
        await other.stop()
    assert [text_of(done.result.output) for done in (first, second)] == [WORDS, WORDS]
    assert first.result.session == second.result.session
    _remembered(stage)


async def test_an_agent_remembers_after_a_restart_of_up(stage: Stage, rig: Rig) -> None:
    terminal = terminal_of(stage.house.data_dir)
    terminal.env |= {name: value for name, value in os.environ.items() if name.endswith("_API_KEY")}
    ports = ["--port", str(free_port()), "--ui-port", str(free_port())]
    chat = ["chat", "talk", "--backend", rig.backend, "--cwd", str(stage.workspace)]
    assert (await terminal.run("up", "--detach", *ports)).code == 0
    try:
        first = await terminal.run(*chat, stdin="the first question [[scn:text]]\n")
    finally:
        assert (await terminal.run("down")).code == 0
    assert (await terminal.run("up", "--detach", *ports)).code == 0
    try:
        second = await terminal.run(*chat, stdin="the second question [[scn:text]]\n")
    finally:
        assert (await terminal.run("down")).code == 0
    assert (first.out, second.out) == (f"{WORDS}\n", f"{WORDS}\n"), first.err + second.err
    _remembered(stage)


def _remembered(stage: Stage) -> None:
    """What the model is asked holds the first question and its answer, by the agent's own doing."""
    asked = [str(body) for _, body in stage.fake.requests if "the second question" in str(body)]
    assert any("the first question" in body and WORDS in body for body in asked)
    assert not any("This is the conversation so far" in body for body in asked)
