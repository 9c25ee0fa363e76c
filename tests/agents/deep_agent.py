"""A Deep Agents agent over ACP: what the package leaves to its user."""

from __future__ import annotations

import asyncio

from acp import run_agent
from deepagents import create_deep_agent
from deepagents_acp.server import AgentServerACP
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import MemorySaver

model = ChatOpenAI(model="fake-model", streaming=True, max_retries=0)
asyncio.run(run_agent(AgentServerACP(create_deep_agent(model=model, checkpointer=MemorySaver()))))
