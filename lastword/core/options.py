"""Every pace, grace and bound of a delegation, in one place, with its reason.

Plain numbers; times in seconds. What Temporal needs in its own types is made of them in `workflows/options.py`.
"""

from __future__ import annotations

HEARTBEAT_TIMEOUT = 10.0
"""How long a dead worker goes unnoticed. Shorter would take a busy event loop for a dead one."""

BEAT_INTERVAL = 0.2
"""Between two checkpoints. The SDK's throttle is set to the same, for a crash costs about pace plus throttle."""

FIRST_BEAT_AFTER = 0.05
"""After the first news. A child that is done sooner needs no beat, which would cost its result a write more."""

BEATS_PER_SECOND = 500
"""What one worker may send. With more children than 100 the pace of each stretches to keep to it."""

KEEP_ALIVE = 0.5
"""The latest checkpoint is sent again after this long without news. A cancel arrives with the answer to a beat, so this
is how long a silent child may go on after one."""

OWNERSHIP_PROBE = 1.0
"""How often a worker asks whether its server answers."""

OWNERSHIP_LOST_AFTER = HEARTBEAT_TIMEOUT / 2
"""A worker that missed its server this long disposes its children, well before their next attempts can begin."""

CANCEL_GRACE = 5.0
"""How long a child may take to end by itself after it was asked to."""

DISPOSE_GRACE = 30.0
"""How long disposing a child may take before the result goes out with a note about it."""

OBSERVER_GRACE = 5.0
"""How long one observer may take for one edge."""

SHUTDOWN_GRACE = 60.0
"""What a worker has to hand its turns over; it ends as soon as they are. More than disposing needs."""

MAX_INLINE_FOLD = 6 * 1024
"""Characters of fold state that travel in a checkpoint; larger is folded again from the log."""

MAX_TAIL = 16 * 1024
"""Bytes of unsealed events in a checkpoint. Beyond it the child waits for the log."""

SEAL_AT = 8 * 1024
"""Bytes of unsealed events that are worth a segment: about 4 KB compressed."""

CACHED_WORKFLOWS = 50
"""Waiting delegations that a worker keeps in memory, at about 75 KB each. Another one costs a replay of seven events
when its child is done."""

STICKY_TIMEOUT = 1.0
"""A dead worker's cached workflows move on after this; with the SDK's default a cancel took 10 s instead of 2."""
