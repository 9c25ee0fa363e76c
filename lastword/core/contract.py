"""What is asked of a child and what comes back: `Request` asks, `Spec` is resolved, `Result` returns."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from lastword.core.events import Block, text_block
from lastword.core.permissions import PermissionPolicy

MAX_PROMPT_BYTES: Final = 256 * 1024
MAX_REQUEST_BYTES: Final = 1024 * 1024
"""Of a whole request, the past of a fork in it. The server takes 2 MB, and a conversation adds its own."""
MAX_OUTPUT_BYTES: Final = 256 * 1024
MAX_TOOL_TEXT_BYTES: Final = 192 * 1024
"""Of the child's text in a tool result whose caller set no limit. It stands beside the output in one payload, and
Temporal warns of payloads over 512 KB."""
MAX_DEPTH: Final = 3
LONGEST: Final = 365 * 24 * 3600
"""Seconds; a limit of time may not be longer, for Temporal's own timeouts have to hold it."""

StopReason: TypeAlias = str
"""Why a turn ended. An open set: a reason this version does not know is a failure, never success."""

COMPLETED: Final = "completed"
ABORTED: Final = "aborted"
ERROR: Final = "error"
MAX_TOKENS: Final = "max-tokens"
REFUSAL: Final = "refusal"
TIMEOUT: Final = "timeout"
BUDGET: Final = "budget"

OnWorkerLoss: TypeAlias = Literal["resume", "restart", "settle"]


class _Strict(BaseModel):
    # A misspelt limit must not be dropped in silence.
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Tolerant(BaseModel):
    # Written by one version, read by another.
    model_config = ConfigDict(extra="ignore", frozen=True)

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # What is unknown is absent, not null.
        return {name: value for name, value in handler(self).items() if value is not None}


class Limits(_Strict):
    """Bounds of one turn, over all its attempts. None is no limit. Times are in seconds."""

    wall_clock: float | None = Field(default=None, gt=0, le=LONGEST, allow_inf_nan=False)
    idle: float | None = Field(default=None, gt=0, le=LONGEST, allow_inf_nan=False)
    """No event from the child for this long."""
    tokens: int | None = Field(default=None, gt=0)
    """Input plus output tokens, as far as the child reports them."""
    cost_usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """US dollars, as far as the child reports them."""
    steps: int | None = Field(default=None, gt=0)
    """Model requests."""
    tool_calls: int | None = Field(default=None, gt=0)


class McpServer(_Strict):
    """An MCP server whose tools the child gets: a command (stdio) or a URL (streamable HTTP)."""

    name: str = Field(min_length=1)
    command: str | None = None
    args: list[str] = []
    env: dict[str, str] = {}
    """Added to the allow-listed environment of the server's process. It travels through history: no secrets."""
    env_from_worker: list[str] = []
    """Names of variables the server's process takes from the worker's environment; this is how a secret gets there."""
    url: str | None = None

    @model_validator(mode="after")
    def _one_transport(self) -> McpServer:
        if (self.command is None) == (self.url is None):
            raise ValueError(f"MCP server {self.name!r} needs either a command or a url")
        return self


class ToolFilter(_Strict):
    """Which tools the child may see, by exact name. `deny` wins over `allow`; `allow` None is all."""

    allow: list[str] | None = None
    deny: list[str] = []

    def permits(self, name: str) -> bool:
        return name not in self.deny and (self.allow is None or name in self.allow)


Prompt: TypeAlias = str | list[Block]


def check_prompt(prompt: Prompt) -> Prompt:
    """The prompt, if it is not empty and not too long. Raises ValueError."""
    size = len(prompt.encode(errors="replace")) if isinstance(prompt, str) else len(json.dumps(prompt).encode())
    if size > MAX_PROMPT_BYTES:
        raise ValueError(
            f"the prompt has {size} bytes, at most {MAX_PROMPT_BYTES} are allowed;"
            " put the material in a file that the child can read"
        )
    if not prompt or (isinstance(prompt, str) and not prompt.strip()):
        raise ValueError("the prompt is empty; say what the child should do")
    return prompt


