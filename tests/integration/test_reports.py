"""What passes between a child and its parent while it runs: reports, settlements, children in the background."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.worker import Worker

from lastword.conversing import ConversationClient
from lastword.core import names
from lastword.core.contract import DelegationRequest
from lastword.core.conversation import ConversationRequest, Message
from lastword.core.events import text_of
from lastword.core.notices import Notice
from tests.integration.conftest import House, until_exists
from tests.integration.test_trees import WORK, hand_on, root, said, script


def call(tool: str, call_id: str, /, *, patience: float | None = None, **arguments: Any) -> dict[str, Any]:
    return {"host": {"id": call_id, "tool": tool, "arguments": arguments, "patience": patience}}


def report(id: str, text: str) -> dict[str, Any]:
    return call("report", id, text=text)


def in_background(id: str, prompt: str, **more: Any) -> dict[str, Any]:
    return {"delegate": {"id": id, "prompt": prompt, "background": True, **more}}


def talk(house: House) -> ConversationClient:
    return ConversationClient(house.env.client, task_queue=house.queue)


def conversation(**fields: Any) -> ConversationRequest:
    return ConversationRequest.model_validate({"backend": "scripted", "delegation": {}, **fields})


async def test_a_program_reads_reports_before_the_settlement(either_house: House) -> None:
    house = either_house
    async with house.worker():
        steps = (report("a", "half way"), report("b", "nearly"), {"delta": "the answer"}, WORK)
        done = await house.client.run(root(*steps, reports=True))
        notices = await house.client.notices(done.id)
        later = await house.client.notices(done.id, after=2)
    assert [(n.seq, n.kind, n.text) for n in notices] == [
        (1, "report", "half way"),
        (2, "report", "nearly"),
        (3, "settlement", None),
    ]
    assert (notices[2].stop_reason, text_of(notices[2].output)) == ("completed", said(done))
    assert [n.seq for n in later] == [3]
    logged = [item async for item in house.client.log(done.id)]
    told = [item.data["text"] for item in logged if item.type == "child/report"]  # type: ignore[union-attr]
    assert told == ["half way", "nearly"]
    # A report is not the child's answer.
    assert "half way" not in said(done)


async def test_a_settlement_without_output_says_none(open_house: House) -> None:
    done = await open_house.client.run(root({"end": "error"}))
    (notice,) = await open_house.client.notices(done.id)
    assert (notice.stop_reason, notice.output) == ("error", "none")


@pytest.mark.parametrize(
    ("text", "why"),
    [("  ", "the report is empty"), ("x" * 9000, "the report has 9000 bytes, at most 8192 are allowed")],
)
async def test_a_report_that_says_nothing_or_too_much_is_refused(open_house: House, text: str, why: str) -> None:
    done = await open_house.client.run(root(report("a", text), WORK, reports=True))
    assert why in said(done)
    assert [n.kind for n in await open_house.client.notices(done.id)] == ["settlement"]


async def test_a_child_that_may_not_report_is_told_so(open_house: House) -> None:
    done = await open_house.client.run(root(report("a", "hello"), WORK))
    assert "this child may not report" in said(done)


async def test_a_parent_hears_of_a_child_in_the_background_when_it_asks(open_house: House) -> None:
    leaf = script(report("r", "a finding"), {"delta": "leaf"}, WORK)
    parent = root(in_background("a", leaf), call("result", "b", id="PARENT/1"), WORK, reports=True)
    id = f"bg-{open_house.queue}"
    parent = DelegationRequest.model_validate_json(parent.model_dump_json().replace("PARENT", id))
    done = await open_house.client.run(parent, id=id)
    assert f"Started; its id is {id}/1" in said(done)
    words = said(done)
    assert words.index("Report of your child") < words.index("is done. Its output:")
    assert "a finding" in words
    assert "leaf" in words


async def test_a_report_survives_the_workers_of_parent_and_child(house: House, tmp_path: Path) -> None:
    """Told while the parent's worker is dead: nothing is lost, and nothing told twice."""
    here, gate = tmp_path / "here", tmp_path / "gate"
    id = f"away-{house.queue}"
    leaf = script(report("r", "a finding"), {"touch": str(here)}, {"wait_for": str(gate)}, {"delta": "leaf"}, WORK)
    steps = (in_background("a", leaf), {"wait_for": str(gate)}, call("result", "b", id=f"{id}/1"), WORK)
    worker = await house.worker_process().start()
    await house.client.start(root(*steps, reports=True), id=id)
    await until_exists(here)
    await worker.kill()
    gate.touch()
    other = await house.worker_process().start()
    try:
        done = await house.client.result(id)
        notices = await house.client.notices(f"{id}/1")
    finally:
        await other.stop()
    assert said(done).count("a finding") == 1
    assert said(done).count("is done. Its output:") == 1
    assert [n.kind for n in notices] == ["report", "settlement"]


