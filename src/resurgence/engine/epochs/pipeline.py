"""A graph compiled against Spark: each operator checked once, then applied to DataFrames epoch
by epoch.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from resurgence.connectors.contract import Sink, Source
from resurgence.connectors.registry import make_lookup, make_sink, make_source
from resurgence.engine.epochs.planning_time import reads_planning_time, with_planning_time
from resurgence.engine.epochs.source_reader import read_shape, source_shape
from resurgence.engine.functions.clock_reads import refuse_clock_reads, without_clock_reads
from resurgence.engine.operators.changelog_normaliser import ChangelogNormaliser
from resurgence.engine.operators.updating_query import ROWS_TABLE, UpdatingQuery
from resurgence.engine.operators.window_aggregate import PARTIALS, WindowAggregate
from resurgence.engine.operators.windows import compile_window
from resurgence.engine.spark.errors import translate
from resurgence.engine.tables.kept_lookup import KeptLookup
from resurgence.engine.tables.key_table import KeyTable
from resurgence.engine.tables.time_table import TimeTable
from resurgence.errors import ResurgenceError, SqlError
from resurgence.graph.model import (
    EVENT_TIME,
    AggregateCall,
    ClosedQuerySpec,
    Expression,
    Graph,
    LateRowsSpec,
    LookupJoinSpec,
    NormaliseSpec,
    OperatorSpec,
    QuerySpec,
    SinkSpec,
    SourceSpec,
    StatelessSpec,
    UnionSpec,
    UpdatingQuerySpec,
    WindowAggregateSpec,
    inputs_of,
)
from resurgence.ids import OperatorId
from resurgence.sql.functions.call_parts import batch_sql
from resurgence.state.key_groups import shuffle_partitions
from resurgence.state.paths import JobPaths


class Pipeline:
    """The operators of a graph, ready to run."""

    def __init__(
        self, spark: SparkSession, graph: Graph, state_url: str, paths: JobPaths, parallelism: int
    ) -> None:
        spark.conf.set("spark.sql.shuffle.partitions", shuffle_partitions(parallelism))
        # What a failed epoch of another generation had kept.
        spark.catalog.clearCache()
        self.spark = spark
        self.sources: dict[OperatorId, Source] = {}
        self.sinks: dict[OperatorId, Sink] = {}
        self.windows: dict[OperatorId, WindowAggregate] = {}
        self.tables: dict[OperatorId, TimeTable] = {}
        self.updating: dict[OperatorId, UpdatingQuery] = {}
        self.normalisers: dict[OperatorId, ChangelogNormaliser] = {}
        self.lookups: dict[str, KeptLookup] = {
            each.name: KeptLookup(each, make_lookup(each), spark) for each in graph.lookup_tables()
        }
        """The lookup tables, by name."""
        self._shapes: dict[OperatorId, DataFrame] = {}
        """No rows of each operator, with its columns."""
        self._reads_time = {each.id for each in graph.operators if reads_planning_time(each)}
        self._by_processing_time = {
            each.id for each in graph.window_aggregates() if each.by_processing_time
        }
        shapes = self._shapes
        operators: list[OperatorSpec] = []
        for declared in graph.operators:
            operator = without_clock_reads(declared, self._inputs(declared))
            operators.append(operator)
            if isinstance(operator, SourceSpec):
                self.sources[operator.id] = make_source(operator)
                shapes[operator.id] = source_shape(spark, operator)
            elif isinstance(operator, QuerySpec):
                shapes[operator.id] = _checked_query(self._inputs(operator)[0], operator)
            elif isinstance(operator, WindowAggregateSpec):
                window = _checked_window(
                    self._inputs(operator)[0], operator, shuffle_partitions(parallelism)
                )
                self.windows[operator.id] = window
                self.tables[operator.id] = TimeTable(
                    url=state_url,
                    folder=paths.table(operator.id, PARTIALS),
                    schema=window.schema,
                    keys=window.hashed,
                    parallelism=parallelism,
                )
                shapes[operator.id] = window.results(spark.createDataFrame([], window.schema))
            elif isinstance(operator, LateRowsSpec):
                shapes[operator.id] = shapes[operator.input]
            elif isinstance(operator, UnionSpec):
                shapes[operator.id] = _united(self._inputs(operator))
                refuse_clock_reads(shapes[operator.id], None)
            elif isinstance(operator, ClosedQuerySpec):
                shapes[operator.id] = _checked_closed_query(spark, operator, self._inputs(operator))
            elif isinstance(operator, UpdatingQuerySpec):
                query = _checked_updating_query(
                    operator,
                    self._inputs(operator),
                    url=state_url,
                    folder=paths.table(operator.id, ROWS_TABLE),
                    parallelism=parallelism,
                )
                self.updating[operator.id] = query
                shapes[operator.id] = query.shape
            elif isinstance(operator, NormaliseSpec):
                normaliser = ChangelogNormaliser(
                    operator,
                    shapes[operator.input],
                    url=state_url,
                    folder=paths.table(operator.id, ROWS_TABLE),
                    parallelism=parallelism,
                )
                self.normalisers[operator.id] = normaliser
                shapes[operator.id] = normaliser.shape
            elif isinstance(operator, LookupJoinSpec):
                shapes[operator.id] = _checked_lookup_join(
                    shapes[operator.input], self.lookups[operator.table.name], operator
                )
            elif isinstance(operator, SinkSpec):
                self.sinks[operator.id] = make_sink(operator, state_url, paths.job)
        self.graph = Graph(operators=tuple(operators))

    def _inputs(self, operator: OperatorSpec) -> list[DataFrame]:
        """No rows of what an operator reads, with their columns."""
        if isinstance(operator, SourceSpec):
            return [read_shape(self.spark, operator)]
        return [self.timed(operator.id, self._shapes[each], 0) for each in inputs_of(operator)]

    def state_tables(self) -> dict[OperatorId, TimeTable | KeyTable]:
        """The tables of all operators that keep rows."""
        queries = {operator_id: each.table for operator_id, each in self.updating.items()}
        normalisers = {operator_id: each.table for operator_id, each in self.normalisers.items()}
        return {**self.tables, **queries, **normalisers}

    def sink_tables(self) -> list[tuple[OperatorId, ...]]:
        """The sink operators of each table that is written."""
        tables: dict[str, list[OperatorId]] = {}
        for operator in self.graph.sinks():
            tables.setdefault(operator.table, []).append(operator.id)
        return [tuple(each) for each in tables.values()]

    def timed(self, operator_id: OperatorId, rows: DataFrame, time: int) -> DataFrame:
        """An operator's input, with the planning time of the epoch if its expressions read it, or
        if it is a window by processing time.
        """
        if operator_id in self._by_processing_time:
            rows = with_planning_time(rows, time, EVENT_TIME)
        return with_planning_time(rows, time) if operator_id in self._reads_time else rows

    def derive(
        self, operator_id: OperatorId, given: Mapping[OperatorId, DataFrame | None], time: int
    ) -> DataFrame | None:
        """The rows of a stateless operator, from those of the operators that the epoch has already
        run. `time` is when the epoch was planned, in microseconds.

        None: there are none, and it is known without asking Spark.
        """
        if operator_id in given:
            return given[operator_id]
        operator = self.graph.operator(operator_id)
        assert isinstance(operator, StatelessSpec | SinkSpec), f"{operator_id} has not run yet"
        inputs = inputs_of(operator)
        found = [self.derive(each, given, time) for each in inputs]
        if all(each is None for each in found):
            return None
        rows = [
            self.timed(operator_id, self._shapes[name] if each is None else each, time)
            for name, each in zip(inputs, found, strict=True)
        ]
        match operator:
            case QuerySpec():
                return apply_query(rows[0], operator)
            case UnionSpec():
                return _united(rows)
            case ClosedQuerySpec():
                return apply_closed_query(self.spark, rows, operator)
            case LookupJoinSpec():
                table = self.lookups[operator.table.name]
                return apply_lookup_join(rows[0], table.rows, operator)
            case _:
                return rows[0]


def apply_query(rows: DataFrame, operator: QuerySpec) -> DataFrame:
    """Filter, then project."""
    if operator.where is not None:
        rows = rows.where(operator.where.sql)
    return rows.selectExpr(*(f"{each.sql} AS `{each.name}`" for each in operator.select))


def apply_closed_query(
    spark: SparkSession,
    inputs: Sequence[DataFrame],
    operator: ClosedQuerySpec | UpdatingQuerySpec,
) -> DataFrame:
    """The batch query over all rows that there are."""
    named: dict[str, Any] = {f"input_{number}": rows for number, rows in enumerate(inputs)}
    return spark.sql(operator.sql, **named)


def _checked_closed_query(
    spark: SparkSession, operator: ClosedQuerySpec, inputs: Sequence[DataFrame]
) -> DataFrame:
    try:
        rows = apply_closed_query(spark, inputs, operator)
        refuse_clock_reads(rows, operator.position)
        return rows
    except (AnalysisException, ParseException) as error:
        failure = translate(error)
        if operator.position is None:
            raise failure from error
        place = operator.position
        raise SqlError(failure.message, line=place.line, column=place.column) from error


def apply_lookup_join(rows: DataFrame, table: DataFrame, operator: LookupJoinSpec) -> DataFrame:
    """Each row with what it meets in the table. Spark decides how, by the table's size."""
    found = table.selectExpr(*(f"{each.sql} AS `{each.name}`" for each in operator.found))
    if operator.scalar is None:
        return rows.join(found, F.expr(operator.on.sql), operator.join)
    given: dict[str, Any] = {"rows": rows, "found": found}
    scalar = f"(SELECT {operator.scalar.sql} FROM {{found}} WHERE {operator.on.sql})"
    return rows.sparkSession.sql(
        f"SELECT *, {scalar} AS `{operator.scalar.name}` FROM {{rows}}", **given
    )


