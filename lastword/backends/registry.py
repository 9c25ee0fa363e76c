"""Backends by name, made when they are first used; other packages add theirs by an entry point."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Final

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


def installed_backends(*, default_model: str | None = None, local_model_url: str | None = None) -> BackendRegistry:
    """Ours, and those of installed packages. One of ours is not replaced."""

    def in_process() -> Backend:
        from lastword.backends.in_process import InProcessBackend

        return InProcessBackend(default_model=default_model, local_model_url=local_model_url)

    def scripted() -> Backend:
        from lastword.backends.scripted import ScriptedBackend

        return ScriptedBackend()

    others = {point.name: lambda point=point: point.load()() for point in entry_points(group=ENTRY_POINTS)}
    return BackendRegistry({**others, "in-process": in_process, "scripted": scripted})
