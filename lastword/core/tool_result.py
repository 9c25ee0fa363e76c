"""A turn's result as the result of a tool call. One rendering for every face, backend and shape of delegation."""

from __future__ import annotations

from typing import Final

from lastword.core import contract
from lastword.core.bounds import cut_text
from lastword.core.contract import DelegationRequest, DelegationResult, ToolResult, TurnResult
from lastword.core.events import text_block, text_of

PARTIAL_LABEL: Final = "Partial text of the child, not a finished answer:"

_HEADLINES: Final = {
    contract.ABORTED: "The child was cancelled before it finished (aborted).",
    contract.ERROR: "The child failed (error).",
    contract.MAX_TOKENS: "The child's reply was cut at its output token limit (max-tokens).",
    contract.REFUSAL: "The child's model refused (refusal).",
    contract.TIMEOUT: "The child ran out of time (timeout).",
    contract.BUDGET: "The child used up a budget (budget).",
}


def headline(stop_reason: str) -> str:
    """One sentence about why a turn did not complete."""
    return _HEADLINES.get(stop_reason) or f"The child ended for a reason unknown to this version ({stop_reason[:80]})."


def delegation_result(request: DelegationRequest, id: str, result: TurnResult) -> DelegationResult:
    """What the delegation returns: the turn's result, and its rendering within the request's limit."""
    return DelegationResult(id=id, result=result, tool_result=render(result, id=id, limit=request.result_limit))


def render(result: TurnResult, *, id: str, limit: int | None = None) -> ToolResult:
    """The tool result: the output alone if the turn completed; else headline, diagnostic, partial text, in that order.

    The partial text stands under its own label, so that infrastructure words never read as the child's. `limit` bounds
    the child's text in bytes (None: 192 KB); head and tail stay.
    """
    text = text_of(result.output)
    hint = f"; the whole is in `lastword result {id} --full`"
    shown = cut_text(text, contract.MAX_TOOL_TEXT_BYTES if limit is None else limit, hint)
    if result.completed:
        return ToolResult(is_error=False, content=[text_block(shown)] if shown else [])
    lines = [headline(result.stop_reason)]
    if result.diagnostic:
        lines.append(result.diagnostic)
    if shown:
        lines += [PARTIAL_LABEL, shown]
    return ToolResult(is_error=True, content=[text_block("\n".join(lines))])
