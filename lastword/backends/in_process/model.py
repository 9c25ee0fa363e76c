"""The model: from its name to an object that streams, and from its failures to allow-listed facts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import httpx
from pydantic_ai import exceptions
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models import Model, infer_model
from pydantic_ai.usage import RequestUsage

from lastword.core.diagnostic import Diagnostic
from lastword.core.events import Block, JsonObject, text_block

BACKEND: Final = "in-process"
_LOCAL: Final = "local:"
_VARIABLE: Final = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b")

# The most specific first: an HTTP error is of its category and of ModelHTTPError.
_CATEGORIES: Final[Sequence[tuple[type[BaseException], str]]] = (
    (exceptions.ContentFilterError, "content-filter"),
    (exceptions.ModelAuthenticationError, "authentication"),
    (exceptions.ModelNotFoundError, "not-found"),
    (exceptions.ModelContextWindowExceededError, "context-window"),
    (exceptions.ModelRequestRejectedError, "invalid-request"),
    (exceptions.ModelRateLimitError, "rate-limit"),
    (exceptions.ModelQuotaExceededError, "rate-limit"),
    (exceptions.ModelConnectionError, "connection"),
    (exceptions.ModelUnavailableError, "provider-error"),
    (exceptions.ModelServerError, "provider-error"),
    (exceptions.ModelHTTPError, "provider-error"),
    (exceptions.IncompleteToolCall, "truncated-tool-call"),
    (exceptions.OutputTokenLimitExceeded, "max-tokens"),
    (httpx.TransportError, "connection"),
    (ConnectionError, "connection"),
    (TimeoutError, "connection"),
)

_PASSING: Final = frozenset({"rate-limit", "connection", "provider-error"})
"""Failures that may be gone at the next try."""


def open_model(name: str, local_model_url: str | None) -> Model:
    """The model for `PROVIDER:NAME`. Raises pydantic-ai's UserError, or ValueError, if there is none."""
    if name.startswith(_LOCAL):
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        provider = OpenAIProvider(base_url=local_model_url, api_key="local")
        model: Model = OpenAIChatModel(name.removeprefix(_LOCAL), provider=provider)
    else:
        model = infer_model(name)
    client = getattr(model, "client", None)
    if client is not None and hasattr(client, "max_retries"):
        # Each try is the turn's own business: it is logged, and it ends with the turn.
        client.max_retries = 0
    return model


def why_unusable(name: str, local_model_url: str | None) -> str | None:
    """One sentence with the remedy if the model cannot be used here, without any prose of the provider's."""
    if ":" not in name:
        return f"The model {name!r} names no provider; write PROVIDER:NAME, e.g. openai:gpt-5."
    provider = name.partition(":")[0]
    try:
        open_model(name, local_model_url)
    except ImportError:
        extra = f"pydantic-ai-slim[{provider}]"
        return f"The provider {provider!r} needs a package where the worker runs: pip install '{extra}'."
    except Exception as error:
        variables = [word for word in _VARIABLE.findall(str(error)) if word.endswith(("KEY", "TOKEN", "ID", "URL"))]
        if variables:
            return (
                f"The key for {provider!r} is missing in the worker's environment:"
                f" set {' or '.join(dict.fromkeys(variables))} there and restart the worker."
            )
        return f"The model {name!r} is not usable here; check the provider's name ({type(error).__name__})."
    return None


def diagnose(error: BaseException, *, stage: str = "model") -> Diagnostic:
    """The allow-listed facts of a failure."""
    category = next((name for kind, name in _CATEGORIES if isinstance(error, kind)), "unknown")
    status = error.status_code if isinstance(error, exceptions.ModelHTTPError) else None
    retry_after = error.retry_after if isinstance(error, exceptions.ModelAPIError) else None
    return Diagnostic(backend=BACKEND, stage=stage, category=category, http_status=status, retry_after=retry_after)


def may_pass(diagnostic: Diagnostic) -> bool:
    """Whether the same request may succeed in a moment."""
    return diagnostic.category in _PASSING


def blocks_of(response: ModelResponse) -> list[Block]:
    """The response as content blocks; an empty part is none."""
    blocks: list[Block] = []
    for part in response.parts:
        if isinstance(part, TextPart) and part.content:
            blocks.append(text_block(part.content))
        elif isinstance(part, ThinkingPart) and part.content:
            blocks.append({"type": "reasoning", "text": part.content})
        elif isinstance(part, ToolCallPart):
            blocks.append(
                {"type": "tool-call", "id": part.tool_call_id, "name": part.tool_name, "arguments": part.args}
            )
    refusal = (response.provider_details or {}).get("refusal")
    if isinstance(refusal, str) and refusal:
        # OpenAI has a field of its own for what the model says instead of an answer.
        blocks.append(text_block(refusal))
    return blocks


def usage_of(usage: RequestUsage) -> JsonObject | None:
    """What was reported. pydantic-ai counts what it does not know as zero; a request without any token is unknown."""
    if not usage.input_tokens and not usage.output_tokens:
        return None
    facts: dict[str, Any] = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    if usage.cache_read_tokens:
        facts["cache_read_tokens"] = usage.cache_read_tokens
    if usage.cache_write_tokens:
        facts["cache_write_tokens"] = usage.cache_write_tokens
    return facts
