"""Permissions of a turn: by policy, by rule, and by a person whom the workflow asks and no lost worker makes forget."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lastword.core.errors import LastwordError, WorkerUnavailable
from lastword.core.events import text_of
from lastword.core.permissions import PermissionPolicy, Question
from tests.integration.conftest import House, scripted, until_exists

EXECUTE = {"ask": {"kind": "execute", "title": "rm -r build"}}
ASK = {"mode": "ask"}


async def until_asked(house: House, id: str) -> Question:
    async with asyncio.timeout(30):
        while not (questions := await house.client.questions(id)):
            await asyncio.sleep(0.05)
    return questions[0]


async def decisions(house: House, id: str) -> list[tuple[str, str]]:
    facts = [item.data["fact"] async for item in house.client.log(id) if item.type == "permission/decision"]  # type: ignore[union-attr]
    return [(fact["decision"], fact["reason"]) for fact in facts]


async def test_without_a_policy_every_request_is_rejected_and_the_failure_says_so(house: House) -> None:
    async with house.worker():
        done = await house.client.run(scripted(EXECUTE, {"end": "error"}))
    assert text_of(done.result.output) == "rejected "
    assert "permission=reject/execute/reject/policy" in (done.result.diagnostic or "")
    assert await decisions(house, done.id) == [("reject", "policy")]


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"kind": "read", "paths": ["in.txt"]}, "allowed "),
        ({"kind": "read", "paths": ["../out.txt"]}, "rejected "),
        ({"kind": "read", "paths": ["in.txt", "/etc/passwd"]}, "rejected "),
        ({"kind": "read", "paths": ["link/out.txt"]}, "rejected "),
        ({"kind": "read"}, "rejected "),
        ({"kind": "execute", "paths": ["in.txt"]}, "rejected "),
        ({"kind": "of tomorrow", "paths": ["in.txt"]}, "rejected "),
    ],
)
async def test_a_rule_goes_by_kind_and_by_place(house: House, tmp_path: Path, asked: dict[str, Any], word: str) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "link").symlink_to(tmp_path)
    rules = [{"kinds": ["read"], "within": "workspace", "decision": "allow"}]
    policy = {"mode": "rules", "rules": rules}
    async with house.worker():
        done = await house.client.run(scripted({"ask": asked}, cwd=str(workspace), permissions=policy))
    assert text_of(done.result.output) == word


async def test_a_person_is_asked_and_answers(either_house: House) -> None:
    house = either_house
    async with house.worker():
        id = await house.client.start(scripted(EXECUTE, {"delta": "done"}, permissions=ASK, limits={"idle": 2}))
        question = await until_asked(house, id)
        assert (question.kind, question.title, question.delegation_id) == ("execute", "rm -r build", id)
        answered = await house.client.answer(id, "allow")
        assert answered.id == question.id
        done = await house.client.result(id)
        assert await house.client.questions(id) == []
    assert text_of(done.result.output) == "allowed done"


async def test_waiting_for_an_answer_is_not_idle(house: House) -> None:
    async with house.worker():
        id = await house.client.start(scripted(EXECUTE, {"fault": "hang"}, permissions=ASK, limits={"idle": 0.5}))
        await until_asked(house, id)
        await asyncio.sleep(1.5)
        assert (await house.client.describe(id)).phase == "running"
        await house.client.answer(id, "allow")
        done = await house.client.result(id)
    assert (done.result.stop_reason, text_of(done.result.output)) == ("timeout", "allowed ")
    assert "permission=ask/execute/allow/answer" in (done.result.diagnostic or "")


async def test_nobody_answers_in_time_and_it_is_rejected(house: House) -> None:
    async with house.worker():
        done = await house.client.run(scripted(EXECUTE, permissions={"mode": "ask", "answer_within": 0.5}))
    assert text_of(done.result.output) == "rejected "
    assert await decisions(house, done.id) == [("reject", "deadline")]


async def test_a_cancel_ends_a_child_that_waits_for_an_answer(house: House) -> None:
    async with house.worker():
        id = await house.client.start(scripted({"delta": "said "}, EXECUTE, permissions=ASK))
        await until_asked(house, id)
        done = await house.client.cancel(id)
    assert (done.result.stop_reason, text_of(done.result.output)) == ("aborted", "said ")


async def test_a_lost_worker_does_not_lose_the_question(house: House) -> None:
    worker = await house.worker_process().start()
    id = await house.client.start(
        scripted({"delta": "a"}, {"message": None}, EXECUTE, {"message": None}, permissions=ASK)
    )
    question = await until_asked(house, id)
    await worker.kill()
    # Only a worker can answer a query; the first thing the next one does is not to ask again.
    other = await house.worker_process().start()
    try:
        assert (await until_asked(house, id)).id == question.id
        await house.client.answer(id, "allow", question=question.id)
        done = await house.client.result(id)
    finally:
        await other.stop()
    assert (done.result.stop_reason, text_of(done.result.output)) == ("completed", "allowed ")
    assert done.result.attempts == 2
    assert await decisions(house, id) == [("allow", "answer")]


async def test_the_same_request_again_is_another_question(house: House) -> None:
    async with house.worker():
        id = await house.client.start(scripted(EXECUTE, EXECUTE, permissions=ASK))
        first = await until_asked(house, id)
        await house.client.answer(id, "allow")
        async with asyncio.timeout(30):
            while (await until_asked(house, id)).id == first.id:
                await asyncio.sleep(0.05)
        await house.client.answer(id, "reject")
        done = await house.client.result(id)
    assert text_of(done.result.output) == "allowed rejected "


async def test_an_answer_without_a_question_is_refused(house: House, tmp_path: Path) -> None:
    here = tmp_path / "here"
    async with house.worker():
        id = await house.client.start(scripted({"touch": str(here)}, {"fault": "hang"}))
        await until_exists(here)
        with pytest.raises(LastwordError, match="No question is open"):
            await house.client.answer(id, "allow")
        asking = await house.client.start(scripted(EXECUTE, permissions=ASK))
        await until_asked(house, asking)
        with pytest.raises(LastwordError, match="'nope' is not open"):
            await house.client.answer(asking, "allow", question="nope")
        open_ones = {q.delegation_id for q in await house.client.all_questions()}
        assert asking in open_ones
        await asyncio.gather(house.client.cancel(id), house.client.cancel(asking))


async def test_the_workers_policy_serves_tasks_that_bring_none(house: House) -> None:
    from lastword.backends.scripted import ScriptedBackend
    from lastword.worker import open_worker

    async with open_worker(
        house.env.client,
        backends={"scripted": ScriptedBackend()},
        store=house.store,
        task_queue=house.queue,
        permissions=PermissionPolicy(mode="allow"),
    ):
        ours = await house.client.run(scripted(EXECUTE))
        theirs = await house.client.run(scripted(EXECUTE, permissions={"mode": "reject"}))
    assert (text_of(ours.result.output), text_of(theirs.result.output)) == ("allowed ", "rejected ")


async def test_without_a_worker_nobody_can_be_asked_or_told(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("lastword.client", "lastword.server_errors"):
        monkeypatch.setattr(f"{module}.ANSWER_GRACE", timedelta(seconds=2))
    id = await house.client.start(scripted(EXECUTE, permissions=ASK))
    with pytest.raises(WorkerUnavailable, match="No worker answered"):
        await house.client.questions(id)
    with pytest.raises(WorkerUnavailable, match="No worker answered"):
        await house.client.answer(id, "allow")
    await house.client.cancel(id, force=True)
