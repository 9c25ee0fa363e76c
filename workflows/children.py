"""The children of a child: the one ledger of what it may delegate, and their end with it."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError, TemporalError

with workflow.unsafe.imports_passed_through():
    from lastword.core import names
    from lastword.core.contract import (
        ChildSetup,
        DelegateCall,
        Delegated,
        DelegationPolicy,
        DelegationRequest,
        DelegationResult,
        Limits,
        TurnSpec,
    )


class Children:
    """Starts children within the limits of one turn's child, and ends them with it.

    Every limit only narrows: what a child is given is taken from what its parent has left.
    """

    def __init__(self, spec: TurnSpec) -> None:
        self._spec = spec
        self._policy = spec.task.delegation or DelegationPolicy()
        self._began = workflow.time()
        self._started: dict[str, str] = {}
        self._live: dict[str, asyncio.Task[None]] = {}
        self._handles: dict[str, Any] = {}
        self._granted: dict[str, Limits] = {}
        self._tokens = 0
        self._cost = 0.0
        self._over = False

    async def start(self, call: DelegateCall) -> Delegated:
        """Start a child for the call; the same call again is the same child.

        Raises ApplicationError of type LimitReached, naming the limit; then there is no child.
        """
        if (known := self._started.get(call.id)) is not None:
            return Delegated(id=known)
        limits = self._check()
        id = f"{self._spec.id}/{len(self._started) + 1}"
        self._started[call.id] = id
        self._granted[id] = limits
        request = self._request(call, limits)
        detached = self._policy.on_end == "detach"
        handle = await workflow.start_child_workflow(
            names.DELEGATION_WORKFLOW,
            request,
            id=id,
            result_type=DelegationResult,
            parent_close_policy=workflow.ParentClosePolicy.ABANDON
            if detached
            else workflow.ParentClosePolicy.REQUEST_CANCEL,
            cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
            memo=names.start_memo(request.fingerprint(), request.backend, request.label, request.model),
            static_summary=request.summary,
        )
        self._handles[id] = handle
        self._live[id] = asyncio.create_task(self._settle(id, handle))
        return Delegated(id=id)

    def cancel(self) -> None:
        """Cancel those that run, unless they are to outlive their parent. They settle to their partials."""
        self._over = True
        if self._policy.on_end != "detach":
            for id in list(self._live):
                self._handles[id].cancel()

    async def end(self) -> None:
        """Their parent's turn is over: cancel them, leave them, or wait for them, as the policy says."""
        self._over = True
        if self._policy.on_end == "detach":
            return
        if self._policy.on_end == "cancel":
            self.cancel()
        await self._settled()

    async def _settled(self) -> None:
        while self._live:
            await asyncio.wait([asyncio.shield(task) for task in self._live.values()])

    async def _settle(self, id: str, handle: Any) -> None:
        """Wait for a child, and take what it has spent from what is left."""
        try:
            result: DelegationResult = await handle
        except (TemporalError, asyncio.CancelledError):
            return
        else:
            if (usage := result.result.usage) is not None:
                self._tokens += usage.tokens
                self._cost += usage.cost_usd or 0.0
        finally:
            self._live.pop(id, None)
            self._granted.pop(id, None)

    def _check(self) -> Limits:
        """The limits of one more child. Raises ApplicationError if a limit is reached."""
        spec = self._spec
        if spec.task.delegation is None or self._over:
            raise _reached("this child may not delegate" if not self._over else "this child's turn is over")
        if spec.depth + 1 > spec.max_depth:
            raise _reached(f"a child would be at depth {spec.depth + 1}, at most {spec.max_depth} is allowed")
        if len(self._live) >= self._policy.max_live:
            raise _reached(f"{len(self._live)} children run already, at most {self._policy.max_live} may at once")
        if len(self._started) >= self._policy.max_children:
            raise _reached(f"{len(self._started)} children were started, at most {self._policy.max_children} may be")
        own = spec.task.limits
        left: dict[str, Any] = own.model_dump()
        if own.tokens is not None:
            left["tokens"] = own.tokens - self._tokens - sum(g.tokens or 0 for g in self._granted.values())
            if left["tokens"] <= 0:
                raise _reached(f"of {own.tokens} tokens none is left for a child")
        if own.cost_usd is not None:
            left["cost_usd"] = own.cost_usd - self._cost - sum(g.cost_usd or 0 for g in self._granted.values())
            if left["cost_usd"] <= 0:
                raise _reached(f"of {own.cost_usd:g} US dollars none is left for a child")
        if own.wall_clock is not None:
            left["wall_clock"] = own.wall_clock - (workflow.time() - self._began)
            if left["wall_clock"] <= 0:
                raise _reached(f"of {own.wall_clock:g} s none is left for a child")
        return Limits.model_validate(left)

    def _request(self, call: DelegateCall, limits: Limits) -> DelegationRequest:
        """A child like its parent, with what it is asked. A backend's own options are not handed down."""
        spec = self._spec
        setup = {name: getattr(spec.task, name) for name in ChildSetup.model_fields if name != "options"}
        return DelegationRequest.model_validate(
            {
                **setup,
                "prompt": call.prompt,
                "label": call.label,
                "limits": limits,
                "output_schema": None,
                "parent_id": spec.id,
                "depth": spec.depth + 1,
                "max_depth": spec.max_depth,
            }
        )


def _reached(limit: str) -> ApplicationError:
    return ApplicationError(f"Not delegated: {limit}.", type=names.ERROR_LIMIT, non_retryable=True)
