"""Real agents that delegate: by the tool that their own MCP client shows to their model."""

from __future__ import annotations

import json

import pytest

from lastword.core.events import text_of
from tests.agents.conftest import Stage
from tests.agents.rigs import RIGS, WORDS, Rig

PARENTS = [rig for rig in RIGS if rig.host_tool]

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.parametrize("rig", PARENTS, ids=[rig.backend for rig in PARENTS]),
]


async def test_an_agent_gets_the_answer_of_a_child_of_its_own(stage: Stage, rig: Rig) -> None:
    """The policy rejects whatever is asked: what the request lets the child do is not asked for."""
    prompt = f"hand it on [[scn:tool:{rig.host_tool}:{json.dumps({'prompt': 'the leaf', 'label': 'leaf'})}]]"
    request = stage.request(rig, prompt, delegation={}, permissions={"mode": "reject"}, limits={"wall_clock": 120})
    async with stage.worker(rig):
        done = await stage.house.client.run(request)
        leaf = await stage.house.client.result(f"{done.id}/1")
    stage.report.note(rig, "delegates", leaf.result.stop_reason)
    assert (leaf.result.stop_reason, text_of(leaf.result.output)) == ("completed", WORDS)
    assert done.result.stop_reason == "completed", done.result
    # What came of it went to the parent's model.
    assert any("the leaf" in body and WORDS in body for body in (json.dumps(body) for _, body in stage.fake.requests))
    token = [line for _, body in stage.fake.requests if "LASTWORD_TOOLS" in (line := json.dumps(body))]
    assert not token
