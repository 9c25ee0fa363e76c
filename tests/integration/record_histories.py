"""Records the histories that `test_replay.py` replays: `python -m tests.integration.record_histories VERSION`."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from lastword.conversing import ConversationClient
from lastword.core.contract import DelegationRequest
from lastword.core.conversation import ConversationRequest
from lastword.core.errors import RequestRejected
from lastword.process_exit import leave
from tests.integration.conftest import House, scripted, until_exists
from tests.integration.servers import start_dev_server

FOLDER = Path(__file__).parent / "histories"


async def main(version: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        async with await start_dev_server() as env:
            house, path = House(env, Path(folder)), Path(folder)
            hang = [{"delta": "a"}, {"touch": str(path / "here")}, {"fault": "hang"}]
            await record(house, "completed", version, await started(house, scripted({"delta": "a"}, {"message": None})))
            await record(house, "rejected", version, await started(house, DelegationRequest(prompt="x", backend="no")))
            for name in ("cancelled", "cancel_update"):
                (path / "here").unlink(missing_ok=True)
                async with house.worker():
                    id = await house.client.start(scripted(*hang))
                    await until_exists(path / "here")
                    handle = env.client.get_workflow_handle(id)
                    await (handle.cancel() if name == "cancelled" else handle.execute_update("cancel"))
                    await house.client.result(id)
                await record(house, name, version, id)
            id = await house.client.start(
                scripted({"count": {"from": 0, "to": 300, "every_ms": 5}}, {"message": None}), id="handed-over"
            )
            worker = await house.worker_process().start()
            while not (await house.client.describe(id)).checkpoint:
                await asyncio.sleep(0.05)
            await worker.stop()
            await record(house, "handed_over", version, await finished(house, id))
            id = await house.client.start(
                scripted({"count": {"from": 0, "to": 3000, "every_ms": 5}}, on_worker_loss="settle"), id="lost"
            )
            worker = await house.worker_process().start()
            while not (await house.client.describe(id)).checkpoint:
                await asyncio.sleep(0.05)
            await worker.kill()
            await record(house, "lost_and_settled", version, await finished(house, id))
            await record(house, "answered", version, await answered(house))
            ask = {"mode": "ask", "answer_within": 0.5}
            id = await started(house, scripted({"ask": {"kind": "execute"}}, permissions=ask))
            await record(house, "not_answered", version, id)
            await record(house, "conversation", version, await conversed(house, path))
            for name, id in (await delegated(house, path)).items():
                await record(house, name, version, id)
            for name, id in (await reported(house)).items():
                await record(house, name, version, id)
            await record(house, "waiting", version, await waited(house, path))
            async with house.worker():
                handle = await env.client.start_workflow("LastwordPing", id="ping", task_queue=house.queue)
                await handle.result()
            await record(house, "ping", version, "ping")


async def answered(house: House) -> str:
    async with house.worker():
        id = await house.client.start(scripted({"ask": {"kind": "execute"}}, permissions={"mode": "ask"}))
        while not await house.client.questions(id):
            await asyncio.sleep(0.05)
        await house.client.answer(id, "allow")
        await house.client.result(id)
    return id


async def conversed(house: House, path: Path) -> str:
    """Two turns, an interrupt, a rejected message, and a close that drops one."""
    here = path / "conversation-here"
    client = ConversationClient(house.env.client, task_queue=house.queue)
    hang = json.dumps([{"delta": "a"}, {"touch": str(here)}, {"fault": "hang"}])
    async with house.worker():
        id = await client.start(ConversationRequest(backend="scripted"))
        await client.ask(id, "one")
        await client.ask(id, json.dumps([{"delta": "b"}, {"end": "error"}]))
        await client.send(id, hang)
        await until_exists(here)
        await client.interrupt(id)
        here.unlink()
        await client.send(id, hang)
        await client.send(id, "never")
        await until_exists(here)
        await client.close(id, "cancel")
        await client.closed(id)
    return id


async def delegated(house: House, path: Path) -> dict[str, str]:
    """A parent with two children, one refused; and one that is cancelled with its child."""
    here = path / "below-here"
    leaf = json.dumps([{"delta": "leaf"}, {"touch": str(here)}, {"fault": "hang"}])
    calls = [{"delegate": {"id": str(n), "prompt": "x"}} for n in range(3)]
    two = scripted(*calls, {"message": None}, delegation={"max_children": 2})
    one = scripted({"delegate": {"id": "a", "prompt": leaf}}, delegation={})
    async with house.worker():
        # By its name: a parent's id is in its children's, and a replay has to have the same.
        await house.client.run(two, id="delegated")
        await house.client.start(one, id="felled")
        await until_exists(here)
        await house.client.cancel("felled")
    return {"delegated": "delegated", "felled": "felled"}


async def reported(house: House) -> dict[str, str]:
    """A parent with a child in the background that reports, and a continuable one that is asked more."""

    def call(call_id: str, tool: str, /, **arguments: str) -> dict[str, object]:
        return {"host": {"id": call_id, "tool": tool, "arguments": arguments}}

    said = json.dumps([call("r", "report", text="a finding"), {"delta": "leaf"}, {"message": None}])
    steps = [
        call("s", "report", text="begun"),
        {"delegate": {"id": "a", "prompt": said, "background": True}},
        call("b", "result", id="reporting/1"),
        {"delegate": {"id": "c", "prompt": said, "continuable": True}},
        call("d", "ask", id="reporting/2", prompt="more"),
        {"message": None},
    ]
    async with house.worker():
        await house.client.run(scripted(*steps, delegation={}, reports=True), id="reporting")
        await ConversationClient(house.env.client, task_queue=house.queue).closed("reporting/2")
    return {"reporting": "reporting", "reporting_child": "reporting/1", "asked_child": "reporting/2"}


async def waited(house: House, path: Path) -> str:
    """A conversation that goes on with what its child said."""
    client = ConversationClient(house.env.client, task_queue=house.queue)
    request = ConversationRequest.model_validate({"backend": "scripted", "delegation": {"on_end": "wait"}})
    gate = path / "waiting-gate"
    leaf = json.dumps([{"wait_for": str(gate)}, {"delta": "leaf"}, {"message": None}])
    hand_on = json.dumps([{"delegate": {"id": "a", "prompt": leaf, "background": True}}, {"message": None}])
    async with house.worker():
        id = await client.start(request, id="waiting")
        await client.ask(id, hand_on)
        gate.touch()
        while (await client.status(id)).turn < 2:
            await asyncio.sleep(0.05)
        await client.close(id)
        await client.closed(id)
    return id


async def started(house: House, request: DelegationRequest) -> str:
    return await finished(house, await house.client.start(request))


async def finished(house: House, id: str) -> str:
    async with house.worker():
        with suppress(RequestRejected):
            await house.client.result(id)
    return id


async def record(house: House, name: str, version: str, id: str) -> None:
    history = await house.env.client.get_workflow_handle(id).fetch_history()
    (FOLDER / f"{name}-{version}.json").write_text(history.to_json())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
    leave(0)