class DelegationPolicy(_Strict):
    """What a child may delegate in its turn. Its children get the same, and what is left of its limits."""

    max_live: int = Field(default=8, ge=1, le=100)
    """Children that run at once."""
    max_children: int = Field(default=32, ge=1, le=1000)
    """Children of one turn."""
    on_end: Literal["cancel", "wait", "detach"] = "cancel"
    """What becomes of those that still run when the turn is over."""


CheckedPrompt: TypeAlias = Annotated[Prompt, AfterValidator(check_prompt)]


class ChildSetup(_Strict):
    """How to run a child, whatever it is asked."""

    backend: str = "in-process"
    model: str | None = None
    """`PROVIDER:NAME`, as pydantic-ai writes it; None is the worker's default."""
    persona: str | None = None
    """The system prompt."""
    cwd: str | None = None
    mcp_servers: list[McpServer] = []
    tool_filter: ToolFilter | None = None
    output_schema: dict[str, Any] | None = None
    """A JSON schema of type object; the answer that meets it is the result's `structured`."""
    max_tokens: int | None = Field(default=None, gt=0)
    """Output tokens of one model reply."""
    limits: Limits = Limits()
    on_worker_loss: OnWorkerLoss = "resume"
    permissions: PermissionPolicy | None = None
    """How the child's permission requests are answered; None is the worker's policy."""
    delegation: DelegationPolicy | None = None
    """The child may delegate; None is that it may not."""
    reports: bool = False
    """The child gets a tool to report to its parent while it runs."""
    options: dict[str, Any] = {}
    """For the backend alone, e.g. the script of a scripted child."""


class ChildTask(ChildSetup):
    """One prompt to one child, and how to run it."""

    prompt: CheckedPrompt

    @property
    def prompt_blocks(self) -> list[Block]:
        return [text_block(self.prompt)] if isinstance(self.prompt, str) else self.prompt


class SeedMessage(_Strict):
    """A message of the conversation that a child starts from: a fork's past."""

    role: Literal["user", "assistant"]
    content: Prompt

    @property
    def blocks(self) -> list[Block]:
        return [text_block(self.content)] if isinstance(self.content, str) else self.content


class StartRequest(ChildSetup):
    """What every child is started with: how it runs, its name for people, and its place in the tree."""

    label: str | None = Field(default=None, max_length=200)
    seed: list[SeedMessage] = Field(default=[])
    """The child starts from these messages: completed turns of the parent's, never the one in flight."""
    parent_id: str | None = None
    depth: int = Field(default=0, ge=0)
    """A root is 0, a child its parent's + 1."""
    max_depth: int = Field(default=MAX_DEPTH, ge=0)

    def fingerprint(self) -> str:
        """Equal for equal requests; kept in the start memo, so that one id never stands for two requests."""
        # Without defaults, so that a field that a later version adds does not make another request of it.
        fields = self.model_dump(mode="json", exclude_defaults=True)
        canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode(errors="replace")).hexdigest()

    def check_size(self) -> None:
        """Raises ValueError if it is too long to travel."""
        if (size := len(self.model_dump_json().encode(errors="replace"))) > MAX_REQUEST_BYTES:
            raise ValueError(
                f"the request has {size} bytes, at most {MAX_REQUEST_BYTES} are allowed;"
                " put what is long in persona, seed or options in a file that the child can read"
            )

    @property
    def summary(self) -> str:
        """One line for Temporal's UI: label, backend, model."""
        parts = [self.label, self.backend, self.model]
        return " · ".join(part for part in parts if part)[:200]


class DelegationRequest(StartRequest, ChildTask):
    """The argument of `DelegationWorkflow`: one request, one result."""

    result_limit: int | None = Field(default=None, ge=256)
    """Bytes of text that the parent wants in the tool result; longer keeps head and tail."""

    def spec(self, *, id: str, run_id: str) -> TurnSpec:
        """The delegation's one turn, as the workflow with this id and run id runs it."""
        return TurnSpec(
            id=id,
            turn_run_id=run_id,
            log=LogRef(session_id=id, run_id=run_id),
            parent_id=self.parent_id,
            depth=self.depth,
            max_depth=self.max_depth,
            seed=self.seed,
            task=ChildTask.model_validate({name: getattr(self, name) for name in ChildTask.model_fields}),
        )


