"""The first rows of each key, in an order: what a Top-N or a deduplication over an append-only
stream stores instead of all rows.

The first N rows of a set are the first N of the first N of its parts. So an epoch takes the first N
of its own rows of each key, and merges them with those that the key has. A key is one row of a
GroupTable, with a sorted array; each of its items has the epoch that inserted it.

The order is total: rows that are equal in it are ordered by all of their stored values, bit by bit,
and rows that are equal in these, too, are the same row. So the result does not depend on the cut
into epochs, on subtasks or on files. Older ones of equal rows come first. Therefore what an epoch
drops is always the end of the array, and what it inserts are the items with its number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StructField,
    StructType,
)

from resurgence.connectors.exact_rows import ExactRows, quoted
from resurgence.engine.operators.aggregates.accumulators import AFTER, BEFORE, is_comparable
from resurgence.engine.tables.group_table import HAD_ROW, previous
from resurgence.engine.tables.keyed_table import GROUP_OF_KEY, TIME
from resurgence.engine.tables.newest_rows import EPOCH
from resurgence.engine.tables.sorted_rows import KEY
from resurgence.engine.tables.state_writer import GROUP
from resurgence.graph.aggregate_call import SortOrder
from resurgence.graph.specs.updating_query import FirstRows, UpdatingQuerySpec
from resurgence.spark_plans.projection import Projection
from resurgence.sql.functions.aggregate_sql import comparator

_FIRST = "__first"
_MOST = 1_000
"""More rows of a key are not rewritten in every epoch that touches it."""
_INSERTED = "inserted_in"
_PLACE = "__place"
_ITEM, _GAINED, _LOST = "__item", "__gained", "__lost"


@dataclass(frozen=True)
class StoredFirstRows:
    """A Top-N over an append-only stream, compiled against the types of its input."""

    query: FirstRows
    columns: tuple[str, ...]
    """What is selected from the input rows: keys and values."""
    keys: tuple[StructField, ...]
    row: tuple[StructField, ...]
    """The stored values of a row."""
    values: tuple[StructField, ...]
    """The array of rows, as the single column of state."""

    # ---------------------------------------------------------------- an epoch's rows

    def partials_of(
        self, rows: DataFrame, shuffled: Callable[[DataFrame], DataFrame], *, spread: bool
    ) -> DataFrame:
        """Return the first of an epoch's rows by key, with `GROUP`, in `shuffled` partitions."""
        for each in self._reading:
            rows = each.of(rows)
        ranked = self._ranked.of(shuffled(rows)).where(f"{_PLACE} <= {self.query.limit}")
        # The rows are in the order of the window already.
        return self._made.of(self._together.of(ranked).where(f"{_PLACE} = 1"))

    @cached_property
    def _groups(self) -> list[str]:
        return [quoted(each.name) for each in self.keys]

    @cached_property
    def _exact(self) -> ExactRows:
        return ExactRows(self.row)

    @cached_property
    def _reading(self) -> tuple[Projection, ...]:
        key = f"shiftrightunsigned(xxhash64({', '.join(self._groups)}), 2) AS {KEY}"
        return (
            Projection(*self.columns),
            Projection(key, *self._groups, *self._exact.forms),
        )

    @cached_property
    def _over(self) -> str:
        orders = [*(f"{self._ordered(each)}" for each in self.query.order), *self._exact.names]
        return f"PARTITION BY {', '.join([KEY, *self._groups])} ORDER BY {', '.join(orders)}"

    def _ordered(self, order: SortOrder) -> SortOrder:
        """Return an order over the exact forms."""
        name = order.sql.strip("`")
        kind = next(each.dataType for each in self.row if each.name == name)
        path = f"{name}.value" if isinstance(kind, FloatType | DoubleType) else name
        return order.model_copy(update={"sql": path})

    @cached_property
    def _ranked(self) -> Projection:
        return Projection("*", f"row_number() OVER ({self._over}) AS {_PLACE}")

    @cached_property
    def _together(self) -> Projection:
        """The array of the rows of a key, in the row that is the first one."""
        item = self._item("0L", "")
        rows = f"array({item})"
        if self.query.limit > 1:
            whole = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
            rows = f"collect_list({item}) OVER ({self._over} {whole})"
        return Projection(KEY, *self._groups, _PLACE, f"{rows} AS {_FIRST}")

    @cached_property
    def _made(self) -> Projection:
        return Projection(f"{GROUP_OF_KEY} AS {GROUP}", KEY, *self._groups, _FIRST)

    def _item(self, epoch: str, row: str) -> str:
        values = (f"{row}{name} AS {name}" for name in self._exact.names)
        return f"struct({', '.join([f'{epoch} AS {_INSERTED}', *values])})"

    # ---------------------------------------------------------------- merge

    def added(self, rows: DataFrame) -> DataFrame:
        """Return the first rows of an epoch, merged with the previous ones."""
        return self._adding.of(rows)

    @cached_property
    def _adding(self) -> Projection:
        keys = [*map(self._ordered, self.query.order)]
        keys += [SortOrder(sql=each) for each in (*self._exact.names, _INSERTED)]
        compared = comparator([(each.sql, each) for each in keys])
        fresh = f"transform({_FIRST}, each -> {self._item(EPOCH, 'each.')})"
        both = f"array_sort(concat({previous(_FIRST)}, {fresh}), {compared})"
        merged = f"IF({HAD_ROW}, slice({both}, 1, {self.query.limit}), {fresh})"
        return Projection(
            GROUP,
            KEY,
            *self._groups,
            EPOCH,
            TIME,
            HAD_ROW,
            f"{merged} AS {_FIRST}",
            previous(_FIRST),
        )

    def with_rows(self, rows: DataFrame) -> DataFrame:
        """Return the rows: no key loses all of its own."""
        return rows

    # ---------------------------------------------------------------- changes

    def results(self, rows: DataFrame) -> DataFrame:
        """Return pairs of results: `AFTER` and `BEFORE`, null where there is none."""
        rows = rows.where(f"exists({_FIRST}, each -> each.{_INSERTED} = {EPOCH})")
        for each in self._finishing:
            rows = each.of(rows)
        return rows

    @cached_property
    def _finishing(self) -> tuple[Projection, ...]:
        number = self.query.number
        lost, gained = f"coalesce({previous(_FIRST)}, slice({_FIRST}, 1, 0))", _FIRST
        if not any(f"`{number}`" in each.sql for each in self.query.results):
            # A row that stays has the same result in another place.
            left = f"filter({_FIRST}, each -> each.{_INSERTED} < {EPOCH})"
            lost = f"slice({lost}, size({left}) + 1, {self.query.limit})"
            gained = f"filter({_FIRST}, each -> each.{_INSERTED} = {EPOCH})"
        pairs = f"arrays_zip({_LOST}, {_GAINED})"
        numbered = f"transform({pairs}, (pair, at) -> named_struct('pair', pair, 'number', at + 1))"
        return (
            Projection(f"{lost} AS {_LOST}", f"{gained} AS {_GAINED}"),
            Projection(f"explode({numbered}) AS {_ITEM}"),
            *self._side(_GAINED, AFTER, _ITEM),
            *self._side(_LOST, BEFORE, AFTER),
        )

    def _side(self, side: str, result: str, passed: str) -> tuple[Projection, ...]:
        """Return the steps that compute the result of one side of a pair."""
        row = f"{_ITEM}.pair.{side}"
        values = (f"{row}.{name} AS {name}" for name in self._exact.names)
        results = (f"{each.sql} AS {quoted(each.name)}" for each in self.query.results)
        result_row = f"struct({', '.join(results)})"
        carried = dict.fromkeys((_ITEM, passed))
        return (
            Projection(*carried, *values),
            Projection(*carried, *self._exact.restored, f"{_ITEM}.number AS {self.query.number}"),
            Projection(*carried, f"IF({row} IS NULL, NULL, {result_row}) AS {result}"),
        )


