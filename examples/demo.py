"""The demo: four ways a child can end, against a real model on this machine, and what its parent gets each time.

`make demo` runs it. It starts its own server, model and worker on a data directory of its own, and ends them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from dataclasses import dataclass

from examples.stage import play, state
from lastword.client import DelegationClient
from lastword.core.contract import DelegationRequest, DelegationResult
from lastword.core.events import text_of
from lastword.watching import EventSeen, StatusChanged

LONG = "Write a long story about a lighthouse keeper. Do not stop early."


@dataclass
class Row:
    """What the table says of one delegation."""

    name: str
    emitted: int
    got: int
    stop_reason: str
    attempts: int
    note: str


class Demo:
    def __init__(self, client: DelegationClient) -> None:
        self._client = client
        self.rows: list[Row] = []

    async def completes(self) -> None:
        request = DelegationRequest(prompt="Say hello in one sentence.", label="completes")
        await self._play("completes", request)

    async def cancelled(self) -> None:
        async def cancel(id: str) -> None:
            await self._client.cancel(id)

        await self._play("cancelled mid-stream", _long("cancelled"), after=200, act=cancel)

    async def killed(self) -> None:
        async def kill(id: str) -> None:
            worker = state().worker_pid
            assert worker is not None
            print(f"\n  kill -9 of worker {worker}; the next one takes over in about 10 s\n", flush=True)
            os.kill(worker, signal.SIGKILL)

        await self._play("worker killed with -9", _long("killed"), after=200, act=kill)

    async def cut(self) -> None:
        request = DelegationRequest(prompt=LONG, max_tokens=40, label="max-tokens")
        await self._play("runs into max-tokens", request)

    async def _play(self, name: str, request: DelegationRequest, *, after: int = 0, act: object = None) -> None:
        """Show the child's words; once it has said `after` characters, do `act` to it."""
        print(f"\n== {name}", flush=True)
        id = await self._client.start(request)
        emitted, acting, begun = 0, None, time.monotonic()
        async for item in self._client.watch(id):
            if isinstance(item, StatusChanged) and item.progress.attempt > 1:
                print(f"  [attempt {item.progress.attempt}]", flush=True)
            if isinstance(item, EventSeen) and item.event.type == "assistant/chunk":
                text = item.event.data["chunk"].get("text", "")
                emitted += len(text)
                sys.stdout.write(text)
                sys.stdout.flush()
            if callable(act) and acting is None and emitted >= after:
                acting = asyncio.create_task(act(id))
        if acting is not None:
            await acting
        done = await self._client.result(id)
        print()
        self._note(name, emitted, done, time.monotonic() - begun)

    def _note(self, name: str, emitted: int, done: DelegationResult, seconds: float) -> None:
        result = done.result
        got = len(text_of(result.output))
        self.rows.append(Row(name, emitted, got, result.stop_reason, result.attempts, f"{seconds:.1f} s"))

    def table(self) -> str:
        lines = [f"{'':<24}{'child emitted':>14}{'parent got':>12}{'attempts':>10}  stop reason"]
        lines += [
            f"{row.name:<24}{row.emitted:>8} chars{row.got:>6} chars{row.attempts:>10}  {row.stop_reason} ({row.note})"
            for row in self.rows
        ]
        return "\n".join(lines)


def _long(label: str) -> DelegationRequest:
    return DelegationRequest(prompt=LONG, max_tokens=400, label=label)


async def main(client: DelegationClient) -> int:
    demo = Demo(client)
    await demo.completes()
    await demo.cancelled()
    await demo.killed()
    await demo.cut()
    print(f"\n{demo.table()}\n")
    print("After the kill the second attempt asks the model again; the answer it commits is the output, the first")
    print("half stays in the log. Everything else: what the child emitted is what the parent got.")
    return 0 if all(row.got > 0 for row in demo.rows) else 1


if __name__ == "__main__":
    print("starting a Temporal server, the local model and a worker ...", flush=True)
    play(main, "--local-model")
