"""Backends by name, made when they are first used; other packages add theirs by an entry point."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.metadata import entry_points
from typing import Any, Final

from pydantic import ValidationError

from lastword.backends.acp.agents import PRESETS, AcpAgent
from lastword.core.errors import ConfigurationError
from lastword.core.ports import Backend

ENTRY_POINTS: Final = "lastword.backends"
"""The group. An entry point is a callable without arguments that gives a `Backend`."""


class BackendRegistry(Mapping[str, Backend]):
    """A mapping of names to backends. Getting one may raise whatever importing it raises; others are not harmed."""

    def __init__(self, factories: Mapping[str, Callable[[], Backend]]) -> None:
        self._factories = dict(factories)
        self._made: dict[str, Backend] = {}

    def __getitem__(self, name: str) -> Backend:
        if name not in self._made:
            self._made[name] = self._factories[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._factories)

    def __len__(self) -> int:
        return len(self._factories)


def installed_backends(
    *,
    default_model: str | None = None,
    local_model_url: str | None = None,
    agents: Mapping[str, Mapping[str, Any]] | None = None,
) -> BackendRegistry:
    """Ours, and those of installed packages. One of ours is not replaced.

    `agents` are ACP agents of the settings: by a preset's name they change some of its fields, by another they are
    agents of their own, whose backend is `acp:NAME`. Raises ConfigurationError for one that is wrong.
    """

    def in_process() -> Backend:
        from lastword.backends.in_process import InProcessBackend

        return InProcessBackend(default_model=default_model, local_model_url=local_model_url)

    def scripted() -> Backend:
        from lastword.backends.scripted import ScriptedBackend

        return ScriptedBackend()

    def acp(name: str) -> Backend:
        from lastword.backends.acp import AcpBackend

        return AcpBackend(f"acp:{name}", known[name])

    def deepseek_harness() -> Backend:
        from lastword.backends.deepseek_harness import DeepSeekHarnessBackend

        return DeepSeekHarnessBackend()

    def claude_agent() -> Backend:
        from lastword.backends.claude_agent import ClaudeAgentBackend

        return ClaudeAgentBackend()

    known = acp_agents(agents or {})
    acps = {f"acp:{name}": partial(acp, name) for name in known}
    others = {point.name: lambda point=point: point.load()() for point in entry_points(group=ENTRY_POINTS)}
    ours = {
        "in-process": in_process,
        "scripted": scripted,
        "deepseek-harness": deepseek_harness,
        "claude-agent": claude_agent,
    }
    return BackendRegistry({**others, **acps, **ours})


def acp_agents(agents: Mapping[str, Mapping[str, Any]]) -> dict[str, AcpAgent]:
    """The presets with what the settings say of agents. Raises ConfigurationError."""
    known: dict[str, AcpAgent] = dict(PRESETS)
    for name, fields in agents.items():
        preset = PRESETS[name].model_dump() if name in PRESETS else {}
        try:
            known[name] = AcpAgent.model_validate({**preset, **fields})
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "itself"
            raise ConfigurationError(
                f"The agent {name!r} of the settings file is wrong at {where}: {first['msg']}."
            ) from None
    return known
