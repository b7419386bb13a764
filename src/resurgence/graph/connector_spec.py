"""What the planner must know of a connector to check a CREATE TABLE, before any Spark starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

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
class OptionSpec:
    """One option of a connector: is it required, and which values are legal (None: any text)."""

    required: bool = False
    choices: tuple[str, ...] | None = None
    default: str | None = None
    per_column: bool = False
    """`option.column` sets it for one column, which holds timestamps."""


@dataclass(frozen=True)
class RoleSpec:
    """A connector in one role."""

    options: Mapping[str, OptionSpec]
    fixed_columns: tuple[Column, ...] | None = None
    """A generator's own columns: declared ones must be among them, and none need be declared."""
    event_time: str | None = None
    """The column that is event time where the user names none."""
    needs_columns: bool = True
    metadata: Mapping[str, str] = field(default_factory=dict)
    """What a source knows of a record that is not in it: Spark SQL type by key."""
    guarantee: Guarantee | None = None


@dataclass(frozen=True)
class ConnectorSpec:
    """A connector by name, in the roles that it has."""

    name: str
    roles: Mapping[Role, RoleSpec] = field(default_factory=dict)
