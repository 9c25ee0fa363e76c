"""The tool by which an agent of somebody else's framework delegates: an async function, as all of them take it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from temporalio import workflow

from lastword.client import DelegationClient
from lastword.core import names
from lastword.core.contract import DelegationRequest, DelegationResult
from lastword.core.errors import ConfigurationError
from lastword.core.events import text_of


class Delegate(Protocol):
    """What `delegate_tool` gives."""

    __name__: str

    def __call__(self, prompt: str, label: str | None = None) -> Awaitable[str]: ...


def delegate_tool(
    client: DelegationClient | None = None, *, task_queue: str = names.TASK_QUEUE, **setup: Any
) -> Delegate:
    """A function `delegate(prompt, label=None)` that gives a child's last word as text, marked if it did not finish.

    In a workflow it starts a Temporal child workflow on `task_queue`, which is cancelled with its parent and is below
    it in the tree; anywhere else it takes the `client`. `setup` is how the child runs: the fields of
    `DelegationRequest` (`backend`, `model`, `limits`, ...), which are the deployment's and not the model's.

    pydantic-ai takes it as a tool as it is, the OpenAI Agents SDK by `function_tool`, LangChain by `tool`.
    Raises ValidationError for a wrong setup.
    """
    DelegationRequest.model_validate({**setup, "prompt": "checked now, not at the first call"})
    run = _runner(client, task_queue)

    async def delegate(prompt: str, label: str | None = None) -> str:
        """Hand a part of the task to another agent and get its answer.

        Use it for work that stands on its own. The other agent sees nothing of this conversation.

        Args:
            prompt: The whole task, standing on its own: goal, material or where it is, and what to give back.
            label: A few words that name it.
        """
        done = await run(DelegationRequest.model_validate({**setup, "prompt": prompt, "label": label}))
        return text_of(done.tool_result.content)

    return delegate


def _runner(
    client: DelegationClient | None, task_queue: str
) -> Callable[[DelegationRequest], Awaitable[DelegationResult]]:
    async def run(request: DelegationRequest) -> DelegationResult:
        if workflow.in_workflow():
            return await _as_child(request, task_queue)
        if client is None:
            raise ConfigurationError("Outside of a workflow delegate_tool needs a client: delegate_tool(client, ...).")
        return await client.run(request)

    return run


async def _as_child(request: DelegationRequest, task_queue: str) -> DelegationResult:
    parent = workflow.info().workflow_id
    asked = request.model_copy(update={"parent_id": parent})
    done: DelegationResult = await workflow.execute_child_workflow(
        names.DELEGATION_WORKFLOW,
        asked,
        # The tree is in the ids: `lastword tree PARENT` shows it.
        id=f"{parent}/{workflow.uuid4().hex[:8]}",
        task_queue=task_queue,
        result_type=DelegationResult,
        memo=names.start_memo(asked.fingerprint(), asked.backend, asked.label, asked.model),
        static_summary=asked.summary,
    )
    return done