def _checked_lookup_join(rows: DataFrame, table: KeptLookup, operator: LookupJoinSpec) -> DataFrame:
    try:
        joined = apply_lookup_join(rows, table.rows, operator)
        refuse_clock_reads(joined, operator.on.position)
        return joined
    except (AnalysisException, ParseException) as error:
        failure = translate(error)
        place = operator.on.position
        if place is None:
            raise failure from error
        raise SqlError(failure.message, line=place.line, column=place.column) from error


def _checked_updating_query(
    operator: UpdatingQuerySpec,
    inputs: Sequence[DataFrame],
    *,
    url: str,
    folder: str,
    parallelism: int,
) -> UpdatingQuery:
    try:
        query = UpdatingQuery(operator, inputs, url=url, folder=folder, parallelism=parallelism)
        kept = [
            rows.selectExpr(*(f"{each.sql} AS `{each.name}`" for each in given.columns))
            for given, rows in zip(operator.inputs, inputs, strict=True)
        ]
        refuse_clock_reads(
            apply_closed_query(inputs[0].sparkSession, kept, operator), operator.position
        )
        return query
    except (AnalysisException, ParseException) as error:
        for given, rows in zip(operator.inputs, inputs, strict=True):
            for each in given.columns:
                _pin(rows, each, each.sql)
        failure = translate(error)
        if operator.position is None:
            raise failure from error
        place = operator.position
        raise SqlError(failure.message, line=place.line, column=place.column) from error


