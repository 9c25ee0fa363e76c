"""A parent in LangGraph: a model and a tool node, the delegation among the tools.

Run it beside a `lastword up`: `python -m examples.parent_langgraph`. The parent's model is a function that delegates
once, so that it runs offline; put any chat model with bound tools in its place.
"""

import asyncio
import os

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

import lastword
from lastword.process_exit import leave

TASK = "Tell me a short story"


def model(state: MessagesState) -> MessagesState:
    last = state["messages"][-1]
    if isinstance(last, ToolMessage):
        return {"messages": [AIMessage(f"My child says: {last.content}")]}
    call = {"name": "delegate", "args": {"prompt": TASK, "label": "story"}, "id": "1"}
    return {"messages": [AIMessage("", tool_calls=[call])]}


async def main() -> None:
    client = await lastword.connect()
    delegate = tool(lastword.delegate_tool(client, backend=os.environ.get("CHILD_BACKEND", "in-process")))
    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode([delegate]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    done = await graph.compile().ainvoke({"messages": [HumanMessage("Have somebody tell a story")]})
    print(done["messages"][-1].content)


if __name__ == "__main__":
    asyncio.run(main())
    leave(0)
