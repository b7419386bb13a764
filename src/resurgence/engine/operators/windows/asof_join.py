"""ASOF joins: each left row with the newest right row that is not newer than itself.

The input is the union of both sides. A row waits in the bin of its own event time until the
watermark passes it: then every right row that it could match has arrived, and it is emitted, once.
So the output is append-only, and does not depend on how the input is cut into epochs. Rows behind
the watermark are late.

Of the right rows that the watermark has passed, only the newest of each key can match a future row.
It is carried: written again, in a bin beyond all event times. Older ones of its key stay there
until files are merged.

Of several right rows at one instant, the one with the greatest values is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from resurgence.engine.operators.windows.window_aggregate import WindowAggregate, together
from resurgence.engine.tables.time_table import BIN, ROWS, SubtaskRows
from resurgence.graph.specs.window_aggregate import WindowAggregateSpec
from resurgence.graph.values import EVENT_TIME
from resurgence.graph.watermarks import END_OF_TIME
from resurgence.spark_plans.varying_literal import varying_literal
from resurgence.state.records import StateFile

CARRIED = 2**62
"""The bin of carried rows: beyond any event time, before the end of time."""

_AT, _MATCH, _NUMBER = "at", "__match", "__number"


class AsofJoin(WindowAggregate):
    """The join compiled against the types of its input."""

    def __init__(
        self, operator: WindowAggregateSpec, rows: DataFrame, shuffle_partitions: int
    ) -> None:
        assert operator.asof is not None
        self._shuffle_partitions = shuffle_partitions
        self._spec = operator.asof
        self.keys = tuple(f"k{index}" for index in range(len(operator.keys)))
        self._columns = [
            *(f"{each.sql} AS {name}" for name, each in zip(self.keys, operator.keys, strict=True)),
            self._spec.is_right,
            f"unix_micros(`{EVENT_TIME}`) AS {_AT}",
            *(f"`{each}`" for each in (*self._spec.left, *self._spec.right)),
        ]
        self.schema: StructType = self.partials(rows).schema
        self._ties = [_orderable(each, self.schema[each].dataType) for each in self._spec.right]

    @property
    def hashed(self) -> tuple[str, ...]:
        return self.keys

    def partials(
        self,
        rows: DataFrame,
        watermark: int | None = None,
        *,
        count_rows: bool = False,
        spread: bool = False,
    ) -> DataFrame:
        timed = rows.selectExpr(f"unix_micros(`{EVENT_TIME}`) AS {BIN}", *self._columns)
        shuffled = self._by_keys(timed.where(f"{BIN} IS NOT NULL"))
        return shuffled.selectExpr("*", f"1L AS {ROWS}") if count_rows else shuffled

    def bins_to_close(self, open_from: int, still_open_from: int) -> tuple[int, int]:
        return open_from, END_OF_TIME

    def closed(
        self, subtasks: Sequence[SubtaskRows], open_from: int, still_open_from: int
    ) -> DataFrame:
        first_open = varying_literal(f"{still_open_from}L")
        passed = f"{BIN} < {first_open} OR {BIN} = {CARRIED}L"
        return together([self.results(each.rows.where(passed)) for each in subtasks])

    def results(self, partials: DataFrame) -> DataFrame:
        """Return the left rows, each with the right row that it matches."""
        is_right = self._spec.is_right
        found = ", ".join((_AT, *(f"`{each}`" for each in self._spec.right)))
        # A right row at the same instant sorts before the left row, unless the match must be older.
        first = "ASC" if self._spec.is_strict else "DESC"
        over = self._over(f"{_AT}, {is_right} {first}", self._ties)
        newest = f"last(IF({is_right}, struct({found}), NULL), true) {over} AS {_MATCH}"
        matched = partials.selectExpr("*", newest).where(f"NOT {is_right}")
        if not self._spec.is_outer:
            matched = matched.where(f"{_MATCH} IS NOT NULL")
        return matched.selectExpr(
            *(f"`{each}`" for each in self._spec.left),
            *(f"{_MATCH}.`{each}` AS `{each}`" for each in self._spec.right),
            f"timestamp_micros({_AT}) AS `{EVENT_TIME}`",
        )

    def carried(self, subtasks: Sequence[SubtaskRows], still_open_from: int) -> DataFrame | None:
        if still_open_from == END_OF_TIME:
            return None
        first_open = varying_literal(f"{still_open_from}L")
        passed = f"{self._spec.is_right} AND {BIN} < {first_open}"
        names = [f"`{each}`" for each in self.schema.names if each != BIN]
        newest = [
            self._numbered(each.rows.where(passed)).where(f"{_NUMBER} = 1") for each in subtasks
        ]
        return together([each.selectExpr(f"{CARRIED}L AS {BIN}", *names) for each in newest])

    def merged(self, subtasks: Sequence[SubtaskRows]) -> DataFrame:
        """Return all waiting rows, and the newest carried row of each key."""
        names = [f"`{each}`" for each in self.schema.names]
        return together(
            [
                self._numbered(each.rows)
                .where(f"{BIN} < {CARRIED}L OR {_NUMBER} = 1")
                .selectExpr(*names)
                for each in subtasks
            ]
        )

    def timers(self, files: Iterable[StateFile], open_from: int) -> tuple[int, ...]:
        return tuple(sorted({max(each.time_start, open_from) + 1 for each in files}))

    def _first_open(self, watermark: int) -> int:
        return watermark

    def _numbered(self, rows: DataFrame) -> DataFrame:
        """Number rows by key from the newest, carried rows separately."""
        newest_first = [f"{each} DESC" for each in self._ties]
        over = self._over(f"{_AT} DESC", newest_first, f"{BIN} = {CARRIED}L")
        number = f"row_number() {over} AS {_NUMBER}"
        return rows.selectExpr("*", number)

    def _over(self, order: str, ties: Sequence[str], *groups: str) -> str:
        partition = ", ".join((*self.keys, *groups))
        by = f"PARTITION BY {partition} " if partition else ""
        frame = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
        return f"OVER ({by}ORDER BY {', '.join((order, *ties))} {frame})"


def _orderable(name: str, kind: DataType) -> str:
    """Return SQL by which rows can be ordered, for a column."""
    return f"CAST(`{name}` AS STRING)" if _has_no_order(kind) else f"`{name}`"


def _has_no_order(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _has_no_order(kind.elementType)
    if isinstance(kind, StructType):
        return any(_has_no_order(each.dataType) for each in kind)
    return isinstance(kind, MapType | VariantType)
