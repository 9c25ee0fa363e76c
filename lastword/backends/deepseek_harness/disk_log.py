"""What DeepSeek Harness wrote of a session to its own disk: the words that it tells nobody when it is shut down.

The format is the harness's own (`DSH_HOME/sessions/FOLDER/SESSION/session.vN.jsonl.zstd`, seen with 0.2.1rc2): one
event a line, compressed in frames. What cannot be read is left out; the last line may be half written.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import zstandard

_MAX_BYTES: Final = 256 * 1024 * 1024


def events_on_disk(home: str, session_id: str, *, after_seq: int) -> list[dict[str, Any]]:
    """The session's events with a greater `seq`, in order. Reads files: not for an event loop."""
    found: dict[int, dict[str, Any]] = {}
    for file in sorted(Path(home, "sessions").glob(f"*/{_plain(session_id)}/session.v*.jsonl*")):
        for event in _events(file):
            seq = event.get("seq")
            if isinstance(seq, int) and seq > after_seq:
                found[seq] = event
    return [found[seq] for seq in sorted(found)]


def _plain(session_id: str) -> str:
    # Ours are made of letters and digits; a name with wildcards in it is none of ours.
    return session_id if session_id.replace("-", "").isalnum() else "none"


def _events(file: Path) -> Iterator[dict[str, Any]]:
    try:
        raw = file.read_bytes()
    except OSError:
        return
    for line in _text(raw, compressed=file.suffix == ".zstd").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event


def _text(raw: bytes, *, compressed: bool) -> str:
    if compressed:
        pieces: list[bytes] = []
        size = 0
        reader = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(raw), read_across_frames=True)
        try:
            while size < _MAX_BYTES and (piece := reader.read(1 << 20)):
                pieces.append(piece)
                size += len(piece)
        except zstandard.ZstdError:
            pass  # a frame that was being written; what came before it counts
        raw = b"".join(pieces)
    return raw.decode(errors="replace")
