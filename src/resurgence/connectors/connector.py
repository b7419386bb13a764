"""What a connector declares: its roles, and the options, formats and factory of each.

A connector is one `Connector` in one module, and one line in `registry`. An installed package may
add its own under the entry point group `resurgence.connectors`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from resurgence.connectors.contract import Sink, Source
from resurgence.connectors.formats.contract import (
    Format,
    RecordReader,
    RecordTable,
    WriteSettings,
)
from resurgence.connectors.formats.options import RecordSourceOptions
from resurgence.connectors.lookups.contract import LookupTable
from resurgence.errors import ConfigError
from resurgence.graph.connector_spec import ConnectorSpec, FormatSpec, Guarantee, Role, RoleSpec
from resurgence.graph.table_options import TableOptions
from resurgence.graph.values import Column
from resurgence.ids import JobName

O = TypeVar("O", bound=TableOptions)  # noqa: E741

NO_FORMAT = Format(FormatSpec(""))
"""The format of tables in a role without formats."""
_NO_OPTIONS = TableOptions()


@dataclass(frozen=True)
class SourceDeclaration:
    """The declaration of a source table, besides its options."""

    table: str
    columns: tuple[Column, ...]
    """The columns that the source must produce; the others are computed from them."""
    keys: tuple[str, ...] = ()
    """The PRIMARY KEY by which a changelog is normalised."""
    format: Format = NO_FORMAT
    format_options: TableOptions = _NO_OPTIONS
    job: JobName | None = None
    """None if the source is only checked or described, and not run."""

    def reader(
        self,
        options: RecordSourceOptions,
        subject: str | None = None,
        hidden: tuple[Column, ...] = (),
    ) -> RecordReader:
        """Return the reader of its records. `options` are those of the connector; `subject` is as
        in RecordTable. `hidden` are metadata columns that the rows have besides the declared ones.
        """
        if self.format.reader is None:
            raise ConfigError(f"format '{self.format.name}' cannot be read from records")
        columns = (*self.columns, *hidden)
        table = RecordTable(columns, self.format_options, self.keys, options, subject)
        return self.format.reader(table)


@dataclass(frozen=True)
class SinkDeclaration:
    """The declaration of a sink table, besides its options."""

    table: str
    keys: tuple[str, ...] = ()
    format: Format = NO_FORMAT
    format_options: TableOptions = _NO_OPTIONS
    state_url: str = ""
    """The storage of the job, for sinks that have none of their own."""
    state_folder: str = ""
    """The folder in it in which this sink may stage."""
    is_limited: bool = False
    """The total number of rows is limited."""
    columns: tuple[Column, ...] = ()
    """The declared columns; none if the table has those of the query."""

    def write_settings(
        self, passed: tuple[str, ...] = (), subject: str | None = None
    ) -> WriteSettings[TableOptions]:
        """Return how its rows are written. The arguments are as in WriteSettings."""
        return WriteSettings(self.format_options, self.keys, passed, subject)


@dataclass(frozen=True)
class LookupDeclaration:
    """The declaration of a lookup table, besides its options."""

    table: str
    columns: tuple[Column, ...]
    format: Format = NO_FORMAT


@dataclass(frozen=True)
class FormatChoice:
    """The formats that a connector can use in a role."""

    default: Format
    can_use: Callable[[Format], bool]
    own: tuple[Format, ...] = ()
    """Formats that no other connector has, besides the default."""

    def among(self, formats: Mapping[str, Format]) -> tuple[Format, ...]:
        """Return the formats that it can use, the default first."""
        others = (each for each in formats.values() if each.name != self.default.name)
        return (self.default, *self.own, *filter(self.can_use, others))


@dataclass(frozen=True, kw_only=True)
class SourceRole(Generic[O]):
    """A connector as a source."""

    make: Callable[[O, SourceDeclaration], Source]
    options: type[O]
    formats: FormatChoice | None = None
    fixed_columns: tuple[Column, ...] | None = None
    """The columns of a generator. A table may declare some of them, or none."""
    event_time: str | None = None
    """The event-time column, unless the user names one."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """The metadata of a record, which is not part of it: Spark SQL type by key."""
    listed_folder: Callable[[str], str] | None = None
    """Returns the folder that a path with patterns is about."""
    jars: tuple[str, ...] = ()
    """Jars that Spark needs for it besides its own, as sets by name; a format may need others."""

    def spec(self, formats: Mapping[str, Format]) -> RoleSpec:
        return RoleSpec(
            Role.SOURCE,
            options=self.options,
            formats=_format_specs(self.formats, formats),
            fixed_columns=self.fixed_columns,
            event_time=self.event_time,
            needs_columns=self.fixed_columns is None,
            metadata=self.metadata,
        )


@dataclass(frozen=True, kw_only=True)
class SinkRole(Generic[O]):
    """A connector as a sink."""

    make: Callable[[O, SinkDeclaration], Sink]
    options: type[O]
    guarantee: Guarantee
    other_guarantees: Mapping[tuple[str, str], Guarantee] = field(default_factory=dict)
    """The guarantees of a sink with an option of a certain value, by name and value."""
    upserts: bool = False
    """It writes a changelog with a PRIMARY KEY as upserts and deletes by key, in any format."""
    appends_or_upserts: bool = False
    """Its commit appends or upserts, so the INSERTs into a table must be of one kind."""
    formats: FormatChoice | None = None
    event_time_option: str | None = None
    """The option with which the rows have the hidden column EVENT_TIME."""
    records_folder: Callable[[Path], Path] | None = None
    """Returns where a sink with a file of its own stores its records, by the path of that file. No
    other job may write such a file.
    """
    jars: tuple[str, ...] = ()
    """Jars that Spark needs for it besides its own, as sets by name; a format may need others."""

    def spec(self, formats: Mapping[str, Format]) -> RoleSpec:
        return RoleSpec(
            Role.SINK,
            options=self.options,
            formats=_format_specs(self.formats, formats),
            needs_columns=False,
            guarantee=self.guarantee,
            other_guarantees=self.other_guarantees,
            upserts=self.upserts,
            appends_or_upserts=self.appends_or_upserts,
            event_time_option=self.event_time_option,
        )


@dataclass(frozen=True, kw_only=True)
class LookupRole(Generic[O]):
    """A connector as a lookup table."""

    make: Callable[[O, LookupDeclaration], LookupTable]
    options: type[O]
    formats: FormatChoice | None = None
    jars: tuple[str, ...] = ()
    """Jars that Spark needs for it besides its own, as sets by name; a format may need others."""

    def spec(self, formats: Mapping[str, Format]) -> RoleSpec:
        formats_of = _format_specs(self.formats, formats)
        return RoleSpec(Role.LOOKUP, options=self.options, formats=formats_of)


@dataclass(frozen=True)
class Connector:
    """A connector by name, with the roles that it supports."""

    name: str
    source: SourceRole[Any] | None = None
    sink: SinkRole[Any] | None = None
    lookup: LookupRole[Any] | None = None
    untyped_role: Role | None = None
    """The role of a table without a `type`, if there are several."""

    def spec(self, formats: Mapping[str, Format]) -> ConnectorSpec:
        """Return what the planner must know of the connector."""
        roles = {Role.SOURCE: self.source, Role.SINK: self.sink, Role.LOOKUP: self.lookup}
        return ConnectorSpec(
            self.name,
            {role: each.spec(formats) for role, each in roles.items() if each is not None},
            self.untyped_role,
        )


def _format_specs(
    choice: FormatChoice | None, formats: Mapping[str, Format]
) -> tuple[FormatSpec, ...]:
    return tuple(each.spec for each in choice.among(formats)) if choice is not None else ()
