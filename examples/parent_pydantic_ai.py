"""A parent in pydantic-ai: an agent with the delegation tool.

Run it beside a `lastword up`: `python -m examples.parent_pydantic_ai`. The parent's model is a fake one that delegates
once, so that it runs offline; set PARENT_MODEL (as pydantic-ai writes it) for a real one.
"""

import asyncio
import os

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import lastword
from lastword.process_exit import leave

TASK = "Tell me a short story"


def fake(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart(f"My child says: {last.content}")])
    return ModelResponse(parts=[ToolCallPart("delegate", {"prompt": TASK, "label": "story"})])


async def main() -> None:
    client = await lastword.connect()
    delegate = lastword.delegate_tool(client, backend=os.environ.get("CHILD_BACKEND", "in-process"))
    parent = Agent(os.environ.get("PARENT_MODEL") or FunctionModel(fake), tools=[delegate])
    done = await parent.run("Have somebody tell a story")
    print(done.output)


if __name__ == "__main__":
    asyncio.run(main())
    leave(0)
