"""Sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from resurgence.graph.specs.base import Definition, Spec, duration_text, options_in_words, place_of
from resurgence.graph.values import Column, Value
from resurgence.ids import OperatorId


class WatermarkSpec(Value):
    """The watermark of a source: the maximum of `sql` over the rows read."""

    event_time: str
    sql: str
    delay_micros: int | None = None
    """Set if `sql` is event time minus this delay, which is much cheaper to compute."""


class SourceSpec(Spec):
    """Reads a range of input per epoch."""

    kind: Literal["source"] = "source"
    table: str
    connector: str
    options: dict[str, str]
    columns: tuple[Column, ...]
    watermark: WatermarkSpec | None = None
    idle_micros: int | None = None
    """After this time without rows, it no longer holds back the watermark."""
    max_future_micros: int | None = None
    """A row whose event time is further ahead of the planning time is a bad record."""
    is_changelog: bool = False
    """The records of its format are changes."""
    keys: tuple[str, ...] = ()
    """Set if its records are keyed changes: its rows have `OPERATION` and `POSITION`, and a
    NormaliseSpec converts them into a changelog.
    """

    @property
    def is_updating(self) -> bool:
        """Whether its rows have `CHANGE`."""
        return self.is_changelog and not self.keys

    @property
    def read_columns(self) -> tuple[Column, ...]:
        """The columns that the connector reads; the others are computed from them."""
        return tuple(each for each in self.columns if each.generated is None)

    @property
    def place(self) -> str:
        """The location that it reads. Offsets are valid only for this location."""
        return place_of(self.connector, self.options)

    is_durable: ClassVar[bool] = True

    @property
    def input_ids(self) -> tuple[OperatorId, ...]:
        return ()

    def definition(self, needed: set[str] | None) -> Definition:
        event_time = self.watermark.event_time if self.watermark else None
        columns = sorted(
            f"{each.name} {each.type}"
            + (f" {each.generated.sql}" if each.generated else "")
            + (f" METADATA {each.metadata}" if each.metadata else "")
            for each in self.columns
            if needed is None or each.name in needed or (each.generated and each.name == event_time)
        )
        return Definition([self.id, event_time, *columns], set())

    def explain(self, parallelism: int) -> Iterator[str]:
        yield f"{self.id}: source"
        yield f"  reads        table {self.table} through {self.connector}{options_in_words(self.options)}"
        yield f"  columns      {', '.join(map(_column_in_words, self.columns))}"
        if self.watermark:
            yield f"  event time   {self.watermark.event_time}"
            yield f"  watermark    maximum of {self.watermark.sql}"
        if self.idle_micros is not None:
            yield f"  idle         after {duration_text(self.idle_micros)} without rows"
        if self.max_future_micros is not None:
            ahead = duration_text(self.max_future_micros)
            yield f"  bad record   event time more than {ahead} ahead of the planning time"
        yield "  state        the offset in its input (GlobalTable)"


def _column_in_words(column: Column) -> str:
    text = f"{column.name} {column.type}".strip()
    if column.generated:
        return f"{text} AS ({column.generated.sql})"
    return f"{text} METADATA FROM '{column.metadata}'" if column.metadata else text
