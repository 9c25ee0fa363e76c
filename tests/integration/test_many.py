"""Many delegations at once, from Python and from a file."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from lastword.core.contract import DelegationRequest
from lastword.core.errors import RequestInvalid, RequestRejected
from lastword.core.events import text_of
from lastword.many import Asked, delegate_many, run_many
from tests.integration.conftest import House, scripted
from tests.integration.test_cli import Terminal, terminal

__all__ = ["terminal"]


async def test_results_come_in_the_order_asked_and_no_sibling_harms_another(house: House) -> None:
    asked = [Asked(f"{house.queue}-{n}", scripted({"delta": f"{n}"}, {"message": None})) for n in range(12)]
    asked[3] = Asked(f"{house.queue}-3", scripted({"delta": "half"}, {"fault": "raise"}))
    asked[5] = Asked(f"{house.queue}-5", DelegationRequest(prompt="x", backend="nope"))
    async with house.worker():
        settled = await run_many(house.client, asked, concurrency=4)
        # Asked again, each attaches to what there is.
        again = await run_many(house.client, asked, concurrency=12)
    assert [one.index for one in settled] == list(range(12))
    assert [one.completed for one in settled] == [n not in (3, 5) for n in range(12)]
    assert settled[3].result is not None
    assert text_of(settled[3].result.result.output) == "half"
    assert isinstance(settled[5].error, RequestRejected)
    assert [one.result for one in again] == [one.result for one in settled]


async def test_no_more_run_at_a_time_than_was_said(house: House, tmp_path: Path) -> None:
    gates = [tmp_path / f"gate-{n}" for n in range(6)]
    here = [tmp_path / f"here-{n}" for n in range(6)]
    asked = [
        Asked(f"{house.queue}-{n}", scripted({"touch": str(here[n])}, {"wait_for": str(gates[n])}, {"delta": "x"}))
        for n in range(6)
    ]
    async with house.worker():
        stream = delegate_many(house.client, asked, concurrency=2)
        first = asyncio.ensure_future(anext(stream))
        async with asyncio.timeout(30):
            while not (here[0].exists() and here[1].exists()):
                await asyncio.sleep(0.02)
        assert not here[2].exists()
        gates[1].touch()
        assert (await first).index == 1
        for gate in gates:
            gate.touch()
        rest = [one.index async for one in stream]
    assert sorted(rest) == [0, 2, 3, 4, 5]


async def test_a_concurrency_that_no_server_has_room_for_is_refused(house: House) -> None:
    with pytest.raises(RequestInvalid, match="choose 1 to 500"):
        await run_many(house.client, [], concurrency=501)


def _file(folder: Path, *lines: object) -> Path:
    path = folder / "tasks.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    return path


async def test_a_file_of_tasks_gives_a_file_of_results(terminal: Terminal, tmp_path: Path) -> None:
    cut = {"prompt": json.dumps([{"delta": "half"}, {"end": "max-tokens"}])}
    path = _file(tmp_path, "one", {"prompt": "two", "label": "second"}, cut, {"prompt": "x", "backend": "nope"})
    done = await terminal.run("delegate", "--many", str(path), "--backend", "scripted", "--concurrency", "2")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 1
    assert [line["is_error"] for line in lines] == [False, False, True, True]
    assert [line["content"][0]["text"] for line in lines[:2]] == ["one", "two"]
    assert "has no backend 'nope'" in lines[3]["error"]
    kept = (tmp_path / "tasks.results.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in kept] == lines
    assert "4 settled, 2 not completed" in done.err


async def test_after_ctrl_c_the_same_command_goes_on(terminal: Terminal, tmp_path: Path) -> None:
    ran, here, gate = tmp_path / "ran", tmp_path / "here", tmp_path / "gate"
    slow = [
        {"tool": {"id": "s", "appends_to": str(ran)}},
        {"touch": str(here)},
        {"wait_for": str(gate)},
        {"delta": "s"},
    ]
    path = _file(tmp_path, "quick", {"prompt": json.dumps(slow)}, "last")
    words = ("delegate", "--many", str(path), "--backend", "scripted", "--concurrency", "2")
    process = await terminal.start(*words)
    async with asyncio.timeout(60):
        while not here.exists() or not (tmp_path / "tasks.results.jsonl").exists():
            await asyncio.sleep(0.02)
    process.send_signal(signal.SIGINT)
    stopped = await terminal.finish(process)
    assert (stopped.code, stopped.out) == (130, "")
    assert "The same command takes them up again" in stopped.err
    gate.touch()
    done = await terminal.run(*words)
    assert done.code == 0
    assert [json.loads(line)["content"][0]["text"] for line in done.out.splitlines()] == ["quick", "s", "last"]
    assert "settled before" in done.err
    assert ran.read_text() == "s\n"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["fine", 3], "line 2: it is neither an object nor a string"),
        ([{"prompt": "x", "max_tokens": -1}], "line 1: --max-tokens -1"),
        ([{"id": "a", "prompt": "x"}, {"id": "a", "prompt": "y"}], "has the id 'a' twice"),
    ],
)
async def test_a_wrong_line_is_told_before_anything_starts(
    terminal: Terminal, tmp_path: Path, lines: list[object], said: str
) -> None:
    done = await terminal.run("delegate", "--many", str(_file(tmp_path, *lines)), "--backend", "scripted")
    assert (done.code, done.out) == (2, "")
    assert said in done.err


async def test_a_prompt_or_a_file_and_not_both(terminal: Terminal) -> None:
    done = await terminal.run("delegate", "--backend", "scripted")
    assert (done.code, done.out) == (2, "")
    assert "either a prompt or --many" in done.err
