"""Whether a backend can do what a task asks; decided where it would run, before any child starts."""

from __future__ import annotations

from collections.abc import Mapping

from lastword.core.contract import Capabilities, ChildTask, TurnSpec
from lastword.core.errors import RequestRejected
from lastword.core.ports import Backend


def admit(spec: TurnSpec, backends: Mapping[str, Backend]) -> Backend:
    """The backend for the spec, or RequestRejected naming what it lacks and who has it."""
    task = spec.task
    backend = backends.get(task.backend)
    if backend is None:
        known = ", ".join(sorted(backends)) or "none"
        raise RequestRejected(
            f"This worker has no backend {task.backend!r}; it has: {known}. Choose one of these with --backend."
        )
    for need in needs(task):
        if not _has(backend.capabilities, need):
            able = ", ".join(sorted(name for name, b in backends.items() if _has(b.capabilities, need))) or "none"
            raise RequestRejected(
                f"The backend {task.backend!r} does not support {need.replace('_', ' ')}; backends that do: {able}."
            )
    if spec.depth > spec.max_depth or (spec.depth > 0 and spec.max_depth == 0):
        raise RequestRejected(
            f"The delegation would be at depth {spec.depth}, at most {spec.max_depth} is allowed;"
            " do the task without delegating."
        )
    if missing := backend.missing(task):
        raise RequestRejected(" ".join(missing))
    return backend


def needs(task: ChildTask) -> list[str]:
    """The capabilities a task asks for, by their field names, and `prompt block TYPE` for what is not text."""
    asked = {
        "model": task.model,
        "persona": task.persona,
        "cwd": task.cwd,
        "mcp_servers": task.mcp_servers,
        "tool_filter": task.tool_filter,
        "output_schema": task.output_schema,
        "max_tokens": task.max_tokens,
        "delegation": task.delegation or task.reports,
        "usage": task.limits.tokens,
        "cost": task.limits.cost_usd,
    }
    blocks = {str(block.get("type")) for block in task.prompt_blocks}
    return [name for name, value in asked.items() if value] + [f"prompt block {kind}" for kind in sorted(blocks)]


def _has(capabilities: Capabilities, need: str) -> bool:
    if need.startswith("prompt block "):
        return need.removeprefix("prompt block ") in capabilities.prompt_blocks
    return bool(getattr(capabilities, need))
