"""A continuable child: what is asked of its conversation, what it tells, and what survives continue-as-new."""

from __future__ import annotations

import json
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, Field

from lastword.core.bounds import cut_text
from lastword.core.children import ChildrenState
from lastword.core.contract import (
    MAX_PROMPT_BYTES,
    CheckedPrompt,
    ChildSetup,
    ChildTask,
    DelegationResult,
    Limits,
    LogRef,
    Prompt,
    SessionRef,
    StartRequest,
    StopReason,
    TurnSpec,
)
from lastword.core.events import text_block
from lastword.core.notices import Notice

CloseMode: TypeAlias = Literal["finish", "cancel", "abandon"]
MessageState: TypeAlias = Literal["queued", "running", "settled", "rejected", "dropped", "unknown"]

MAX_INBOX_BYTES = 512 * 1024
"""Of the messages that wait at once. They travel with the rest of the state in one payload of at most 2 MB."""

MAX_SEEN = 20_000
"""Ids of settled messages that are remembered, so that one that is sent again is the same message."""


class Message(BaseModel):
    """One message to a child. The same id twice is one message."""

    id: str = Field(min_length=1, max_length=200)
    prompt: CheckedPrompt
    result_limit: int | None = Field(default=None, ge=256)
    """Bytes of text that the sender wants in the tool result; longer keeps head and tail."""
    limits: Limits | None = None
    """Of its turn, instead of the conversation's."""

    @property
    def bytes(self) -> int:
        """Of the prompt, about as it travels."""
        return len(json.dumps(self.prompt, ensure_ascii=False).encode(errors="replace"))


class Accepted(BaseModel):
    """A message is in the inbox, or was before: from here on it becomes a turn, or is told to be dropped."""

    message_id: str
    ahead: int
    """Messages before it, the running one among them."""


class Interrupted(BaseModel):
    """What an interrupt ended, and what waits for the next send."""

    message_id: str | None
    parked: int


class CloseRequest(BaseModel):
    """`finish` takes what is queued first; `abandon` ends with the running turn; `cancel` ends that too."""

    mode: CloseMode = "finish"


class Closing(BaseModel):
    """How the conversation ends, and which accepted messages will never become turns."""

    mode: CloseMode
    dropped: list[str] = []


class TurnSummary(BaseModel):
    """One turn that has settled."""

    turn: int
    message_id: str
    stop_reason: StopReason
    attempts: int
    started: int
    ended: int
    tokens: int | None = None


class MessageResult(BaseModel):
    """Where a message is, and what came of it. `result` is there when `state` is `settled`."""

    state: MessageState
    result: DelegationResult | None = None
    error: str | None = None
    """Why it was rejected."""
    shortened: bool = False
    """Only the head and tail of an old turn's output are kept here; the session log has it all."""


class ConversationStatus(BaseModel):
    """A conversation at one moment."""

    id: str
    state: Literal["running", "idle", "waiting", "closed"]
    turn: int
    """The running turn, else the last one; 0 before the first."""
    message_id: str | None = None
    """What the running turn answers."""
    queued: int = 0
    parked: bool = False
    """After an interrupt the queue waits for the next send."""
    closing: CloseMode | None = None
    last: TurnSummary | None = None
    log: LogRef
    next_seq: int = 0
    """Where the log goes on with the running turn, or the next."""


class Kept(BaseModel):
    """What is kept of a message that is not queued any more."""

    state: MessageState
    turn: int = 0
    result: DelegationResult | None = None
    error: str | None = None
    shortened: bool = False


class ConversationState(BaseModel):
    """What survives continue-as-new. Nothing accepted is anywhere else."""

    log: LogRef
    """The run id is that of the conversation's first run: its log goes on through all of them."""
    turn: int = 0
    next_seq: int = 0
    session: SessionRef | None = None
    inbox: list[Message] = []
    parked: bool = False
    closing: CloseMode | None = None
    kept: dict[str, Kept] = {}
    """By message id, what came of the latest ones, oldest first."""
    seen: dict[str, int] = {}
    """By message id, the turn of each older one; 0 for one that never became a turn."""
    turns: list[TurnSummary] = []
    """The latest, oldest first."""
    tokens: int = 0
    children: ChildrenState | None = None
    notices: list[Notice] = []
    """What the child told its parent lately, oldest first, and how many that were in all."""
    notices_seq: int = 0


class ConversationRequest(StartRequest):
    """The argument of `ConversationWorkflow`: who the child is. What it is asked comes as messages."""

    first: Message | None = None
    """Its first message: it is in the inbox when the conversation starts."""
    carried: ConversationState | None = None
    """Set by the workflow itself when it continues as new."""

    def spec(self, message: Message, state: ConversationState, *, id: str, told: str = "") -> TurnSpec:
        """The next turn, for this message. `told` is what its children told meanwhile."""
        turn = state.turn + 1
        setup: dict[str, Any] = {name: getattr(self, name) for name in ChildSetup.model_fields}
        setup["limits"] = message.limits or self.limits
        prompt = _with_news(message.prompt, told) if told else message.prompt
        return TurnSpec(
            id=id,
            turn_run_id=f"{state.log.run_id}.{turn}",
            turn=turn,
            log=state.log,
            first_seq=state.next_seq,
            parent_id=self.parent_id,
            depth=self.depth,
            max_depth=self.max_depth,
            session=state.session,
            seed=self.seed,
            task=ChildTask.model_validate({**setup, "prompt": prompt}),
        )


def room_for_news(prompt: Prompt) -> int:
    """Bytes of text that still fit in front of a prompt."""
    size = len(prompt.encode(errors="replace")) if isinstance(prompt, str) else len(json.dumps(prompt).encode())
    return max(MAX_PROMPT_BYTES - size - 1024, 0)


def _with_news(prompt: Prompt, told: str) -> Prompt:
    if isinstance(prompt, str):
        return f"{told}\n\n{prompt}"
    # In JSON a character may be six bytes.
    return [text_block(cut_text(f"{told}\n\n", room_for_news(prompt) // 6)), *prompt]


class ConversationResult(BaseModel):
    """What `ConversationWorkflow` returns when it has closed."""

    id: str
    turns: int
    dropped: list[str] = []
    last: TurnSummary | None = None
    result: DelegationResult | None = None
    """What its last turn settled with."""
