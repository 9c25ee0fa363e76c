"""Publishing the lifecycle pair: every observer is told, none can harm the turn or another observer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from lastword.core import options
from lastword.core.contract import LifecycleEdge, StopReason, TurnSpec
from lastword.core.events import Block, text_of
from lastword.core.ports import LifecycleObserver

logger = logging.getLogger("lastword.lifecycle")


class LogLineObserver:
    """The default observer: one log line an edge. It tells sizes, not the child's words."""

    async def on_edge(self, edge: LifecycleEdge) -> None:
        if edge.type == "subagent/start":
            logger.info("%s id=%s run_id=%s backend=%s", edge.type, edge.id, edge.run_id, edge.backend)
        else:
            chars = len(text_of(edge.last_assistant_message or []))
            logger.info(
                "%s id=%s run_id=%s backend=%s stop_reason=%s chars=%d",
                edge.type, edge.id, edge.run_id, edge.backend, edge.stop_reason, chars,
            )  # fmt: skip


class Lifecycle:
    """The edges of one turn."""

    def __init__(self, observers: Sequence[LifecycleObserver], spec: TurnSpec) -> None:
        self._observers = observers
        self._spec = spec

    async def started(self) -> None:
        await self._publish(self._edge("subagent/start"))

    async def ended(self, stop_reason: StopReason, output: list[Block] | None) -> None:
        await self._publish(self._edge("subagent/end", stop_reason, output))

    def _edge(
        self, type: str, stop_reason: StopReason | None = None, output: list[Block] | None = None
    ) -> LifecycleEdge:
        spec = self._spec
        return LifecycleEdge.model_validate(
            {
                "type": type,
                "run_id": spec.turn_run_id,
                "backend": spec.task.backend,
                "id": spec.id,
                "parent_id": spec.parent_id,
                "stop_reason": stop_reason,
                "last_assistant_message": output or None,
            }
        )

    async def _publish(self, edge: LifecycleEdge) -> None:
        for observer in self._observers:
            try:
                async with asyncio.timeout(options.OBSERVER_GRACE):
                    await observer.on_edge(edge)
            except Exception:
                logger.warning("observer %s failed at %s", type(observer).__name__, edge.type, exc_info=True)
