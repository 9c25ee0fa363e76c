"""Children that delegate: their place in the tree, limits that only narrow, and their end with their parent."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from lastword.backends.in_process import InProcessBackend
from lastword.core.contract import DelegationPolicy, DelegationRequest, DelegationResult
from lastword.core.errors import DelegationNotFound
from lastword.core.events import text_of
from lastword.trees import tree
from tests.fake_model.children import point_at
from tests.fake_model.server import FakeModel
from tests.integration.conftest import House, until_beaten, until_exists
from tests.integration.contract.rigs import acp_agent

WORK = {"message": None}


def script(*steps: dict[str, Any]) -> str:
    return json.dumps(steps)


def hand_on(id: str, prompt: str) -> dict[str, Any]:
    return {"delegate": {"id": id, "prompt": prompt}}


def root(*steps: dict[str, Any], **fields: Any) -> DelegationRequest:
    data = {"prompt": script(*steps), "backend": "scripted", "delegation": {}, **fields}
    return DelegationRequest.model_validate(data)


def said(done: DelegationResult) -> str:
    return text_of(done.result.output)


async def test_a_child_gets_the_answer_of_its_own_child_and_the_tree_is_in_the_ids(either_house: House) -> None:
    house = either_house
    inner = script(hand_on("b", "the leaf"), WORK)
    async with house.worker():
        done = await house.client.run(root(hand_on("a", inner), WORK), id=f"root-{house.queue}")
        leaf = await house.client.result(f"{done.id}/1/1")
    assert (done.result.stop_reason, said(done)) == ("completed", "[[the leaf]]")
    assert said(leaf) == "the leaf"
    edges = [edge for edge in house.edges.seen if edge.type == "subagent/start"]
    assert [(edge.id, edge.parent_id) for edge in edges] == [
        (done.id, None),
        (f"{done.id}/1", done.id),
        (f"{done.id}/1/1", f"{done.id}/1"),
    ]


async def test_a_failed_child_is_an_answer_marked_as_failed(open_house: House) -> None:
    done = await open_house.client.run(root(hand_on("a", script({"delta": "half"}, {"end": "max-tokens"})), WORK))
    assert done.result.stop_reason == "completed"
    assert "cut at its output token limit" in said(done)
    assert "half" in said(done)


async def test_the_fourth_level_is_refused_by_default(open_house: House) -> None:
    prompt = "too deep"
    for n in range(4):
        prompt = script(hand_on(f"{n}", prompt), WORK)
    done = await open_house.client.run(root(hand_on("root", prompt), WORK), id=f"deep-{open_house.queue}")
    assert "at depth 4, at most 3 is allowed" in said(done)
    rows = {row.id async for row in open_house.env.client.list_workflows(f"TaskQueue = '{open_house.queue}'")}
    assert f"{done.id}/1/1/1/1" not in rows


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({"max_depth": 0}, "at depth 1, at most 0 is allowed"),
        ({"delegation": {"max_children": 1}}, "1 children were started, at most 1 may be"),
        ({"limits": {"tokens": 100}}, "of 100 tokens none is left"),
    ],
)
async def test_over_a_limit_is_a_refusal_that_names_it(open_house: House, fields: dict[str, Any], limit: str) -> None:
    spent = script({"delta": "x"}, {"message": None, "usage": {"input_tokens": 60, "output_tokens": 32}})
    done = await open_house.client.run(root(hand_on("a", spent), hand_on("b", "second"), WORK, **fields))
    assert limit in said(done)
    assert done.result.stop_reason == "completed"


async def test_a_child_that_may_not_delegate_is_told_so(open_house: House) -> None:
    done = await open_house.client.run(root(hand_on("a", "x"), WORK, delegation=None))
    assert "this child may not delegate" in said(done)


async def test_a_cancel_of_the_root_returns_every_partial(open_house: House, tmp_path: Path) -> None:
    here = [tmp_path / f"here-{n}" for n in range(3)]
    leaf = script({"delta": "leaf "}, {"touch": str(here[2])}, {"fault": "hang"})
    middle = script({"delta": "middle "}, {"touch": str(here[1])}, hand_on("m", leaf), WORK)
    request = root({"delta": "root "}, {"touch": str(here[0])}, hand_on("r", middle), WORK)
    id = await open_house.client.start(request, id=f"felled-{open_house.queue}")
    for path in here:
        await until_exists(path)
    done = await open_house.client.cancel(id)
    below = [await open_house.client.result(f"{id}/1{more}") for more in ("", "/1")]
    assert [d.result.stop_reason for d in (done, *below)] == ["aborted"] * 3
    assert said(done).startswith("root ")
    assert said(below[0]).startswith("middle ")
    assert said(below[1]) == "leaf "
    ended = {edge.id: edge.stop_reason for edge in open_house.edges.seen if edge.type == "subagent/end"}
    assert ended == dict.fromkeys([id, f"{id}/1", f"{id}/1/1"], "aborted")


async def test_a_child_still_running_is_ended_with_its_parent(open_house: House, tmp_path: Path) -> None:
    """A parent whose time is up does not leave a child behind."""
    here = tmp_path / "here"
    leaf = script({"delta": "leaf"}, {"touch": str(here)}, {"fault": "hang"})
    request = root(hand_on("r", leaf), WORK, limits={"wall_clock": 3})
    done = await open_house.client.run(request, id=f"timed-{open_house.queue}")
    child = await open_house.client.result(f"{done.id}/1")
    assert done.result.stop_reason == "timeout"
    assert child.result.stop_reason in ("aborted", "timeout")
    assert said(child) == "leaf"


async def test_waiting_for_a_child_is_not_idle(open_house: House) -> None:
    slow = script({"pause_ms": 1500}, {"delta": "slow"}, WORK)
    done = await open_house.client.run(root(hand_on("a", slow), WORK, limits={"idle": 0.7, "wall_clock": 60}))
    # The child's own idle limit is its parent's.
    assert "ran out of time" in said(done)
    assert done.result.stop_reason == "completed"


async def test_a_lost_worker_does_not_delegate_twice(house: House, tmp_path: Path) -> None:
    ran, here, gate = tmp_path / "ran", tmp_path / "here", tmp_path / "gate"
    tool = {"tool": {"id": "t", "appends_to": str(ran)}}
    leaf = script(tool, {"touch": str(here)}, {"wait_for": str(gate)}, {"delta": "leaf"}, WORK)
    worker = await house.worker_process().start()
    id = await house.client.start(root({"delta": "root"}, WORK, hand_on("r", leaf), WORK), id=f"lost-{house.queue}")
    await until_exists(here)
    await worker.kill()
    gate.touch()
    other = await house.worker_process().start()
    try:
        done = await house.client.result(id)
    finally:
        await other.stop()
    assert (done.result.stop_reason, said(done)) == ("completed", "[leaf]")
    assert ran.read_text() == "t\n"
    rows = [row.id async for row in house.env.client.list_workflows(f"TaskQueue = '{house.queue}'")]
    assert sorted(rows) == [id, f"{id}/1"]


async def test_an_agent_of_its_own_process_delegates_once_through_a_lost_worker(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes its call again when it is taken up, in another process with another token: it is the same child."""
    here, gate, ran = tmp_path / "here", tmp_path / "gate", tmp_path / "ran"
    monkeypatch.setenv("LASTWORD_TEST_AGENTS", json.dumps({"test": acp_agent(tmp_path).model_dump(mode="json")}))
    leaf = json.dumps([{"tool": "t", "appends": str(ran)}, {"touch": str(here)}, {"wait": str(gate)}, {"say": "leaf"}])
    steps = [{"say": "root "}, {"tool": "1"}, {"mcp": "delegate", "arguments": {"prompt": leaf}}]
    request = DelegationRequest(prompt=json.dumps(steps), backend="acp:test", delegation=DelegationPolicy())
    worker = await house.worker_process().start()
    id = await house.client.start(request, id=f"agents-{house.queue}")
    await until_exists(here)
    for one in (id, f"{id}/1"):
        await until_beaten(house, one, 4)
    await worker.kill()
    gate.touch()
    other = await house.worker_process().start()
    try:
        done = await house.client.result(id)
        children = await house.client.children(id)
    finally:
        await other.stop()
    assert (done.result.stop_reason, done.result.attempts) == ("completed", 2)
    assert said(done).endswith("<leaf>")
    assert [child.id for child in children] == [f"{id}/1"]
    assert ran.read_text() == "t\n"
    history = (await house.env.client.get_workflow_handle(id).fetch_history()).to_json()
    assert "LASTWORD_TOOLS" not in history


