"""A conversation so far as text, for a child that keeps no session of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from lastword.core.events import ASSISTANT_MESSAGE, USER_MESSAGE, Block, text_block, text_of
from lastword.core.ports import Earlier

_HEAD: Final = "This is the conversation so far. Go on with it: answer its last message.\n\n"
_NAMES: Final = {"user": "User", "assistant": "You"}


def with_transcript(earlier: Earlier, prompt: Sequence[Block]) -> list[Block]:
    """The prompt with what was said before in front of it; the prompt alone if nothing was."""
    said = "".join(f"{_NAMES[role]}: {text}\n\n" for role, text in messages(earlier))
    return [text_block(f"{_HEAD}{said}User: "), *prompt] if said else list(prompt)


def messages(earlier: Earlier) -> Iterator[tuple[str, str]]:
    """Role and text of every message that has any, oldest first."""
    for said in earlier.seed:
        if text := text_of(said.blocks):
            yield said.role, text
    for event in earlier.events:
        role = {USER_MESSAGE: "user", ASSISTANT_MESSAGE: "assistant"}.get(event.type)
        message = event.data.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        if role is not None and isinstance(content, list) and (text := text_of(content)):
            yield role, text
