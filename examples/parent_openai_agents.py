"""A parent in the OpenAI Agents SDK on Temporal: agent and child are workflows of one tree.

Run it beside a `lastword up`: `python -m examples.parent_openai_agents`. The parent's model is a fake one that
delegates once, so that it runs offline; leave the model provider out for a real one. The parent has a worker of its
own; its children run on lastword's.
"""

import asyncio
import json
import os
import uuid

from agents import Agent, Runner, function_tool
from temporalio import workflow
from temporalio.client import Client
from temporalio.openai_agents import OpenAIAgentsPlugin
from temporalio.openai_agents.testing import ResponseBuilders, TestModel, TestModelProvider
from temporalio.worker import Worker

import lastword
from lastword.connecting import connect_client
from lastword.process_exit import leave

TASK = "Tell me a short story"
QUEUE = "openai-agents-parent"


@workflow.defn
class StoryWorkflow:
    @workflow.run
    async def run(self, question: str, backend: str, task_queue: str) -> str:
        delegate = function_tool(lastword.delegate_tool(task_queue=task_queue, backend=backend))
        parent = Agent(name="parent", instructions="Delegate what stands on its own.", tools=[delegate])
        return str((await Runner.run(parent, input=question)).final_output)


def fake() -> TestModelProvider:
    replies = [
        ResponseBuilders.tool_call(json.dumps({"prompt": TASK, "label": "story"}), "delegate"),
        ResponseBuilders.output_message("My child has told a story."),
    ]
    return TestModelProvider(TestModel.returning_responses(replies))


async def main() -> None:
    found = await connect_client()
    address = found.client.service_client.config.target_host
    agents = OpenAIAgentsPlugin(model_provider=fake())
    client = await Client.connect(
        address, namespace=found.client.namespace, plugins=[agents, lastword.LastwordPlugin()]
    )
    id = f"story-{uuid.uuid4().hex[:8]}"
    async with Worker(client, task_queue=QUEUE, workflows=[StoryWorkflow]):
        asked = ["Have somebody tell a story", os.environ.get("CHILD_BACKEND", "in-process"), found.task_queue]
        print(await client.execute_workflow(StoryWorkflow.run, args=asked, id=id, task_queue=QUEUE))
    (child,) = await lastword.Lastword(found.client, store=found.store).tree(id)
    print(f"{child.id}: {child.stop_reason}: {child.last_line}")


if __name__ == "__main__":
    asyncio.run(main())
    leave(0)