async def test_a_model_delegates_by_its_tool(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeModel() as fake:
        point_at(fake, monkeypatch)
        async with house.worker(InProcessBackend(retries=0)):
            prompt = '[[scn:tool:delegate:{"prompt":"say hello [[scn:text]","label":"greeting"}]]'
            request = DelegationRequest.model_validate(
                {"prompt": prompt, "model": "openai-chat:fake", "delegation": {"max_children": 1}}
            )
            done = await house.client.run(request, id=f"model-{house.queue}")
            child = await house.client.result(f"{done.id}/1")
            asked = [body for _, body in fake.requests if body.get("tools")]
    assert said(done) == "Tool result seen, done."
    assert child.result.stop_reason == "completed"
    tools = {tool["function"]["name"] for tool in asked[0]["tools"]}
    assert "delegate" in tools
    log = [item async for item in house.client.log(done.id)]
    results = [text_of(item.data["content"]) for item in log if item.type == "tool/result"]  # type: ignore[union-attr]
    assert results == [said(child)]


async def test_the_tree_shows_who_runs_under_whom(open_house: House, tmp_path: Path) -> None:
    here, gate = tmp_path / "here", tmp_path / "gate"
    client = open_house.client
    running = script({"delta": "first line\nstill here"}, {"touch": str(here)}, {"wait_for": str(gate)})
    done = script({"delta": "done"}, {"message": None, "usage": {"input_tokens": 5, "output_tokens": 2}})
    steps = [hand_on("a", done), hand_on("b", script(hand_on("c", running), WORK)), WORK]
    id = await client.start(root(*steps, label="the root"), id=f"shown-{open_house.queue}")
    await until_exists(here)
    async with asyncio.timeout(30):
        while len(rows := await tree(client, id)) < 4 or not rows[-1].last_line:
            await asyncio.sleep(0.1)
    assert [(row.id, row.stop_reason) for row in rows] == [
        (id, None),
        (f"{id}/1", "completed"),
        (f"{id}/2", None),
        (f"{id}/2/1", None),
    ]
    assert [row.depth for row in rows] == [0, 1, 1, 2]
    assert (rows[0].label, rows[1].tokens, rows[1].last_line) == ("the root", 7, "done")
    assert rows[3].last_line == "still here"
    assert {row.id for row in await tree(client)} == {id, f"{id}/2", f"{id}/2/1"}
    gate.touch()
    await client.result(id)
    with pytest.raises(DelegationNotFound):
        await tree(client, "no-such-root")


async def test_the_tenth_child_comes_after_the_ninth(open_house: House) -> None:
    steps = [hand_on(str(n), f"{n}") for n in range(11)]
    done = await open_house.client.run(root(*steps, WORK), id=f"wide-{open_house.queue}")
    async with asyncio.timeout(30):
        while len(rows := await tree(open_house.client, done.id)) < 12:
            await asyncio.sleep(0.1)
    assert [row.id.rpartition("/")[2] for row in rows[1:]] == [str(n) for n in range(1, 12)]
