"""The properties of a connector by which the planner checks a CREATE TABLE, without Spark."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from resurgence.graph.table_options import FORMAT, OptionSpec, TableOptions
from resurgence.graph.values import Column


class Role(StrEnum):
    """How a pipeline uses a table."""

    SOURCE = "source"
    SINK = "sink"
    LOOKUP = "lookup"


class Guarantee(StrEnum):
    """The delivery guarantee of a sink."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"


@dataclass(frozen=True)
class FormatSpec:
    """The properties of a format that the planner checks."""

    name: str
    is_changelog: bool = False
    """It reads and writes changelog streams, and has no metadata columns."""
    uses_keys: bool = False
    """A source applies changes by the PRIMARY KEY; a sink pairs them into updates by it."""
    has_timestamp_format: bool = False
    """A sink has an option for the format of timestamps."""
    purpose: str = ""
    """Its purpose, if it is a special one; Markdown, for the docs."""


@dataclass(frozen=True)
class RoleSpec:
    """A connector in one role."""

    options: type[TableOptions] = TableOptions
    formats: tuple[FormatSpec, ...] = ()
    """The values of the option `format`; the first is the default."""
    fixed_columns: tuple[Column, ...] | None = None
    """The columns of a generator: declared columns must be among them, and can be omitted."""
    event_time: str | None = None
    """The event time column if the user names none."""
    needs_columns: bool = True
    metadata: Mapping[str, str] = field(default_factory=dict)
    """The metadata of a source's records: Spark SQL type by key."""
    guarantee: Guarantee | None = None

    @functools.cached_property
    def known_options(self) -> Mapping[str, OptionSpec]:
        """Every option by name: required ones first, then the format."""
        declared = self.options.declared()
        if not self.formats:
            return declared
        names = tuple(each.name for each in self.formats)
        chosen = OptionSpec(FORMAT, choices=names, default=names[0])
        first = {name: each for name, each in declared.items() if each.required}
        return {**first, FORMAT: chosen, **declared}

    def format_named(self, name: str | None) -> FormatSpec | None:
        """Return the format with this name, or the default for None; None if there is none."""
        if name is None:
            return self.formats[0] if self.formats else None
        return next((each for each in self.formats if each.name == name), None)


@dataclass(frozen=True)
class ConnectorSpec:
    """A connector, with the roles that it supports."""

    name: str
    roles: Mapping[Role, RoleSpec] = field(default_factory=dict)
