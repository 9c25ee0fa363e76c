"""OpenAI's Responses wire format, which is what `openai:NAME` speaks."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

from tests.fake_model.scenarios import Call, Drop, Plan, Refuse, Say, Wait
from tests.fake_model.sse import EventStream

USAGE = {
    "input_tokens": 11,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 18,
}


def input_messages(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The input items as messages, newest last."""
    items = body["input"]
    return list(items) if isinstance(items, list) else [{"role": "user", "content": items}]


def is_tool_result(item: dict[str, Any]) -> bool:
    return str(item.get("type", "")).endswith("_output")


class _Writer:
    """The items of one response: each is added, grows by deltas, and is done."""

    def __init__(self, stream: EventStream, model: str | None) -> None:
        self._stream = stream
        self._sequence = 0
        self._items: list[dict[str, Any]] = []
        self._message: dict[str, Any] | None = None
        self._base = {
            "id": f"resp_{uuid.uuid4().hex[:8]}",
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }

    async def send(self, kind: str, **data: Any) -> None:
        await self._stream.send({"type": kind, "sequence_number": self._sequence, **data}, kind)
        self._sequence += 1

    async def begin(self) -> None:
        await self.send("response.created", response={**self._base, "status": "in_progress", "output": []})

    async def say(self, text: str, kind: str = "output_text") -> None:
        field = "text" if kind == "output_text" else "refusal"
        if self._message is None:
            part: dict[str, Any] = {"type": kind, field: ""}
            if kind == "output_text":
                part["annotations"] = []
            identity = {"type": "message", "id": f"msg_{uuid.uuid4().hex[:6]}", "role": "assistant"}
            self._message = {**identity, "status": "completed", "content": [part]}
            item = {**identity, "status": "in_progress", "content": []}
            await self.send("response.output_item.added", output_index=len(self._items), item=item)
            await self.send("response.content_part.added", **self._place(), part=part)
        self._message["content"][0][field] += text
        await self.send(f"response.{kind}.delta", **self._place(), delta=text, logprobs=[])

    async def call(self, name: str, fragments: tuple[str, ...], id: str | None, whole: bool) -> None:
        await self.close_message()
        namespace, _, bare = name.rpartition("/")
        item = {"type": "function_call", "id": f"fc_{uuid.uuid4().hex[:6]}", "name": bare, "arguments": ""}
        item |= {"namespace": namespace} if namespace else {}
        item |= {"call_id": id or f"call_{uuid.uuid4().hex[:6]}", "status": "in_progress"}
        index = len(self._items)
        await self.send("response.output_item.added", output_index=index, item=item)
        for fragment in fragments:
            await self.send(
                "response.function_call_arguments.delta", item_id=item["id"], output_index=index, delta=fragment
            )
        done = {**item, "arguments": "".join(fragments), "status": "completed" if whole else "incomplete"}
        await self.send("response.output_item.done", output_index=index, item=done)
        self._items.append(done)

    async def close_message(self) -> None:
        if self._message is not None:
            await self.send("response.output_item.done", output_index=len(self._items), item=self._message)
            self._items.append(self._message)
            self._message = None

    async def end(self, cut: str | None) -> None:
        await self.close_message()
        whole = {**self._base, "status": "completed", "output": self._items, "usage": USAGE}
        if cut is None:
            await self.send("response.completed", response=whole)
        else:
            details = {"status": "incomplete", "incomplete_details": {"reason": cut}}
            await self.send("response.incomplete", response={**whole, **details})

    def _place(self) -> dict[str, Any]:
        assert self._message is not None
        return {"item_id": self._message["id"], "output_index": len(self._items), "content_index": 0}


async def write_responses(stream: EventStream, plan: Plan, body: dict[str, Any]) -> None:
    writer = _Writer(stream, body.get("model"))
    await writer.begin()
    for step in plan.steps:
        match step:
            case Say(text):
                await writer.say(text)
            case Refuse(text):
                await writer.say(text, "refusal")
            case Wait(seconds):
                await asyncio.sleep(seconds)
            case Drop():
                stream.drop()
            case Call(name, fragments, id):
                await writer.call(name, fragments, id, plan.finish != "length")
    await writer.end({"length": "max_output_tokens", "refusal": "content_filter"}.get(plan.finish))
