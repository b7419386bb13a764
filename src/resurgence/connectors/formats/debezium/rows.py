"""The two rows of a Debezium event, as Spark SQL: how they are parsed, and how their values become
columns of the declared types.

The SQL is over the columns of a parsed event: `text`, the line; `is_described`, whether it has a
schema, and `described`, the column descriptions in it. `bare_before` and `bare_after` are the rows
of an event without schema, `full_before` and `full_after` those of an event with schema.
`is_wrapped_before` and `is_wrapped_after` say whether the row is in `payload`.

Timestamps, dates and decimals are written in Debezium's own types (`types`), all other
values as in any JSON (`json.values`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from resurgence.connectors.formats.debezium.types import (
    DEFAULT_UNIT,
    decimal_sql,
    is_decimal,
    is_temporal,
    temporal_sql,
)
from resurgence.connectors.formats.json.values import (
    JsonValue,
    data_type,
    member_written,
    parsed_type,
)
from resurgence.graph.values import Column


@dataclass(frozen=True)
class EventRow:
    """One of the two rows of an event; `side` is `before` or `after`."""

    side: str
    columns: tuple[Column, ...]
    units: Mapping[str, str]
    """The unit, by column, of whole numbers in TIMESTAMP columns of records without schema."""

    def type(self, *, is_described: bool) -> str:
        """Return the type as which Spark parses the row: text where the declared type does not
        determine how a value is written. Decimals are read as text only where a schema defines how
        they are written: JSON numbers would lose digits.
        """

        def kind(column: Column) -> str:
            if is_temporal(column.type) or (is_described and is_decimal(column.type)):
                return "STRING"
            return parsed_type(data_type(column.type))

        members = ", ".join(f"`{each.name}`: {kind(each)}" for each in self.columns)
        return f"STRUCT<{members}>"

    # Spark's SQL parser is slow, so the expressions are cached for the next epoch.

    @cached_property
    def parsed(self) -> list[SparkColumn]:
        """The parsed values that are written as in any JSON."""
        return [
            F.expr(f"{self._either(name)} AS `{self._parsed(name)}`") for name in self._json_values
        ]

    @cached_property
    def text(self) -> list[SparkColumn]:
        """The text of the row in its line, where a value is needed as it was written."""
        conditions = [each.is_doubtful for each in self._json_values.values()]
        doubtful = " OR ".join(each for each in conditions if each is not None)
        if not doubtful:
            return []
        payload = f"IF(is_wrapped_{self.side}, {member_written('text', 'payload')}, text)"
        text = f"IF({doubtful}, {member_written(payload, self.side)}, NULL)"
        return [F.expr(f"{text} AS written_{self.side}")]

    @cached_property
    def written(self) -> list[SparkColumn]:
        """The text of values in their row, where it is needed."""
        row = f"written_{self.side}"
        found = {name: each.found_in(row, name) for name, each in self._json_values.items()}
        return [F.expr(f"{sql} AS `{self._written(name)}`") for name, sql in found.items() if sql]

    @cached_property
    def read(self) -> list[SparkColumn]:
        """The row with its declared types, and whether it has values that do not fit them."""
        values, faults = [], []
        for each in self.columns:
            value, fault = self._read(each)
            values.append(f"{value} AS `{each.name}`")
            faults += [fault] if fault else []
        is_there = f"(bare_{self.side} IS NOT NULL OR full_{self.side} IS NOT NULL)"
        row = f"IF({is_there}, struct({', '.join(values)}), NULL)"
        # A fault in a value that is null is null.
        misfits = f"coalesce({' OR '.join(faults) or 'false'}, false)"
        return [F.expr(f"{row} AS {self.side}"), F.expr(f"{misfits} AS {self.side}_misfits")]

    def _read(self, column: Column) -> tuple[str, str | None]:
        """Return SQL for a value, and SQL that is true where it does not fit its type."""
        if column.name in self._json_values:
            value = self._json_values[column.name]
            return value.read, value.is_misread
        if is_temporal(column.type):
            text = f"trim({self._either(column.name)})"
            unit = self._unit(column)
            instant = temporal_sql(text, column.type, column.name, "described", unit)
            return instant, f"({text} IS NOT NULL AND {instant} IS NULL)"
        bare, full = (f"{each}_{self.side}.`{column.name}`" for each in ("bare", "full"))
        decimal = decimal_sql(full, column.type, column.name, "described")
        fault = f"({full} IS NOT NULL AND {decimal} IS NULL)"
        return f"IF(is_described, {decimal}, {bare})", fault

    @cached_property
    def _json_values(self) -> dict[str, JsonValue]:
        return {
            each.name: JsonValue(
                data_type(each.type),
                f"`{self._parsed(each.name)}`",
                f"`{self._written(each.name)}`",
                self._unit(each),
            )
            for each in self.columns
            if not is_temporal(each.type) and not is_decimal(each.type)
        }

    def _either(self, name: str) -> str:
        return f"IF(is_described, full_{self.side}.`{name}`, bare_{self.side}.`{name}`)"

    def _parsed(self, name: str) -> str:
        return f"parsed_{self.side}_{name}"

    def _written(self, name: str) -> str:
        return f"written_{self.side}_{name}"

    def _unit(self, column: Column) -> str:
        return self.units.get(column.name, DEFAULT_UNIT)