async def test_a_call_that_waits_too_long_says_so_and_loses_nothing(open_house: House, tmp_path: Path) -> None:
    gate, id = tmp_path / "gate", f"patient-{open_house.queue}"
    leaf = script({"delta": "slow"}, {"wait_for": str(gate)}, WORK)
    parent = root(
        {"host": {"id": "a", "tool": "delegate", "arguments": {"prompt": leaf}, "patience": 0.5}},
        {"touch": str(gate)},
        call("result", "b", id=f"{id}/1"),
        WORK,
    )
    done = await open_house.client.run(parent, id=id)
    assert f"Your child {id}/1 is still at work." in said(done)
    assert f"Your child {id}/1 is done. Its output:\nslow" in said(done)


@pytest.mark.parametrize("tool", ["interrupt", "cancel", "result", "ask", "send"])
@pytest.mark.parametrize("whose", ["itself", "a sibling", "a grandchild", "a stranger"])
async def test_only_a_child_of_ones_own_is_reached(open_house: House, tool: str, whose: str) -> None:
    id = f"own-{tool}-{whose.replace(' ', '-')}-{open_house.queue}"
    target = {"itself": f"{id}/2", "a sibling": f"{id}/1", "a grandchild": f"{id}/2/1/1", "a stranger": "elsewhere"}
    arguments: dict[str, Any] = {"id": target[whose]}
    if tool in ("ask", "send"):
        arguments["prompt"] = "more"
    inner = script(call(tool, "x", **arguments), WORK)
    done = await open_house.client.run(root(in_background("a", "the sibling"), hand_on("b", inner), WORK), id=id)
    assert f"{target[whose]!r} is not a child of yours" in said(done)


async def test_a_child_in_the_background_is_interrupted_to_its_partial(open_house: House, tmp_path: Path) -> None:
    here, id = tmp_path / "here", f"stopped-{open_house.queue}"
    leaf = script({"delta": "half"}, {"touch": str(here)}, {"fault": "hang"})
    steps = (in_background("a", leaf), {"wait_for": str(here)}, call("interrupt", "b", id=f"{id}/1"), WORK)
    done = await open_house.client.run(root(*steps), id=id)
    child = await open_house.client.result(f"{id}/1")
    assert (child.result.stop_reason, said(child)) == ("aborted", "half")
    assert "did not finish. The child was cancelled" in said(done)
    assert "half" in said(done)


async def test_a_continuable_child_is_asked_more(open_house: House) -> None:
    id = f"more-{open_house.queue}"
    steps = (
        {"delegate": {"id": "a", "prompt": "first", "continuable": True}},
        call("ask", "b", id=f"{id}/1", prompt=script({"recall": "user"}, WORK)),
        call("list", "c"),
        WORK,
    )
    done = await open_house.client.run(root(*steps), id=id)
    status = await talk(open_house).closed(f"{id}/1")
    assert "first" in said(done)
    assert f"its id is {id}/1" in said(done)
    assert f"{id}/1 idle completed" in said(done)
    # It ended with its parent, and had two turns.
    assert status.turns == 2