def stored_first_rows(operator: UpdatingQuerySpec, rows: DataFrame) -> StoredFirstRows | None:
    """Return what a Top-N stores; None if it must store all rows: over a changelog, any of them can
    become one of the first.
    """
    source, query = operator.inputs[0], operator.first_rows
    if query is None or source.is_updating or query.limit > _MOST:
        return None
    columns = tuple(f"{each.sql} AS {quoted(each.name)}" for each in source.columns)
    named = rows.selectExpr(*columns)
    keys = tuple(named.schema[each] for each in source.keys)
    row = tuple(each for each in named.schema if each.name not in source.keys)
    orders = {each.sql.strip("`") for each in query.order}
    if not (
        all(is_comparable(each.dataType) for each in keys)
        and all(_is_exact(each.dataType) for each in row)
        and all(isinstance(each.dataType, AtomicType) for each in row if each.name in orders)
    ):
        return None
    exact = ExactRows(row)
    items = named.selectExpr(*exact.forms).selectExpr(
        f"collect_list(struct(0L AS {_INSERTED}, {', '.join(exact.names)})) AS {_FIRST}"
    )
    values = (StructField(_FIRST, items.schema[0].dataType),)
    return StoredFirstRows(query, columns, keys, row, values)


def _is_exact(kind: DataType) -> bool:
    """Return whether values that are ordered as equal are the same, in their exact form."""
    if isinstance(kind, ArrayType):
        return _is_exact(kind.elementType)
    if isinstance(kind, MapType):
        return _is_exact(kind.keyType) and _is_exact(kind.valueType)
    if isinstance(kind, StructType):
        return all(_is_exact(each.dataType) for each in kind)
    return is_comparable(kind)
