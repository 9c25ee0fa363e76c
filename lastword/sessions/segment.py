"""One segment of a session log: its name and its bytes.

The bytes are gzip, whose checksum tells damage, of JSON lines: a header, then packed rows (`core/packing.py`).
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lastword.core.contract import LogRef
from lastword.core.events import JsonObject
from lastword.core.names import folder_of
from lastword.core.packing import encoded_row

_VERSION: Final = 1
_NAME = re.compile(r"/(\d{6})/(\d{6})/(\d{12})\.lw$")


class SegmentDamaged(ValueError):
    """The bytes are not a whole segment."""


@dataclass(frozen=True, order=True)
class SegmentName:
    """Where a segment stands in its session; the order of names is the order of events."""

    turn: int
    attempt: int
    first_seq: int

    def key(self, log: LogRef) -> str:
        return f"{folder_of(log.session_id, log.run_id)}/{self.turn:06d}/{self.attempt:06d}/{self.first_seq:012d}.lw"

    @classmethod
    def of_key(cls, key: str) -> SegmentName | None:
        """None for an object that is no segment."""
        match = _NAME.search(key)
        return cls(*map(int, match.groups())) if match else None


@dataclass(frozen=True)
class Segment:
    """Events `first_seq` up to, not including, `end_seq`. `closes` ends its attempt's chain for ever."""

    first_seq: int
    end_seq: int
    rows: Sequence[JsonObject]
    closes: bool = False

    def encode(self) -> bytes:
        header: JsonObject = {"v": _VERSION, "first_seq": self.first_seq, "end_seq": self.end_seq}
        if self.closes:
            header["closes"] = True
        lines = [encoded_row(header), *(encoded_row(row) for row in self.rows)]
        # Without a time in it, the same events give the same bytes.
        return gzip.compress(b"\n".join(lines), compresslevel=6, mtime=0)

    @classmethod
    def decode(cls, data: bytes) -> Segment:
        """Raises SegmentDamaged."""
        try:
            header, *rows = [json.loads(line) for line in gzip.decompress(data).split(b"\n")]
            if header["v"] != _VERSION:
                raise SegmentDamaged(f"segment version {header['v']}, this version reads {_VERSION}")
            return cls(int(header["first_seq"]), int(header["end_seq"]), rows, closes=bool(header.get("closes")))
        except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
            raise SegmentDamaged(f"{type(error).__name__}: {error}") from error
