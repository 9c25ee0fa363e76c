"""The checkpoint: what a turn's heartbeat carries, enough to continue the turn or to settle it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from lastword.core.contract import SessionRef
from lastword.core.errors import CheckpointInvalid
from lastword.core.events import JsonObject
from lastword.core.tally import Tally

VERSION: Final = 1


class Checkpoint(BaseModel):
    """The state of one attempt at one moment.

    Every event before `sealed_seq` is in the session log; `tail` holds the packed rows (see `packing`) of those from
    there on. `fold` and `tally` stand at `sealed_seq`: pushing the tail brings them to the moment of the checkpoint.
    `fold` is None when it is too large to travel; then the log is folded again.
    """

    model_config = ConfigDict(extra="ignore")

    version: int = VERSION
    attempt: int
    sealed_seq: int
    fold: JsonObject | None = None
    tally: Tally = Tally()
    tail: list[JsonObject] = []
    session: SessionRef | None = None
    started: int | None = None
    """When the turn started, epoch milliseconds; None if it has not been published yet."""
    beats: int = 0
    interval_ms: int | None = None


def checkpoint_of(details: Sequence[Any]) -> Checkpoint | None:
    """The checkpoint in heartbeat or error details (which come back as plain data), or None if there is none.

    Raises CheckpointInvalid for one that this version cannot read.
    """
    if not details:
        return None
    data = details[0]
    if isinstance(data, Checkpoint):
        return data
    version = data.get("version") if isinstance(data, dict) else None
    if version != VERSION:
        raise CheckpointInvalid(
            f"The checkpoint has version {version!r}, this worker reads {VERSION}."
            " Run it on a worker of the version that wrote it."
        )
    try:
        return Checkpoint.model_validate(data)
    except ValidationError as error:
        raise CheckpointInvalid(f"The checkpoint is malformed in {error.error_count()} places.") from error
