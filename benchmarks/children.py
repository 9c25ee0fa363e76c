"""Children that go on, and many of them: messages a second, listing ten thousand, a tree of a thousand."""

from __future__ import annotations

import asyncio
import tempfile
import uuid

from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from benchmarks.bare import BareWorkflow, bare_activity
from benchmarks.house import rate, scripted, timed
from lastword.backends.scripted import ScriptedBackend
from lastword.client import DelegationClient
from lastword.conversing import ConversationClient
from lastword.core import names
from lastword.core.conversation import ConversationRequest
from lastword.sessions import open_store
from lastword.trees import tree
from lastword.worker import open_worker

MESSAGES = 60
CONVERSATIONS = 200
EACH = 3
LISTED = 10_000
NODES = 1_000
_STARTS_AT_ONCE = 50


async def conversations(env: WorkflowEnvironment) -> None:
    """Messages through one conversation, and over many, each against a bare workflow with one activity."""
    with tempfile.TemporaryDirectory() as folder:
        client = ConversationClient(env.client, task_queue="ours")
        request = ConversationRequest(backend="scripted")

        async def bare() -> None:
            await env.client.execute_workflow(BareWorkflow.run, "hello", id=uuid.uuid4().hex, task_queue="bare")

        async with (
            Worker(env.client, task_queue="bare", workflows=[BareWorkflow], activities=[bare_activity]),
            open_worker(
                env.client,
                backends={"scripted": ScriptedBackend()},
                store=open_store(folder),
                observers=[],
                task_queue="ours",
            ),
        ):
            one = await client.start(request)
            await asyncio.gather(client.ask(one, "warm"), rate(bare, count=10, at_once=5))
            alone = await rate(bare, count=MESSAGES // 3, at_once=1)
            through_one = await _all_answered(client, [one], MESSAGES)
            ids = [await client.start(request) for _ in range(CONVERSATIONS)]
            plain = await rate(bare, count=CONVERSATIONS * EACH, at_once=40)
            over_many = await _all_answered(client, ids, EACH)
    in_one, in_many = through_one / alone, over_many / plain
    print(f"messages     through one: {through_one:.1f}/s against {alone:.1f}/s bare ones in turn: ratio {in_one:.2f}")
    print(f"messages     over {CONVERSATIONS}: {over_many:.1f}/s against {plain:.1f}/s bare: ratio {in_many:.2f}")


async def _all_answered(client: ConversationClient, ids: list[str], each: int) -> float:
    """Messages a second, from the first one sent to the last one answered."""
    gate = asyncio.Semaphore(40)

    async def talk(id: str) -> str:
        for n in range(each):
            async with gate:
                accepted = await client.send(id, f"message {n}")
        return accepted.message_id

    with timed() as seconds:
        last = await asyncio.gather(*(talk(id) for id in ids))
        await asyncio.gather(*(client.result(id, message_id) for id, message_id in zip(ids, last, strict=True)))
    return len(ids) * each / seconds()


async def listing(env: WorkflowEnvironment) -> None:
    """Children that no worker takes, so that nothing but the listing is measured."""
    client = DelegationClient(env.client, task_queue="nobody")
    await _start(client, [f"child-{n}" for n in range(LISTED)])
    await _until_listed(client, LISTED)
    with timed() as first_page:
        await client.list(limit=50)
    with timed() as all_of_them:
        rows = await client.list(limit=LISTED)
    print(f"list         50 of {LISTED}: {first_page() * 1000:.0f} ms; {len(rows)}: {all_of_them():.2f} s")


async def deep_tree(env: WorkflowEnvironment) -> None:
    """A root, thirty children, and thirty-two below each of them."""
    client = DelegationClient(env.client, task_queue="nobody")
    ids = ["root", *(f"root/{n}" for n in range(1, 31))]
    ids += [f"root/{n}/{m}" for n in range(1, 31) for m in range(1, 34)][: NODES - len(ids)]
    await _start(client, ids)
    await _until_listed(client, NODES)
    with timed() as seconds:
        rows = await tree(client, "root")
    print(f"tree         {len(rows)} nodes: {seconds():.2f} s")


async def _start(client: DelegationClient, ids: list[str]) -> None:
    gate = asyncio.Semaphore(_STARTS_AT_ONCE)
    request = scripted({"delta": "x"})
    memo = names.start_memo(request.fingerprint(), request.backend, request.label, request.model)

    async def start(id: str) -> None:
        async with gate:
            await client.client.start_workflow(
                names.DELEGATION_WORKFLOW, request, id=id, task_queue=client.task_queue, memo=memo
            )

    await asyncio.gather(*(start(id) for id in ids))


async def _until_listed(client: DelegationClient, count: int) -> None:
    async with asyncio.timeout(120):
        while (await client.client.count_workflows(f"TaskQueue = '{client.task_queue}'")).count < count:
            await asyncio.sleep(0.2)
