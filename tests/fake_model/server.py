"""The server: OpenAI chat and Responses, Anthropic messages and Gemini, streamed over real HTTP on loopback.

`python -m tests.fake_model.server --port N` serves until it is ended; a test uses `FakeModel` as a context.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
import uuid
from typing import Any

from aiohttp import web

from tests.fake_model.responses import input_messages, is_tool_result, write_responses
from tests.fake_model.scenarios import Call, Drop, Plan, Refuse, Say, Wait, choose
from tests.fake_model.sse import EventStream, Gone

SECRET_PROSE = "provider prose with a secret sk-canary-prose"

_ERRORS = {
    "http500": (500, "server_error", {}),
    "http401": (401, "authentication_error", {}),
    "http404": (404, "not_found_error", {}),
    "http429": (429, "rate_limit_error", {"retry-after": "1"}),
    "http429_long": (429, "rate_limit_error", {"retry-after": "600"}),
}


class FakeModel:
    """The server as an async context; `requests` holds every request body with the scenario it got."""

    def __init__(self, port: int = 0) -> None:
        self._port = port
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.answered = 0
        """So many replies were written to their end."""
        self.failures_left = 0
        """So many of the next requests are answered with a 500, whatever they ask for."""

    async def __aenter__(self) -> FakeModel:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/{path:.*}", self._post)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.5)
        await self._runner.setup()
        self._site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await self._site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def scenarios(self) -> list[str]:
        return [name for name, _ in self.requests]

    async def _post(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        path = request.path
        if path.endswith("/chat/completions"):
            plan = choose(body["messages"], lambda m: m.get("role") == "tool")
            write = _openai
        elif path.endswith("/responses"):
            plan = choose(input_messages(body), is_tool_result)
            write = write_responses
        elif path.endswith("/messages"):
            plan = choose(body["messages"], _is_anthropic_result)
            write = _anthropic
        elif "GenerateContent" in path:
            plan = choose(body["contents"], lambda m: any("functionResponse" in p for p in m.get("parts", [])))
            write = _gemini
        else:
            return web.json_response({"error": {"message": "not here"}}, status=404)
        self.requests.append((plan.name, body))
        name = plan.name
        if self.failures_left > 0:
            self.failures_left -= 1
            name = "http500"
        if name in _ERRORS:
            status, kind, headers = _ERRORS[name]
            error = {"type": "error", "error": {"message": SECRET_PROSE, "type": kind}}
            return web.json_response(error, status=status, headers=headers)
        response = web.StreamResponse(headers={"content-type": "text/event-stream", "cache-control": "no-cache"})
        await response.prepare(request)
        try:
            await write(EventStream(request, response, plan.pace), plan, body)
            await response.write_eof()
            self.answered += 1
        except (Gone, ConnectionError):
            pass
        return response


async def _openai(stream: EventStream, plan: Plan, body: dict[str, Any]) -> None:
    base = {
        "id": f"chatcmpl-{uuid.uuid4().hex[:8]}",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": body.get("model"),
    }

    async def chunk(delta: dict[str, Any], finish: str | None = None) -> None:
        await stream.send({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    await chunk({"role": "assistant", "content": ""})
    calls = 0
    for step in plan.steps:
        match step:
            case Say(text):
                await chunk({"content": text})
            case Wait(seconds):
                await asyncio.sleep(seconds)
            case Drop():
                stream.drop()
            case Refuse(text):
                await chunk({"refusal": text})
            case Call(name, fragments, id):
                function = {"name": name, "arguments": ""}
                call_id = id or f"call_{uuid.uuid4().hex[:6]}"
                call = {"index": calls, "id": call_id, "type": "function", "function": function}
                await chunk({"tool_calls": [call]})
                for fragment in fragments:
                    await chunk({"tool_calls": [{"index": calls, "function": {"arguments": fragment}}]})
                calls += 1
    finish = {"stop": "stop", "length": "length", "tool": "tool_calls", "refusal": "content_filter"}[plan.finish]
    await chunk({}, finish)
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    await stream.send({**base, "choices": [], "usage": usage})
    await stream.send("[DONE]")


async def _anthropic(stream: EventStream, plan: Plan, body: dict[str, Any]) -> None:
    async def send(kind: str, **data: Any) -> None:
        await stream.send({"type": kind, **data}, kind)

    message = {
        "id": f"msg_{uuid.uuid4().hex[:10]}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 11, "output_tokens": 1},
    }
    await send("message_start", message=message)
    index, is_open = -1, False
    for step in plan.steps:
        match step:
            case Say(text):
                if not is_open:
                    index, is_open = index + 1, True
                    await send("content_block_start", index=index, content_block={"type": "text", "text": ""})
                await send("content_block_delta", index=index, delta={"type": "text_delta", "text": text})
            case Wait(seconds):
                await asyncio.sleep(seconds)
            case Drop():
                stream.drop()
            case Call(name, fragments):
                if is_open:
                    await send("content_block_stop", index=index)
                index, is_open = index + 1, False
                block = {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex[:8]}", "name": name, "input": {}}
                await send("content_block_start", index=index, content_block=block)
                for fragment in fragments:
                    delta = {"type": "input_json_delta", "partial_json": fragment}
                    await send("content_block_delta", index=index, delta=delta)
                await send("content_block_stop", index=index)
    if is_open:
        await send("content_block_stop", index=index)
    finish = {"stop": "end_turn", "length": "max_tokens", "tool": "tool_use", "refusal": "refusal"}[plan.finish]
    await send("message_delta", delta={"stop_reason": finish, "stop_sequence": None}, usage={"output_tokens": 7})
    await send("message_stop")


async def _gemini(stream: EventStream, plan: Plan, body: dict[str, Any]) -> None:
    async def send(parts: list[dict[str, Any]], finish: str | None = None) -> None:
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
        if finish:
            candidate["finishReason"] = finish
        usage = {"promptTokenCount": 11, "candidatesTokenCount": 7, "totalTokenCount": 18}
        await stream.send({"candidates": [candidate], "modelVersion": "fake", "usageMetadata": usage})

    for step in plan.steps:
        match step:
            case Say(text):
                await send([{"text": text}])
            case Wait(seconds):
                await asyncio.sleep(seconds)
            case Drop():
                stream.drop()
            case Call(name, fragments):
                arguments = {} if plan.finish == "length" else json.loads("".join(fragments))
                await send([{"functionCall": {"name": name, "args": arguments}}])
    finish = {"stop": "STOP", "length": "MAX_TOKENS", "tool": "STOP", "refusal": "SAFETY"}[plan.finish]
    await send([{"text": ""}], finish)


def _is_anthropic_result(message: dict[str, Any]) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(isinstance(c, dict) and c.get("type") == "tool_result" for c in content)


async def _serve(port: int) -> None:
    async with FakeModel(port) as model:
        print(model.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    try:
        asyncio.run(_serve(parser.parse_args().port))
    except KeyboardInterrupt:
        sys.exit(0)
