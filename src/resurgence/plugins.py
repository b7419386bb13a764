"""Registries by name: built-in objects, and those that installed packages add by entry points.

A package declares, say, `[project.entry-points."resurgence.connectors"]` with `name =
"module:OBJECT"`. Names are known without importing anything. A module is imported when its name is
first looked up, so a package that cannot be imported affects only those who use it.
Formats are all imported, because connectors check the capabilities of each.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, Protocol, TypeVar

from resurgence.errors import ConfigError

CONNECTOR_GROUP = "resurgence.connectors"
FORMAT_GROUP = "resurgence.formats"


class Registered(Protocol):
    """An object that can be registered."""

    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Registered)


class PluginRegistry(Mapping[str, T], Generic[T]):
    """All objects of one kind, by name. Looking up an unusable one raises ConfigError."""

    def __init__(self, group: str, kind: type[T], built_in: Iterable[T]) -> None:
        self._group = group
        self._kind = kind
        self._built_in = {each.name: each for each in built_in}
        self._loaded: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name not in self._loaded:
            self._loaded[name] = self._found(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._built_in
        yield from (each for each in self._added if each not in self._built_in)

    def __len__(self) -> int:
        return len({*self._built_in, *self._added})

    def __contains__(self, name: object) -> bool:
        return name in self._built_in or name in self._added

    @functools.cached_property
    def _added(self) -> dict[str, list[EntryPoint]]:
        """The entry points by name. A package that is found twice on the path counts once."""
        found: dict[str, dict[tuple[str, str], EntryPoint]] = {}
        for each in entry_points(group=self._group):
            found.setdefault(each.name, {})[(_package(each), each.value)] = each
        return {name: [*those.values()] for name, those in sorted(found.items())}

    def _found(self, name: str) -> T:
        added = self._added.get(name, [])
        if name not in self._built_in and not added:
            raise KeyError(name)
        owners = [*(["resurgence"] if name in self._built_in else []), *map(_package, added)]
        if len(owners) > 1:
            raise ConfigError(
                f"{self._what(name)} is provided by several packages: {', '.join(owners)}",
                hint="Uninstall all of them but one.",
            )
        return self._built_in[name] if not added else self._load(added[0])

    def _load(self, entry: EntryPoint) -> T:
        what = f"{self._what(entry.name)} of package {_package(entry)}"
        hint = f"Fix the package, or uninstall it. Its entry point is {entry.value}."
        try:
            found = entry.load()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise ConfigError(f"{what} cannot be loaded: {reason}", hint=hint) from error
        if not isinstance(found, self._kind):
            kind = type(found).__name__
            raise ConfigError(f"{what} is a {kind}, not a {self._kind.__name__}", hint=hint)
        if found.name != entry.name:
            raise ConfigError(f"{what} declares the name '{found.name}'", hint=hint)
        return found

    def _what(self, name: str) -> str:
        return f"{self._kind.__name__.lower()} '{name}'"


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.module
