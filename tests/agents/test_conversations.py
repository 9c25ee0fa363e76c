"""Conversations with real agents: their own memory of earlier turns outlives the worker."""

from __future__ import annotations

import pytest

from lastword.conversing import ConversationClient
from lastword.core.conversation import ConversationRequest
from lastword.core.events import text_of
from tests.agents.conftest import Stage
from tests.agents.rigs import RIGS, WORDS, Rig

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
    # What the model is asked holds the first question and its answer, by the agent's own doing.
    asked = [str(body) for _, body in stage.fake.requests if "the second question" in str(body)]
    assert any("the first question" in body and WORDS in body for body in asked)
    assert not any("This is the conversation so far" in body for body in asked)
