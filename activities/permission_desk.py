"""Answers what a child asks to be permitted: by its policy, or by the person whom the workflow asks."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from temporalio.client import WorkflowUpdateFailedError
from temporalio.service import RPCError

from lastword.activities.own_workflow import OwnWorkflow
from lastword.activities.turn_recorder import TurnRecorder
from lastword.core import events, names
from lastword.core.contract import TurnSpec
from lastword.core.diagnostic import PermissionFact
from lastword.core.events import PERMISSION_DECISION, SessionEvent, now_ms
from lastword.core.permissions import (
    PermissionDecision,
    PermissionPolicy,
    PermissionRequest,
    Question,
    known_kind,
)
from lastword.core.results import latest_permission

_MAX_TITLE = 200

Ask = Callable[[Question], Awaitable[PermissionDecision]]


class PermissionDesk:
    """The host of one attempt's child. Every decision is recorded; questions are asked one at a time."""

    def __init__(
        self,
        spec: TurnSpec,
        policy: PermissionPolicy,
        recorder: TurnRecorder,
        *,
        ask: Ask,
        earlier: Sequence[SessionEvent] = (),
    ) -> None:
        self._spec = spec
        self._policy = policy
        self._recorder = recorder
        self._ask = ask
        self._asking = asyncio.Lock()
        self._waiting = 0
        self.latest = latest_permission(earlier)
        """The turn's latest decision."""
        self._answered = Counter(
            str(event.data.get("id")).rpartition("-")[0] for event in earlier if event.type == PERMISSION_DECISION
        )

    @property
    def waiting(self) -> bool:
        """A person is being asked: the child is not idle."""
        return self._waiting > 0

    async def permission(self, request: PermissionRequest) -> PermissionDecision:
        request = request.model_copy(update={"kind": known_kind(request.kind)})
        workspace, paths = await asyncio.to_thread(_places, self._spec.task.cwd, request.paths)
        verdict, reason = self._policy.decide(request.kind, paths, workspace)
        asked = request.model_dump(mode="json", exclude_none=True)
        if verdict == "ask":
            question_id, decision = await self._ask_a_person(request, asked)
        else:
            question_id, decision = None, PermissionDecision(decision=verdict, reason=reason)
        fact = PermissionFact(
            mode=self._policy.mode, request_kind=request.kind, decision=decision.decision, reason=decision.reason
        )
        self.latest = fact
        event = events.permission_decision(
            asked, fact.model_dump(mode="json"), turn=self._spec.turn, question_id=question_id
        )
        await self._recorder.record(event)
        return decision

    async def _ask_a_person(
        self, request: PermissionRequest, asked: dict[str, object]
    ) -> tuple[str, PermissionDecision]:
        self._waiting += 1
        try:
            async with self._asking:
                # A question that a lost attempt asked, and nobody has answered, is the same question when it comes
                # again; one that was answered is a new one.
                fingerprint = _fingerprint(self._spec, asked)
                question_id = f"{fingerprint}-{self._answered[fingerprint] + 1}"
                await self._recorder.record(events.permission_request(question_id, asked, turn=self._spec.turn))
                await self._recorder.seal()
                decision = await self._ask(
                    Question(
                        id=question_id,
                        delegation_id=self._spec.id,
                        kind=request.kind,
                        title=request.title[:_MAX_TITLE],
                        paths=request.paths,
                        tool_call_id=request.tool_call_id,
                        asked=now_ms(),
                        answer_within=self._policy.answer_within,
                    )
                )
                self._answered[fingerprint] += 1
                return question_id, decision
        finally:
            self._waiting -= 1


def ask_own_workflow(workflow: OwnWorkflow) -> Ask:
    """Asks the workflow, which keeps the question through any loss, and waits for an answer."""

    async def ask(question: Question) -> PermissionDecision:
        try:
            decision: PermissionDecision = await workflow.update(
                names.ASK_UPDATE, question, id=question.id, result_type=PermissionDecision
            )
        except (WorkflowUpdateFailedError, RPCError):
            # The workflow has closed, or knows no questions: nobody can be asked any more.
            return PermissionDecision(decision="reject", reason="policy")
        return decision

    return ask


def _places(cwd: str | None, paths: Sequence[str]) -> tuple[str, list[str]]:
    """The workspace and the paths, absolute and free of links: a link out of the workspace is outside of it."""
    workspace = os.path.realpath(cwd or os.getcwd())
    return workspace, [os.path.realpath(os.path.join(workspace, path)) for path in paths]


def _fingerprint(spec: TurnSpec, asked: dict[str, object]) -> str:
    what = {name: value for name, value in asked.items() if name != "tool_call_id"}
    text = json.dumps([spec.turn_run_id, what], sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:12]
