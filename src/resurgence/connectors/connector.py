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
from resurgence.connectors.formats.contract import Format
from resurgence.connectors.lookups.contract import LookupTable
from resurgence.graph.connector_spec import ConnectorSpec, FormatSpec, Guarantee, Role, RoleSpec
from resurgence.graph.table_options import TableOptions
from resurgence.graph.values import Column

O = TypeVar("O", bound=TableOptions)  # noqa: E741

NO_FORMAT = Format(FormatSpec(""), suffix="")
"""The format of tables in a role without formats."""


@dataclass(frozen=True)
class SourceDeclaration:
    """The declaration of a source table, besides its options."""

    table: str
    columns: tuple[Column, ...]
    """The columns that the source must produce; the others are computed from them."""
    keys: tuple[str, ...] = ()
    """The PRIMARY KEY by which a changelog is normalised."""
    format: Format = NO_FORMAT


@dataclass(frozen=True)
class SinkDeclaration:
    """The declaration of a sink table, besides its options."""

    table: str
    keys: tuple[str, ...] = ()
    format: Format = NO_FORMAT
    state_url: str = ""
    """The storage of the job, for sinks that have none of their own."""
    state_folder: str = ""
    """The folder in it in which this sink may stage."""
    is_limited: bool = False
    """The total number of rows is limited."""


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

    def among(self, formats: Mapping[str, Format]) -> tuple[Format, ...]:
        """Return the formats that it can use, the default first."""
        others = (each for each in formats.values() if each.name != self.default.name)
        return (self.default, *filter(self.can_use, others))


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

    def spec(self, formats: Mapping[str, Format]) -> RoleSpec:
        return RoleSpec(
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
    formats: FormatChoice | None = None
    records_folder: Callable[[Path], Path] | None = None
    """Returns where a sink with a file of its own stores its records, by the path of that file. No
    other job may write such a file.
    """

    def spec(self, formats: Mapping[str, Format]) -> RoleSpec:
        return RoleSpec(
            options=self.options,
            formats=_format_specs(self.formats, formats),
            needs_columns=False,
            guarantee=self.guarantee,
        )


@dataclass(frozen=True, kw_only=True)
class LookupRole(Generic[O]):
    """A connector as a lookup table."""

    make: Callable[[O, LookupDeclaration], LookupTable]
    options: type[O]
    formats: FormatChoice | None = None

    def spec(self, formats: Mapping[str, Format]) -> RoleSpec:
        return RoleSpec(options=self.options, formats=_format_specs(self.formats, formats))


@dataclass(frozen=True)
class Connector:
    """A connector by name, with the roles that it supports."""

    name: str
    source: SourceRole[Any] | None = None
    sink: SinkRole[Any] | None = None
    lookup: LookupRole[Any] | None = None

    def spec(self, formats: Mapping[str, Format]) -> ConnectorSpec:
        """Return what the planner must know of the connector."""
        roles = {Role.SOURCE: self.source, Role.SINK: self.sink, Role.LOOKUP: self.lookup}
        return ConnectorSpec(
            self.name,
            {role: each.spec(formats) for role, each in roles.items() if each is not None},
        )


def _format_specs(
    choice: FormatChoice | None, formats: Mapping[str, Format]
) -> tuple[FormatSpec, ...]:
    return tuple(each.spec for each in choice.among(formats)) if choice is not None else ()
