"""In-process children: any model that pydantic-ai has a provider for, with MCP servers as tools.

Importing this needs no pydantic-ai; that is loaded when a child is opened or its requirements are checked.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version as version_of
from typing import TYPE_CHECKING

from lastword.core.contract import Capabilities, ChildTask, TurnSpec
from lastword.core.errors import RequestRejected
from lastword.core.ports import ChildHost, Earlier, Resume

if TYPE_CHECKING:
    from lastword.backends.in_process.turn import InProcessTurn

LOCAL_PREFIX = "local:"

_CAPABILITIES = Capabilities(
    model=True,
    persona=True,
    cwd=True,
    mcp_servers=True,
    tool_filter=True,
    output_schema=True,
    max_tokens=True,
    delegation=True,
    usage=True,
    resume="log",
)


class InProcessBackend:
    """Runs a model in the worker's own process.

    `default_model` serves tasks that name none. `local_model_url` is an OpenAI-compatible server for models named
    `local:NAME`. `retries` is how often a model request that failed before it said anything is tried again, for
    failures that may pass (429, 5xx, no connection).
    """

    name = "in-process"
    capabilities = _CAPABILITIES

    def __init__(
        self, *, default_model: str | None = None, local_model_url: str | None = None, retries: int = 2
    ) -> None:
        self._default_model = default_model
        self._local_model_url = local_model_url
        self._retries = retries
        # Models that were seen to be usable. Finding out makes a whole client, some 50 ms of work: once is enough, for
        # neither the packages nor the environment of a process change.
        self._usable: set[str] = set()

    def missing(self, task: ChildTask | None = None) -> list[str]:
        if importlib.util.find_spec("pydantic_ai") is None:
            return ["pydantic-ai is not installed where the worker runs: pip install 'lastword[in-process]'."]
        model = (task.model if task else None) or self._default_model
        if model is None:
            return ["No model is chosen: give --model PROVIDER:NAME, or set LASTWORD_MODEL for the worker."]
        if model.startswith(LOCAL_PREFIX) and not self._local_model_url:
            return [f"The model {model!r} needs the local model server: start `lastword up --local-model`."]
        if model in self._usable:
            return []
        from lastword.backends.in_process.model import why_unusable

        if reason := why_unusable(model, self._local_model_url):
            return [reason]
        self._usable.add(model)
        return []

    def version(self) -> str | None:
        return version_of("pydantic-ai-slim") if importlib.util.find_spec("pydantic_ai") else None

    @asynccontextmanager
    async def open(
        self, spec: TurnSpec, resume: Resume | None, host: ChildHost, earlier: Earlier | None = None
    ) -> AsyncIterator[InProcessTurn]:
        # Imported in a thread: it takes seconds, and the event loop beats for other children meanwhile.
        await asyncio.to_thread(importlib.import_module, "lastword.backends.in_process.turn")
        from lastword.backends.in_process.model import open_model
        from lastword.backends.in_process.tools import ToolBox
        from lastword.backends.in_process.turn import InProcessTurn

        name = spec.task.model or self._default_model
        assert name is not None, "admission has checked it"
        if spec.task.cwd is not None and not await asyncio.to_thread(os.path.isdir, spec.task.cwd):
            raise RequestRejected(f"The working directory {spec.task.cwd!r} does not exist where the worker runs.")
        async with AsyncExitStack() as stack:
            tools = await stack.enter_async_context(ToolBox.open(spec.task, host))
            model = await asyncio.to_thread(open_model, name, self._local_model_url)
            await stack.enter_async_context(model)
            turn = InProcessTurn(spec, model, tools, resume, earlier, retries=self._retries)
            stack.push_async_callback(turn.aclose)
            yield turn