async def test_a_continuable_child_is_one_of_the_budget(open_house: House) -> None:
    spent = script({"delta": "x"}, {"message": None, "usage": {"input_tokens": 60, "output_tokens": 32}})
    id = f"budget-{open_house.queue}"
    steps = (
        {"delegate": {"id": "a", "prompt": spent, "continuable": True}},
        call("ask", "b", id=f"{id}/1", prompt="more"),
        WORK,
    )
    done = await open_house.client.run(root(*steps, limits={"tokens": 100}), id=id)
    assert "of 100 tokens none is left" in said(done)


async def test_what_a_parent_has_spent_is_not_there_for_its_children(open_house: House) -> None:
    own = {"message": "thinking", "usage": {"input_tokens": 70, "output_tokens": 30}}
    done = await open_house.client.run(root(own, hand_on("a", "x"), WORK, limits={"tokens": 200}))
    child = await open_house.client.result(f"{done.id}/1")
    assert child.result.stop_reason == "completed"
    handle = open_house.env.client.get_workflow_handle(child.id)
    first = (await handle.fetch_history()).events[0].workflow_execution_started_event_attributes
    (request,) = await open_house.env.client.data_converter.decode(first.input.payloads, [DelegationRequest])
    # A tenth is kept for the parent.
    assert request.limits.tokens == 80


async def test_what_children_spend_is_spent_of_their_parents_limit(open_house: House) -> None:
    leaf = script({"delta": "leaf"}, {"message": None, "usage": {"input_tokens": 100, "output_tokens": 50}})
    own = {"message": "on it", "usage": {"input_tokens": 40, "output_tokens": 20}}
    done = await open_house.client.run(root(hand_on("a", leaf), own, {"message": "more"}, limits={"tokens": 200}))
    assert done.result.stop_reason == "budget"
    assert "token-limit" in str(done.result.diagnostic)
    # It is its children's usage, not its own.
    assert done.result.usage is not None
    assert done.result.usage.tokens == 60


async def test_a_fork_of_a_child_knows_the_completed_turns_only(open_house: House) -> None:
    client = talk(open_house)
    id = await client.start(conversation())
    await client.ask(id, "one")
    recall = script({"recall": "user"}, WORK)
    done = await client.ask(id, script({"delegate": {"id": "f", "prompt": recall, "fork": True}}, WORK))
    assert said(done) == "[one]"


@workflow.defn(sandboxed=False)
class Parent:
    """Somebody's own workflow, with a conversation for a child."""

    def __init__(self) -> None:
        self.heard: list[Notice] = []

    @workflow.run
    async def run(self, request: ConversationRequest, queue: str) -> list[Notice]:
        id = f"{workflow.info().workflow_id}-child"
        child = await workflow.start_child_workflow(names.CONVERSATION_WORKFLOW, request, id=id, task_queue=queue)
        await workflow.wait_condition(lambda: self._settled() == 1)
        await child.signal(names.DELIVER_SIGNAL, Message(id="second", prompt="two"))
        await workflow.wait_condition(lambda: self._settled() == 2)
        child.cancel()
        await child
        return self.heard

    def _settled(self) -> int:
        return sum(notice.kind == "settlement" for notice in self.heard)

    @workflow.signal(name=names.FROM_CHILD_SIGNAL)
    def from_child(self, notice: Notice) -> None:
        self.heard.append(notice)


async def test_a_workflow_gets_reports_and_settlements_as_signals_in_order(either_house: House) -> None:
    house = either_house
    first = script(report("a", "one"), report("b", "two"), {"delta": "first"}, WORK)
    request = conversation(reports=True, first={"id": "first", "prompt": first})
    queue = f"{house.queue}-parent"
    async with house.worker(), Worker(house.env.client, task_queue=queue, workflows=[Parent]):
        heard = await house.env.client.execute_workflow(
            Parent.run, args=[request, house.queue], id=f"parent-{house.queue}", task_queue=queue
        )
    assert [(n.seq, n.kind, n.message_id, n.text) for n in heard] == [
        (1, "report", "first", "one"),
        (2, "report", "first", "two"),
        (3, "settlement", "first", None),
        (4, "settlement", "second", None),
    ]
    assert [text_of(n.output) for n in heard if n.output != "none"] == ["[Reported.][Reported.]first", "two"]
