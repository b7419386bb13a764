"""What a connector declares: its roles, the options and formats of each, and how it is made.

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
"""Of tables in a role without formats."""


@dataclass(frozen=True)
class SourceDeclaration:
    """The declaration of a source table, besides its options."""

    table: str
    columns: tuple[Column, ...]
    """Those that it must give; the others are computed from them."""
    keys: tuple[str, ...] = ()
    """The PRIMARY KEY of a changelog that is normalised by it."""
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
    """Where in it this sink may stage."""
    is_limited: bool = False
    """It takes only so many rows in all."""


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
        """Those of them that it can use, the default first."""
        others = (each for each in formats.values() if each.name != self.default.name)
        return (self.default, *filter(self.can_use, others))


@dataclass(frozen=True, kw_only=True)
class SourceRole(Generic[O]):
    """A connector as a source."""

    make: Callable[[O, SourceDeclaration], Source]
    options: type[O]
    formats: FormatChoice | None = None
    fixed_columns: tuple[Column, ...] | None = None
    """A generator's own columns: declared ones must be among them, and none need be declared."""
    event_time: str | None = None
    """The column that is event time where the user names none."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """What is known of a record that is not in it: Spark SQL type by key."""

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
    """Where a sink with a file of its own keeps its records, by the path of that file. No other job
    may write such a file.
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
    """A system by name, in the roles that it has."""

    name: str
    source: SourceRole[Any] | None = None
    sink: SinkRole[Any] | None = None
    lookup: LookupRole[Any] | None = None

    def spec(self, formats: Mapping[str, Format]) -> ConnectorSpec:
        """What the planner must know of it."""
        roles = {Role.SOURCE: self.source, Role.SINK: self.sink, Role.LOOKUP: self.lookup}
        return ConnectorSpec(
            self.name,
            {role: each.spec(formats) for role, each in roles.items() if each is not None},
        )


def _format_specs(
    choice: FormatChoice | None, formats: Mapping[str, Format]
) -> tuple[FormatSpec, ...]:
    return tuple(each.spec for each in choice.among(formats)) if choice is not None else ()