def _united(inputs: Sequence[DataFrame]) -> DataFrame:
    """All rows, under the names of the first; of each column the type that holds all its values."""
    return functools.reduce(DataFrame.union, inputs)


def _checked_query(rows: DataFrame, operator: QuerySpec) -> DataFrame:
    """Apply a query to no rows: Spark checks its types, and a complaint is pinned to its place
    in the SQL.
    """
    try:
        return apply_query(rows, operator)
    except (AnalysisException, ParseException) as error:
        if operator.where is not None:
            # A filter takes nothing but a boolean; a projection takes it as it is.
            _pin(rows, operator.where, f"count(*) FILTER (WHERE {operator.where.sql})")
        for each in operator.select:
            _pin(rows, each, each.sql)
        raise translate(error) from error


def _checked_window(
    rows: DataFrame, operator: WindowAggregateSpec, partitions: int
) -> WindowAggregate:
    try:
        return compile_window(operator, rows, partitions)
    except (AnalysisException, ParseException) as error:
        for key in operator.keys:
            _pin(rows, key, key.sql)
        for call in operator.aggregates:
            _pin(rows, call, batch_sql(call))
        raise translate(error) from error


def _pin(rows: DataFrame, part: Expression | AggregateCall, sql: str) -> None:
    """Raise an SqlError at the part's place if this part is what Spark refuses."""
    try:
        rows.selectExpr(f"{sql} AS value")
    except (AnalysisException, ParseException) as error:
        failure: ResurgenceError = translate(error)
        if part.position is None:
            raise failure from error
        raise SqlError(
            failure.message, line=part.position.line, column=part.position.column
        ) from error
