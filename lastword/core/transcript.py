"""A conversation so far as text, for a child that keeps no session of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal

from lastword.core.contract import SeedMessage
from lastword.core.events import ASSISTANT_MESSAGE, USER_MESSAGE, Block, text_block, text_of
from lastword.core.ports import Earlier

_HEAD: Final = "This is the conversation so far. Go on with it: answer its last message.\n\n"
_MAX_SEED_BYTES: Final = 512 * 1024
_ROLES: Final[dict[str, Literal["user", "assistant"]]] = {USER_MESSAGE: "user", ASSISTANT_MESSAGE: "assistant"}
_NAMES: Final = {"user": "User", "assistant": "You"}


def with_transcript(earlier: Earlier, prompt: Sequence[Block]) -> list[Block]:
    """The prompt with what was said before in front of it; the prompt alone if nothing was."""
    said = "".join(f"{_NAMES[role]}: {text}\n\n" for role, text in messages(earlier))
    return [text_block(f"{_HEAD}{said}User: "), *prompt] if said else list(prompt)


def seed_of(earlier: Earlier) -> list[SeedMessage]:
    """The conversation as the past of a fork. Of one that is longer than a request can carry, the newest messages."""
    said = [SeedMessage(role=role, content=text) for role, text in messages(earlier)]
    sizes = [len(message.model_dump_json()) for message in said]
    first = 0
    while sum(sizes[first:]) > _MAX_SEED_BYTES:
        first += 1
    if first:
        said = [SeedMessage(role="user", content=f"[... {first} earlier messages left out ...]"), *said[first:]]
    return said


def messages(earlier: Earlier) -> Iterator[tuple[Literal["user", "assistant"], str]]:
    """Role and text of every message that has any, oldest first."""
    for said in earlier.seed:
        if text := text_of(said.blocks):
            yield said.role, text
    for event in earlier.events:
        role = _ROLES.get(event.type)
        message = event.data.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        if role is not None and isinstance(content, list) and (text := text_of(content)):
            yield role, text
