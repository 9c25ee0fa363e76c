"""Every example of a parent runs, offline, and its child answers; the Python face does what it says."""

from __future__ import annotations

import asyncio
import sys

import pytest
from pydantic import ValidationError
from temporalio.client import Client
from temporalio.worker import Replayer, Worker

import lastword
from lastword.core.errors import ConfigurationError, ServerUnreachable
from lastword.core.events import text_of
from lastword.watching import Closed
from tests.integration.conftest import House, scripted
from tests.integration.parent_workflow import ParentWorkflow
from tests.integration.test_cli import Terminal, terminal

__all__ = ["terminal"]


async def run(terminal: Terminal, *words: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, env={**terminal.env, "CHILD_BACKEND": "scripted"},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(90):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["examples/plain_temporalio.py", "three plain words"], "completed\nthree plain words\n"),
        (["-m", "examples.parent_pydantic_ai"], "My child says: Tell me a short story\n"),
        (["-m", "examples.parent_langgraph"], "My child says: Tell me a short story\n"),
        (["-m", "examples.parent_openai_agents"], "My child has told a story.\n"),
    ],
    ids=["temporalio", "pydantic-ai", "langgraph", "openai-agents"],
)
async def test_an_example_runs(terminal: Terminal, words: list[str], said: str) -> None:
    code, out, err = await run(terminal, *words)
    assert code == 0, err
    assert out.startswith(said), err
    if "openai_agents" in words[-1]:
        # Its child is below it in the tree.
        assert out.splitlines()[1].startswith("story-")
        assert out.splitlines()[1].endswith(": completed: Tell me a short story")


def test_what_a_parent_needs_is_there_by_name() -> None:
    for name in lastword.__all__:
        assert getattr(lastword, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = lastword.nonsense


async def test_the_face_without_await(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TEMPORAL_ADDRESS", "LASTWORD_DATA_DIR", "LASTWORD_TASK_QUEUE"):
        monkeypatch.setenv(name, terminal.env[name])

    def work() -> None:
        with lastword.SyncLastword() as client:
            id = client.start(scripted({"delta": "a"}, {"message": None}), id="sync")
            *before, last = client.watch(id)
            assert before
            assert isinstance(last, Closed)
            assert text_of(last.result.result.output) == text_of(client.result(id).result.output) == "a"
            assert [row.id for row in client.tree("sync")] == ["sync"]
            talk = client.converse(lastword.ConversationRequest(backend="scripted"))
            assert text_of(client.ask(talk, "hello").result.output) == "hello"
            hanging = client.start(scripted({"delta": "half"}, {"fault": "hang"}))
            assert client.cancel(hanging).result.stop_reason == "aborted"

    await asyncio.to_thread(work)
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    with pytest.raises(ServerUnreachable):
        await asyncio.to_thread(lastword.SyncLastword().__enter__)


async def test_one_line_makes_somebodys_client_worker_and_replayer_fit(house: House) -> None:
    address = house.env.client.service_client.config.target_host
    client = await Client.connect(address, plugins=[lastword.LastwordPlugin()])
    queue = f"{house.queue}-parent"
    async with house.worker(), Worker(client, task_queue=queue, workflows=[ParentWorkflow]):
        asked = ["three plain words", house.queue]
        handle = await client.start_workflow(ParentWorkflow.run, args=asked, id=f"p-{queue}", task_queue=queue)
        said = await handle.result()
        listed = await lastword.Lastword(client, store=house.store).tree(f"p-{queue}/1")
    assert said == ["three plain words", "three plain words"]
    assert [(row.state, row.last_line) for row in listed] == [("closed", "three plain words")]
    replayer = Replayer(workflows=[ParentWorkflow], plugins=[lastword.LastwordPlugin()])
    await replayer.replay_workflow(await handle.fetch_history())


async def test_the_tool_gives_the_partial_marked_and_refuses_a_wrong_setup(house: House) -> None:
    async with house.worker():
        cut = [{"delta": "half"}, {"end": "max-tokens"}]
        delegate = lastword.delegate_tool(house.client, backend="scripted", options={"script": cut})
        said = await delegate("go", "a label")
    assert said.startswith("The child's reply was cut at its output token limit")
    assert said.endswith("half")
    with pytest.raises(ValidationError):
        lastword.delegate_tool(house.client, limits={"tokens": 0})
    with pytest.raises(ConfigurationError, match="needs a client"):
        await lastword.delegate_tool(backend="scripted")("go")
