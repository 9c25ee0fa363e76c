"""Cutting what is too long: head and tail stay, a mark says what is gone."""

from __future__ import annotations

import json
from collections.abc import Sequence

from lastword.core.events import Block, text_block


def cut_text(text: str, limit: int, hint: str = "") -> str:
    """The text in at most about `limit` bytes of UTF-8: head, a cut mark with the number of bytes left out, tail."""
    raw = text.encode(errors="replace")
    if len(raw) <= limit:
        return text
    # The mark itself is counted as left out of the limit, so that a small limit still shows words of the child.
    half = max(limit // 2, 1)
    head = raw[:half].decode(errors="ignore")
    tail = raw[-half:].decode(errors="ignore")
    gone = len(raw) - len(head.encode()) - len(tail.encode())
    return f"{head}\n[... {gone} bytes cut{hint} ...]\n{tail}"


def encoded_size(blocks: Sequence[Block]) -> int:
    """Bytes of the blocks as JSON."""
    return len(json.dumps(blocks, ensure_ascii=False, separators=(",", ":")).encode(errors="replace"))


def bound_blocks(blocks: Sequence[Block], limit: int) -> tuple[list[Block], int | None]:
    """The blocks within `limit` bytes of JSON, and the whole size if anything had to be cut.

    The longest text is cut first; a block that has no text to cut is replaced by a mark.
    """
    size = encoded_size(blocks)
    if size <= limit:
        return list(blocks), None
    bounded = list(blocks)
    sizes = [encoded_size([block]) for block in bounded]
    if len(bounded) > 1000:
        # Thousands of blocks: keep the outermost ones, so that the marks cannot outgrow the limit.
        gone = len(bounded) - 200
        bounded = [*bounded[:100], text_block(f"[... {gone} blocks cut ...]"), *bounded[-100:]]
        sizes = [encoded_size([block]) for block in bounded]
    while sum(sizes) > limit:
        longest = max(range(len(bounded)), key=sizes.__getitem__)
        room = max(limit - (sum(sizes) - sizes[longest]) - 200, 200)
        bounded[longest] = _shorter(bounded[longest], sizes[longest], room)
        new_size = encoded_size([bounded[longest]])
        if new_size >= sizes[longest]:
            break
        sizes[longest] = new_size
    return bounded, size


def _shorter(block: Block, size: int, room: int) -> Block:
    text = block.get("text")
    if block.get("type") in ("text", "reasoning") and isinstance(text, str):
        # JSON escapes may lengthen what is kept (`\n`, `\u0000`): scale by this text's own ratio.
        ratio = max(size / max(len(text.encode(errors="replace")), 1), 1.0)
        return {**block, "text": cut_text(text, int(room / ratio))}
    return text_block(f"[... a {block.get('type')} block of {size} bytes cut ...]")
