"""Why a running turn must stop. The first cause stands, but a caller's cancel is never lost to a later one."""

from __future__ import annotations

import asyncio
from typing import Literal, TypeAlias

from lastword.core.contract import StopReason
from lastword.core.diagnostic import Diagnostic

Leave: TypeAlias = Literal["hand-over", "ownership-lost", "interrupted"]


class StopSignal:
    """Set once, by a cancel, a limit, or because this attempt has to leave the turn to another one."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.reason: StopReason | None = None
        self.diagnostic: Diagnostic | None = None
        self.leave: Leave | None = None

    def end_turn(self, reason: StopReason, diagnostic: Diagnostic | None = None) -> None:
        """The turn ends here, with this reason."""
        if not self._event.is_set():
            self.reason, self.diagnostic = reason, diagnostic
            self._event.set()

    def leave_turn(self, why: Leave) -> None:
        """The turn goes on, but not in this attempt."""
        if self.leave is None:
            self.leave = why
            self._event.set()

    async def wait(self) -> None:
        await self._event.wait()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()
