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
    only_column: str | None = None
    """The type of the only column of a table, if a record is a single value."""
    source_options: type[TableOptions] = TableOptions
    """Its options for a source, besides those of the connector."""
    sink_options: type[TableOptions] = TableOptions
    purpose: str = ""
    """Its purpose, if it is a special one; Markdown, for the docs."""

    def options(self, role: Role) -> type[TableOptions]:
        """Return its options in a role. It has none for lookup tables."""
        by_role = {Role.SOURCE: self.source_options, Role.SINK: self.sink_options}
        return by_role.get(role, TableOptions)


@dataclass(frozen=True)
class RoleSpec:
    """A connector in one role."""

    role: Role
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
    other_guarantees: Mapping[tuple[str, str], Guarantee] = field(default_factory=dict)
    """The guarantees of a sink with an option of a certain value, by name and value."""
    upserts: bool = False
    """A sink writes a changelog with a PRIMARY KEY as upserts and deletes by key, in any format."""
    appends_or_upserts: bool = False
    """The commit of a sink appends or upserts, so the INSERTs into a table must be of one kind."""
    event_time_option: str | None = None
    """The option with which a sink needs the event time of its rows."""

    def guarantee_of(self, options: Mapping[str, str]) -> Guarantee | None:
        """Return the guarantee of a sink with these options."""
        for each, guarantee in self.other_guarantees.items():
            if each in options.items():
                return guarantee
        return self.guarantee

    @functools.cached_property
    def own_options(self) -> Mapping[str, OptionSpec]:
        """The options of the connector by name: required ones first, then the format."""
        declared = self.options.declared()
        if not self.formats:
            return declared
        names = tuple(each.name for each in self.formats)
        chosen = OptionSpec(FORMAT, choices=names, default=names[0])
        first = {name: each for name, each in declared.items() if each.required}
        return {**first, FORMAT: chosen, **declared}

    def known_options(self, chosen: FormatSpec | None) -> Mapping[str, OptionSpec]:
        """Return every option of a table with this format by name."""
        if chosen is None:
            return self.own_options
        return {**self.own_options, **chosen.options(self.role).declared()}

    def formats_with(self, option: str) -> tuple[FormatSpec, ...]:
        """Return the formats that have an option of their own."""
        return tuple(each for each in self.formats if option in each.options(self.role).declared())

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
    untyped_role: Role | None = None
    """The role of a table without a `type`, if the connector has several roles."""
