"""What a delegation promises, over every way to run a child."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from lastword.backends.acp import AcpBackend
from lastword.backends.orphan_guard import MARK
from lastword.core.contract import DelegationRequest, DelegationResult
from lastword.core.events import TURN_END, text_of
from tests.fake_model.children import point_at
from tests.fake_model.server import FakeModel
from tests.integration.conftest import House, until_beaten, until_exists
from tests.integration.contract.rigs import RIGS, Case, Places, Rig, acp_agent

CANARY = "sk-canary"

_PLACES = Places(Path("here"), Path("gate"), Path("ran"))
_LIVE = {"streams", "ends-well-after-a-cancel", "ignores-a-cancel", "loses-its-worker"}
_CASES = [(rig, name) for rig in RIGS for name in rig.cases(_PLACES)]


def _all(*names: str) -> pytest.MarkDecorator:
    chosen = [(rig, name) for rig, name in _CASES if name in names]
    return pytest.mark.parametrize(("rig", "name"), chosen, ids=[f"{rig.name}-{name}" for rig, name in chosen])


def _each() -> pytest.MarkDecorator:
    return _all(*({name for _, name in _CASES} - _LIVE))


@dataclass
class Stage:
    """A house, with a fake model, and the files of one case."""

    house: House
    places: Places
    state: Path

    def case(self, rig: Rig, name: str) -> Case:
        return rig.cases(self.places)[name]


@pytest.fixture
async def stage(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[Stage]:
    monkeypatch.setenv("LASTWORD_TEST_SECRET", f"{CANARY}-env")
    state = tmp_path / "state"
    state.mkdir()
    caplog.set_level(logging.DEBUG, logger="lastword")
    async with FakeModel() as fake:
        point_at(fake, monkeypatch)
        yield Stage(house, Places(tmp_path / "here", tmp_path / "gate", tmp_path / "ran"), state)
    assert CANARY not in caplog.text
    assert CANARY not in "".join(edge.model_dump_json() for edge in house.edges.seen)
    async for row in house.env.client.list_workflows(f"TaskQueue = '{house.queue}'"):
        history = await house.env.client.get_workflow_handle(row.id, run_id=row.run_id).fetch_history()
        assert CANARY not in history.to_json()


def _check(done: DelegationResult, case: Case) -> None:
    result = done.result
    assert result.stop_reason == case.stop_reason, (result.diagnostic, result.output)
    if case.text is not None:
        assert text_of(result.output) == case.text
    assert done.tool_result.is_error is (case.stop_reason != "completed")
    if case.stop_reason in ("completed", "aborted"):
        assert result.diagnostic is None
    elif case.category is not None:
        assert f"category={case.category}" in (result.diagnostic or "")
    assert result.disposal_error is False


async def _settles(stage: Stage, rig: Rig, id: str, case: Case) -> DelegationResult:
    done = await stage.house.client.result(id)
    _check(done, case)
    start, end = stage.house.edges.of(id)
    assert (start.type, end.type, end.stop_reason) == ("subagent/start", "subagent/end", case.stop_reason)
    if done.result.output_ref is None:
        assert (end.last_assistant_message or []) == done.result.output
    logged = [item async for item in stage.house.client.log(id)]
    assert [item.seq for item in logged] == list(range(len(logged)))  # type: ignore[union-attr]
    assert logged[-1].type == TURN_END  # type: ignore[union-attr]
    return done


@_each()
async def test_a_child_ends_with_its_words_and_the_right_reason(stage: Stage, rig: Rig, name: str) -> None:
    case = stage.case(rig, name)
    async with stage.house.worker(rig.backend(stage.state)):
        id = await stage.house.client.start(rig.request(case))
        await _settles(stage, rig, id, case)


@_all("streams", "ends-well-after-a-cancel", "ignores-a-cancel")
async def test_a_cancel_in_the_middle_keeps_what_was_said(stage: Stage, rig: Rig, name: str) -> None:
    case = stage.case(rig, name)
    async with stage.house.worker(rig.backend(stage.state)):
        id = await stage.house.client.start(rig.request(case))
        await until_beaten(stage.house, id, 4)
        cancelled = await stage.house.client.cancel(id)
        done = await _settles(stage, rig, id, case)
        assert cancelled == done
        assert text_of(done.result.output)


@_all("completes")
async def test_a_cancel_after_the_end_changes_nothing(stage: Stage, rig: Rig, name: str) -> None:
    case = stage.case(rig, name)
    async with stage.house.worker(rig.backend(stage.state)):
        done = await stage.house.client.run(
            rig.request(case), id=f"after-{rig.name.replace(':', '-')}-{stage.house.queue}"
        )
        assert await stage.house.client.cancel(done.id) == done
        _check(done, case)


@_all("completes")
async def test_a_cancel_before_the_start_starts_nothing(stage: Stage, rig: Rig, name: str) -> None:
    id = await stage.house.client.start(rig.request(stage.case(rig, name)))
    cancelling = asyncio.create_task(stage.house.client.cancel(id))
    async with asyncio.timeout(30):
        while "CANCEL_REQUESTED" not in (await _history(stage.house, id)):
            await asyncio.sleep(0.05)
    async with stage.house.worker(rig.backend(stage.state)):
        done = await cancelling
    assert (done.result.stop_reason, done.result.output) == ("aborted", [])
    assert stage.house.edges.of(id) == []


async def test_a_cancel_in_the_handshake_starts_nothing_and_leaves_nothing(stage: Stage) -> None:
    backend = AcpBackend("acp:test", acp_agent(stage.state, ACP_AGENT_FAULT="hang"))
    async with stage.house.worker(backend):
        id = await stage.house.client.start(DelegationRequest(prompt="[]", backend="acp:test"))
        async with asyncio.timeout(30):
            while not await asyncio.to_thread(_marked, stage.state):
                await asyncio.sleep(0.05)
        done = await stage.house.client.cancel(id)
        assert (done.result.stop_reason, done.result.output) == ("aborted", [])
        assert stage.house.edges.of(id) == []
        assert await asyncio.to_thread(_marked, stage.state) == []


async def _history(house: House, id: str) -> str:
    return (await house.env.client.get_workflow_handle(id).fetch_history()).to_json()


@_all("loses-its-worker")
async def test_a_child_goes_on_after_its_worker_was_killed(
    stage: Stage, rig: Rig, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LASTWORD_TEST_AGENTS", json.dumps(rig.agents(stage.state)))
    case = stage.case(rig, name)
    worker = await stage.house.worker_process().start()
    id = await stage.house.client.start(rig.request(case))
    await until_beaten(stage.house, id, 4)
    if rig.name != "in-process":
        await until_exists(stage.places.here)
    await worker.kill()
    stage.places.gate.touch()
    other = await stage.house.worker_process().start()
    try:
        done = await stage.house.client.result(id)
    finally:
        await other.stop()
    _check(done, case)
    assert done.result.attempts == 2
    if stage.places.ran.exists():
        assert len(stage.places.ran.read_text().splitlines()) == 1
    await _until_no_child(stage.state)


@pytest.mark.parametrize("rig", RIGS, ids=[rig.name for rig in RIGS])
async def test_twenty_children_at_once_do_not_mix(stage: Stage, rig: Rig) -> None:
    async with stage.house.worker(rig.backend(stage.state)):
        requests = [_saying(rig, f"child {n} speaks") for n in range(20)]
        done = await asyncio.gather(*(stage.house.client.run(request) for request in requests))
    if rig.name == "in-process":
        assert {text_of(d.result.output) for d in done} == {"Hello from the fake model."}
    else:
        assert [text_of(d.result.output) for d in done] == [f"child {n} speaks" for n in range(20)]
    assert {d.result.stop_reason for d in done} == {"completed"}


def _saying(rig: Rig, words: str):  # type: ignore[no-untyped-def]
    tasks = {
        "scripted": {"prompt": words},
        "acp:test": {"prompt": json.dumps([{"say": words}])},
        "in-process": {"prompt": f"{words} [[scn:text]]", "model": "openai-chat:fake"},
    }
    return rig.request(Case("completed", task=tasks[rig.name]))


async def _until_no_child(state: Path) -> None:
    """A child of a killed worker is gone a moment later."""
    async with asyncio.timeout(30):
        while await asyncio.to_thread(_marked, state):
            await asyncio.sleep(0.05)


def _marked(state: Path) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            environ = process.environ()
        except (psutil.Error, OSError):
            continue
        if MARK in environ and environ.get("ACP_AGENT_STATE") == str(state):
            found.append(process.pid)
    return found
