"""Every agent, as it is installed, under the contract."""

from __future__ import annotations

import asyncio
import json

import psutil
import pytest

from lastword.backends.orphan_guard import MARK
from lastword.backends.registry import installed_backends
from lastword.core.contract import DelegationResult
from lastword.core.errors import RequestRejected
from lastword.core.events import text_of
from tests.agents.conftest import Stage
from tests.agents.rigs import CUT, RIGS, WORDS, Rig
from tests.fake_model.server import SECRET_PROSE
from tests.integration.conftest import House

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.parametrize("rig", RIGS, ids=[rig.name for rig in RIGS]),
]

LIMIT = {"wall_clock": 40}
"""Some agents try for minutes; then the partial is the point."""


def noted(stage: Stage, rig: Rig, case: str, done: DelegationResult) -> str:
    """Keep it for the table, and look at what holds for every ending."""
    result = done.result
    stage.report.note(rig, case, result.stop_reason)
    assert result.disposal_error is False
    assert SECRET_PROSE not in (result.diagnostic or "")
    assert SECRET_PROSE not in text_of(result.output)
    return result.stop_reason


async def until_text(house: House, id: str, words: str) -> None:
    """Return when the child is seen to have said this."""
    from lastword.watching import EventSeen

    said = ""
    async with asyncio.timeout(90):
        async for item in house.client.watch(id):
            if isinstance(item, EventSeen) and item.event.type == "assistant/chunk":
                said += str(item.event.data.get("chunk", {}).get("text", ""))
            if words in said:
                return


async def test_it_completes_with_the_models_words_alone(stage: Stage, rig: Rig) -> None:
    stage.report.note(rig, "version", installed_backends(agents=rig.agents)[rig.backend].version() or "unknown")
    async with stage.worker(rig):
        done = await stage.house.client.run(stage.request(rig, "say hello [[scn:text]]", limits=LIMIT))
    assert noted(stage, rig, "text", done) == "completed", done.result.diagnostic
    assert text_of(done.result.output) == WORDS


@pytest.mark.parametrize(
    ("case", "meant", "scenario"),
    [
        ("cut", "max-tokens", "length"),
        ("cut-call", "max-tokens", "length_tool"),
        ("refusal", "refusal", "refusal"),
        ("drop", "error", "drop"),
        ("http401", "error", "http401"),
    ],
)
async def test_what_goes_wrong_at_its_model(stage: Stage, rig: Rig, case: str, meant: str, scenario: str) -> None:
    async with stage.worker(rig):
        done = await stage.house.client.run(stage.request(rig, f"do it [[scn:{scenario}]]", limits=LIMIT))
    reason = noted(stage, rig, case, done)
    assert reason == rig.seen.get(case, meant), (done.result.diagnostic, done.result.output)
    if case == "cut" and reason != "error":
        assert CUT in text_of(done.result.output)
    assert done.tool_result.is_error is (reason != "completed")


async def test_a_cancel_keeps_what_it_said(stage: Stage, rig: Rig) -> None:
    async with stage.worker(rig):
        id = await stage.house.client.start(stage.request(rig, "count [[scn:slow:400]]"))
        if rig.name in ("dsh", "deepseek-harness"):
            await until_requested(stage)
        else:
            await until_text(stage.house, id, "tick2 ")
        done = await stage.house.client.cancel(id)
    assert noted(stage, rig, "cancel", done) == "aborted"
    assert text_of(done.result.output).startswith("tick0 tick1 tick2 ")


async def until_requested(stage: Stage) -> None:
    """For an agent that tells its words only when a message is whole."""
    async with asyncio.timeout(60):
        while "slow" not in stage.fake.scenarios:
            await asyncio.sleep(0.05)
    await asyncio.sleep(2)


@pytest.mark.parametrize("decision", ["reject", "allow"])
async def test_a_permission_decides_whether_a_file_is_written(stage: Stage, rig: Rig, decision: str) -> None:
    tool, arguments = rig.tool
    prompt = f"write [[scn:tool:{tool}:{json.dumps(arguments)}]]"
    request = stage.request(rig, prompt, permissions={"mode": decision}, limits=LIMIT)
    if rig.starts_only_if_allowed and decision == "reject":
        async with stage.worker(rig):
            with pytest.raises(RequestRejected, match="asks for no permissions"):
                await stage.house.client.run(request)
        stage.report.note(rig, "asked-reject", "not asked")
        stage.report.note(rig, "written-reject", "not started")
        return
    async with stage.worker(rig):
        done = await stage.house.client.run(request)
    log = [item async for item in stage.house.client.log(done.id)]
    decisions = [item.data["fact"]["decision"] for item in log if item.type == "permission/decision"]  # type: ignore[union-attr]
    written = (stage.workspace / "out.txt").exists()
    noted(stage, rig, f"permission-{decision}", done)
    stage.report.note(rig, f"asked-{decision}", "asked" if decisions else "not asked")
    stage.report.note(rig, f"written-{decision}", "written" if written else "not written")
    assert set(decisions) <= {decision}
    if rig.asks:
        assert decisions
        assert written is (decision == "allow"), done.result.output


async def test_it_goes_on_after_its_worker_was_killed(stage: Stage, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LASTWORD_TEST_AGENTS", json.dumps(rig.agents))
    tool, arguments = rig.tool
    prompt = f"write, then count [[scn:tool_then_slow:{tool}:{json.dumps(arguments)}]]"
    worker = await stage.house.worker_process().start()
    try:
        id = await stage.house.client.start(stage.request(rig, prompt, permissions={"mode": "allow"}))
        async with asyncio.timeout(90):
            while "counting" not in stage.fake.scenarios:
                await asyncio.sleep(0.05)
        await asyncio.sleep(1)
        await worker.kill()
        # Some ask their model for a title beside; what counts is what is bought from here on.
        before = len(stage.fake.scenarios)
    finally:
        await worker.stop()
    other = await stage.house.worker_process().start()
    try:
        done = await stage.house.client.result(id)
    finally:
        await other.stop()
    reason = noted(stage, rig, "killed", done)
    bought = stage.fake.scenarios[before:].count("tool_then_slow")
    stage.report.note(rig, "resume", {True: "yes", False: "no", None: "at times"}[rig.resumes])
    assert bought == 0, stage.fake.scenarios
    if rig.resumes or (rig.resumes is None and reason == "completed"):
        assert done.result.attempts == 2
        assert reason == "completed", done.result.diagnostic
        assert text_of(done.result.output).endswith("All of it: counted.")
    else:
        # It has called a tool and keeps no session: what is left is its last word.
        assert reason == "error"
        assert "tick0 " in text_of(done.result.output)
    assert not await asyncio.to_thread(_marked, str(stage.workspace))


def _marked(workspace: str) -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            if MARK in process.environ() and process.cwd() == workspace:
                found.append(process.name())
        except (psutil.Error, OSError):
            continue
    return found