class LogRef(_Tolerant):
    """Names a session's log, for whoever can reach its store."""

    session_id: str
    run_id: str


class SessionRef(_Tolerant):
    """A backend's own id of a session that it can resume. It holds no secret: it travels through workflow history."""

    backend: str
    id: str
    data: dict[str, Any] = {}


class TurnSpec(_Tolerant):
    """One turn, resolved: everything an attempt needs to know about what it runs."""

    id: str
    """The delegation's id."""
    turn_run_id: str
    """The same for every attempt of the turn, different for every turn."""
    turn: int = 1
    log: LogRef
    first_seq: int = 0
    """Where the turn begins in the session's log."""
    parent_id: str | None = None
    depth: int = 0
    max_depth: int = MAX_DEPTH
    session: SessionRef | None = None
    """Of a conversation: the backend's own session as the turn before left it."""
    seed: list[SeedMessage] = []
    """What was said before its first turn, elsewhere. Never part of the child's output."""
    task: ChildTask


class Usage(_Tolerant):
    """Tokens and cost, in OpenTelemetry's `gen_ai.usage` terms. What a child does not report is absent, never zero."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost_usd: float | None = None

    def __add__(self, other: Usage) -> Usage:
        names = Usage.model_fields
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in names}
        return Usage(**{n: None if a is None and b is None else (a or 0) + (b or 0) for n, (a, b) in pairs.items()})

    @property
    def tokens(self) -> int:
        return (self.input_tokens or 0) + (self.output_tokens or 0)

    @property
    def known(self) -> bool:
        return any(getattr(self, name) is not None for name in Usage.model_fields)


class Timing(_Tolerant):
    """Epoch milliseconds by the worker's clock, and what the loss bound is made of."""

    started: int
    ended: int
    beat_interval_ms: int | None = None
    """The effective interval between two checkpoints; a crash costs at most about two of them."""


class OutputRef(_Tolerant):
    """Where the whole output is, when the result holds only its head and tail."""

    log: LogRef
    turn: int
    bytes: int


class TurnResult(_Tolerant):
    """What one turn gave, however it ended."""

    output: list[Block] = []
    output_ref: OutputRef | None = None
    stop_reason: StopReason
    structured: Any = None
    diagnostic: str | None = None
    usage: Usage | None = None
    timing: Timing
    attempts: int = 1
    log: LogRef
    next_seq: int = 0
    """Where the session's log goes on."""
    session: SessionRef | None = None
    disposal_error: bool = False
    """The child's processes could not be proved gone; reported beside the result, never instead of it."""

    @property
    def completed(self) -> bool:
        return self.stop_reason == COMPLETED


class ToolResult(_Tolerant):
    """A delegation rendered as the result of a tool call."""

    is_error: bool
    content: list[Block]


class DelegationResult(_Tolerant):
    """What `DelegationWorkflow` returns."""

    id: str
    result: TurnResult
    tool_result: ToolResult


class Capabilities(_Strict):
    """What a backend can do. A request that needs more is refused before any child starts."""

    model: bool = False
    persona: bool = False
    cwd: bool = False
    mcp_servers: bool = False
    tool_filter: bool = False
    output_schema: bool = False
    max_tokens: bool = False
    delegation: bool = False
    """Its children have their host's tools: to delegate and to report."""
    usage: bool = False
    """Reports tokens; without it a token limit cannot be kept."""
    cost: bool = False
    """Reports what it costs; without it a cost limit cannot be kept."""
    resume: Literal["log", "session"] | None = None
    """By what a lost turn can be continued where it was cut: its own log, or the session that the agent keeps. Without
    it, and without a session, it restarts or settles."""
    prompt_blocks: frozenset[str] = frozenset({"text"})

    @field_validator("resume", mode="before")
    @classmethod
    def _as_0_1_said_it(cls, resume: object) -> object:
        if isinstance(resume, bool):
            return "log" if resume else None
        return resume


class LifecycleEdge(_Tolerant):
    """`subagent/start` or `subagent/end`. `last_assistant_message` is absent (None) when the child said nothing."""

    type: Literal["subagent/start", "subagent/end"]
    run_id: str
    backend: str
    id: str
    parent_id: str | None = None
    stop_reason: StopReason | None = None
    last_assistant_message: list[Block] | None = None
