"""The tree demo: a root with twenty children, nine more below three of them; a worker is killed, a branch cancelled.

The printed tree accounts for every child.

`make demo-tree` runs it: the children are scripted, so that nothing but Temporal is needed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

from examples.stage import play, state
from lastword.client import DelegationClient
from lastword.core.contract import DelegationPolicy, DelegationRequest
from lastword.trees import TreeRow, tree

CHILDREN = 20
DEEPER = {18, 19, 20}
BELOW = 3
EXPECTED = 1 + CHILDREN + len(DEEPER) * BELOW
COMMIT: dict[str, Any] = {"message": None}


def script(*steps: dict[str, Any]) -> str:
    return json.dumps(steps)


def counting(name: str, *, forever: bool = False) -> str:
    """A child that says its name and counts for some seconds, or until it is cancelled."""
    last: list[dict[str, Any]] = [{"fault": "hang"}] if forever else [COMMIT]
    return script({"delta": f"I am {name}: "}, {"count": {"from": 0, "to": 60, "every_ms": 50}}, *last)


def child(n: int) -> str:
    if n not in DEEPER:
        return counting(f"child {n}")
    calls = [
        {"id": f"c{n}-{m}", "prompt": counting(f"child {n}.{m}", forever=n == CHILDREN), "label": f"child {n}.{m}"}
        for m in range(1, BELOW + 1)
    ]
    return script({"delta": f"I am child {n}, with {BELOW} of my own: "}, {"delegate": calls}, COMMIT)


def root() -> DelegationRequest:
    calls = [{"id": f"c{n}", "prompt": child(n), "label": f"child {n}"} for n in range(1, CHILDREN + 1)]
    return DelegationRequest(
        prompt=script({"delta": "The root, with twenty: "}, {"delegate": calls}, COMMIT),
        backend="scripted",
        label="the root",
        delegation=DelegationPolicy(max_live=CHILDREN, max_children=CHILDREN),
    )


async def until_running(client: DelegationClient, id: str) -> None:
    async with asyncio.timeout(120):
        while len([row for row in await tree(client, id) if row.last_line or row.closed]) < EXPECTED - 1:
            await asyncio.sleep(0.5)


def show(rows: list[TreeRow]) -> None:
    for row in rows:
        name = f"{'  ' * row.depth}{row.label}"
        print(f"{name:<22}{row.stop_reason or row.state:<12}{row.elapsed:>6.1f} s  {row.last_line[-48:]}")


async def main(client: DelegationClient) -> int:
    id = await client.start(root(), id="the-root")
    print(f"the root fans out to {CHILDREN} children, {len(DEEPER)} of which have {BELOW} of their own")
    await until_running(client, id)
    worker = state().worker_pid
    assert worker is not None
    print(f"kill -9 of worker {worker} with {EXPECTED} children under way; the next one takes over in about 10 s")
    os.kill(worker, signal.SIGKILL)
    branch = next(row.id for row in await tree(client, id) if row.label == f"child {CHILDREN}")
    print(f"meanwhile the branch {branch} is cancelled\n", flush=True)
    cut = await client.cancel(branch)
    done = await client.result(id)
    rows = list(await tree(client, id))
    show(rows)
    reasons = [row.stop_reason for row in rows]
    counts = f"{reasons.count('completed')} completed, {reasons.count('aborted')} aborted"
    print(f"\n{len(rows)} of {EXPECTED} accounted for: {counts}")
    wanted = EXPECTED - 1 - BELOW
    whole = len(rows) == EXPECTED and reasons.count("completed") == wanted and reasons.count("aborted") == BELOW + 1
    return 0 if whole and done.result.completed and cut.result.output else 1


if __name__ == "__main__":
    print("starting a Temporal server and a worker ...", flush=True)
    play(main)
