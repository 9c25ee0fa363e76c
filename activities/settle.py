"""The activity that settles a turn and publishes its end."""

from __future__ import annotations

from collections.abc import Sequence

from lastword.activities.lifecycle import Lifecycle
from lastword.core.contract import TurnResult
from lastword.core.inputs import SettleInput
from lastword.core.ports import LifecycleObserver, SessionStore
from lastword.core.settling import settle_turn


async def settle_and_publish(
    store: SessionStore, observers: Sequence[LifecycleObserver], input: SettleInput
) -> TurnResult:
    """Settle the turn. Edges are published only for a turn whose start was."""
    settled = await settle_turn(store, input)
    if settled.published:
        await Lifecycle(observers, input.spec).ended(settled.result.stop_reason, settled.output)
    return settled.result
