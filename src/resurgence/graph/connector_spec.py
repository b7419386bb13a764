"""What the planner must know of a connector to check a CREATE TABLE, before any Spark starts."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from resurgence.graph.table_options import FORMAT, OptionSpec, TableOptions
from resurgence.graph.values import Column


class Role(StrEnum):
    """The uses of a table."""

    SOURCE = "source"
    SINK = "sink"
    LOOKUP = "lookup"


class Guarantee(StrEnum):
    """What a sink promises about each row."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"


@dataclass(frozen=True)
class FormatSpec:
    """What the planner must know of a format."""

    name: str
    is_changelog: bool = False
    """Its records are changes: it reads and writes changelog streams, and has no metadata columns."""
    uses_keys: bool = False
    """A PRIMARY KEY counts: a source applies its changes by it, a sink pairs them by it."""
    has_timestamp_format: bool = False
    """A sink may choose how timestamps are written."""
    purpose: str = ""
    """What it is for, where that is special; Markdown, for the docs."""


@dataclass(frozen=True)
class RoleSpec:
    """A connector in one role."""

    options: type[TableOptions] = TableOptions
    formats: tuple[FormatSpec, ...] = ()
    """Those that the option `format` chooses from; the first is the default."""
    fixed_columns: tuple[Column, ...] | None = None
    """A generator's own columns: declared ones must be among them, and none need be declared."""
    event_time: str | None = None
    """The column that is event time where the user names none."""
    needs_columns: bool = True
    metadata: Mapping[str, str] = field(default_factory=dict)
    """What a source knows of a record that is not in it: Spark SQL type by key."""
    guarantee: Guarantee | None = None

    @functools.cached_property
    def known_options(self) -> Mapping[str, OptionSpec]:
        """Every option by its name: required ones first, then the format."""
        declared = self.options.declared()
        if not self.formats:
            return declared
        names = tuple(each.name for each in self.formats)
        chosen = OptionSpec(FORMAT, choices=names, default=names[0])
        first = {name: each for name, each in declared.items() if each.required}
        return {**first, FORMAT: chosen, **declared}

    def format_named(self, name: str | None) -> FormatSpec | None:
        """The format that a table names, or the default. None if there is no such format."""
        if name is None:
            return self.formats[0] if self.formats else None
        return next((each for each in self.formats if each.name == name), None)


@dataclass(frozen=True)
class ConnectorSpec:
    """A connector by name, in the roles that it has."""

    name: str
    roles: Mapping[Role, RoleSpec] = field(default_factory=dict)
