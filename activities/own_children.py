"""What a child does with its own children, and tells its parent: all of it through its own workflow's ledger.

The worker's client is used to wait for a child and to end it, never to start one: what it starts would survive a
terminate of the parent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from lastword.activities.own_workflow import OwnWorkflow
from lastword.activities.turn_recorder import TurnRecorder
from lastword.client import DelegationClient
from lastword.conversing import ConversationClient
from lastword.core import events, host_tools, names
from lastword.core.children import ChildEntry, CollectCall, DelegateCall, Delegated
from lastword.core.contract import DelegationResult, SeedMessage, ToolResult, TurnSpec, Usage
from lastword.core.errors import DelegationNotFound, LastwordError, RequestInvalid
from lastword.core.events import text_block
from lastword.core.host_tools import ChildArguments, DelegateArguments, ReportArguments, SayArguments, ToolSpec
from lastword.core.notices import Notice, ReportCall, told


class OwnChildren:
    """The children of one attempt's child. Make it in the activity's own task."""

    def __init__(
        self,
        spec: TurnSpec,
        workflow: OwnWorkflow,
        recorder: TurnRecorder,
        *,
        past: Callable[[], Awaitable[list[SeedMessage]]],
    ) -> None:
        self._spec = spec
        self._workflow = workflow
        self._recorder = recorder
        self._past = past
        self._delegations = DelegationClient(workflow.client)
        self._conversations = ConversationClient(workflow.client)

    async def serve(self, tool: ToolSpec, arguments: Any, *, call_id: str, patience: float | None) -> ToolResult:
        """Do what the tool says. Raises LastwordError if it cannot be done."""
        id = f"{tool.name}-{self._spec.turn_run_id}-{call_id}"
        try:
            match tool.name:
                case host_tools.DELEGATE.name:
                    return await self._delegate(cast(DelegateArguments, arguments), call_id, patience)
                case host_tools.ASK.name | host_tools.SEND.name:
                    said = cast(SayArguments, arguments)
                    call = DelegateCall(
                        id=call_id,
                        prompt=said.prompt,
                        child=self._own(said.id),
                        background=tool is host_tools.SEND,
                        spent=self._spent(),
                    )
                    return await self._start(call, patience)
                case host_tools.RESULT.name:
                    return await self._result(self._own(cast(ChildArguments, arguments).id), id, patience)
                case host_tools.INTERRUPT.name | host_tools.CANCEL.name:
                    child = self._own(cast(ChildArguments, arguments).id)
                    return await self._stop(child, id, for_good=tool is host_tools.CANCEL)
                case host_tools.LIST.name:
                    return _list(await self._entries())
                case _:
                    return await self._report(cast(ReportArguments, arguments).text, call_id)
        except WorkflowUpdateFailedError as error:
            cause = error.cause
            raise RequestInvalid(cause.message if isinstance(cause, ApplicationError) else str(cause)) from None
        except RPCError as error:
            raise LastwordError(f"It could not be reached ({error.status.name}).") from None

    async def _delegate(self, asked: DelegateArguments, call_id: str, patience: float | None) -> ToolResult:
        call = DelegateCall(
            id=call_id,
            prompt=asked.prompt,
            label=asked.label,
            background=asked.background,
            continuable=asked.continuable,
            seed=await self._past() if asked.fork else [],
            spent=self._spent(),
        )
        return await self._start(call, patience)

    async def _start(self, call: DelegateCall, patience: float | None) -> ToolResult:
        id = f"delegate-{self._spec.turn_run_id}-{call.id}"
        started = await self._ledger(names.DELEGATE_UPDATE, call, id, Delegated)
        if call.background:
            return _words(f"Started; its id is {started.id}. Get its answer with `result`.")
        try:
            async with asyncio.timeout(patience):
                done = await self._answer(started)
        except TimeoutError:
            # It goes on; what it settles with is told by `result`, or before the next turn.
            waiting = call.model_copy(update={"background": True})
            await self._ledger(names.DELEGATE_UPDATE, waiting, f"{id}-background", Delegated)
            return _words(f"Your child {started.id} is still at work. Wait on with `result`.")
        self._count(done.result.usage)
        content = list(done.tool_result.content)
        if started.message_id is not None:
            content.append(text_block(f"\n(To ask it more: its id is {started.id}.)"))
        return ToolResult(is_error=done.tool_result.is_error, content=content)

    async def _answer(self, started: Delegated) -> DelegationResult:
        if started.message_id is not None:
            # The ledger hears of it a moment later than whoever asks the child; it is what the next call goes by.
            await self._settled(started.id)
            return await self._conversations.result(started.id, started.message_id)
        return await self._delegations.result(started.id)

    async def _result(self, child: str, id: str, patience: float | None) -> ToolResult:
        try:
            async with asyncio.timeout(patience):
                await self._settled(child)
            still = False
        except TimeoutError:
            still = True
        notices: list[Notice] = await self._ledger(names.COLLECT_UPDATE, CollectCall(child=child), id, list[Notice])
        for notice in notices:
            self._count(notice.usage)
        words = [told(notices)] if notices else []
        if still:
            words.append(f"Your child {child} is still at work. Wait on with `result`.")
        elif not any(notice.kind == "settlement" for notice in notices):
            words.append(f"Your child {child} has nothing new to tell.")
        return _words("\n\n".join(words))

    async def _settled(self, child: str) -> None:
        growth = self._workflow.growth()
        await growth.grown()
        while (await self._entry(child)).state == "running":
            await growth.grown()

    async def _stop(self, child: str, id: str, *, for_good: bool) -> ToolResult:
        entry = await self._entry(child)
        if entry.state == "settled":
            return _words(f"Your child {child} has ended already.")
        if not entry.continuable:
            await self._delegations.cancel(child)
        elif for_good:
            await self._conversations.close(child, "cancel")
            await self._conversations.closed(child)
        else:
            await self._conversations.interrupt(child)
        return await self._result(child, id, None)

    async def _report(self, text: str, call_id: str) -> ToolResult:
        await self._recorder.record(events.child_report(text, turn=self._spec.turn))
        await self._recorder.seal()
        id = f"report-{self._spec.turn_run_id}-{call_id}"
        await self._ledger(names.REPORT_UPDATE, ReportCall(id=call_id, text=text), id, Notice)
        return _words("Reported.")

    def _own(self, child: str) -> str:
        """The id, if it is a child of this child: not itself, nor a sibling, nor a child's child."""
        if child.rpartition("/")[0] != self._spec.id:
            raise RequestInvalid(f"{child!r} is not a child of yours; `list` shows which are.")
        return child

    async def _entry(self, child: str) -> ChildEntry:
        for entry in await self._entries():
            if entry.id == child:
                return entry
        raise DelegationNotFound(f"You have no child {child!r}; `list` shows which you have.")

    async def _entries(self) -> list[ChildEntry]:
        found: list[ChildEntry] = await self._workflow.query(names.CHILDREN_QUERY, list[ChildEntry])
        return found

    async def _ledger(self, name: str, argument: Any, id: str, kind: Any) -> Any:
        return await self._workflow.update(name, argument, id=id, result_type=kind)

    def _spent(self) -> Usage | None:
        """By the child itself; what its children spend the ledger knows."""
        usage = self._recorder.tally.usage
        return usage if usage.known else None

    def _count(self, usage: Usage | None) -> None:
        """What a child has spent is spent of its parent's limits."""
        if usage is not None:
            tally = self._recorder.tally
            tally.delegated = tally.delegated + usage


def _list(entries: Sequence[ChildEntry]) -> ToolResult:
    lines = [" ".join(part for part in (e.id, e.state, e.stop_reason, e.label) if part) for e in entries]
    return _words("\n".join(lines) or "You have no children.")


def _words(text: str) -> ToolResult:
    return ToolResult(is_error=False, content=[text_block(text)])
