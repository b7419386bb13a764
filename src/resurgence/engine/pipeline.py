"""A graph compiled against Spark: each operator checked once, then applied to DataFrames epoch
by epoch.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from resurgence.connectors.contract import Sink, Source
from resurgence.connectors.registry import make_sink, make_source
from resurgence.engine.operators.window_aggregate import PARTIALS, WindowAggregate
from resurgence.engine.spark_errors import translate
from resurgence.engine.time_table import TimeTable
from resurgence.errors import ResurgenceError, SqlError
from resurgence.graph.model import (
    EVENT_TIME,
    AggregateCall,
    Expression,
    Graph,
    QueryOperator,
    SinkOperator,
    SourceOperator,
    WatermarkSpec,
    WindowAggregateOperator,
)
from resurgence.ids import OperatorId
from resurgence.state.key_groups import shuffle_partitions
from resurgence.state.paths import JobPaths


class Pipeline:
    """The operators of a graph, ready to run."""

    def __init__(
        self, spark: SparkSession, graph: Graph, state_url: str, paths: JobPaths, parallelism: int
    ) -> None:
        spark.conf.set("spark.sql.shuffle.partitions", shuffle_partitions(parallelism))
        self.spark = spark
        self.graph = graph
        self.sources: dict[OperatorId, Source] = {}
        self.sinks: dict[OperatorId, Sink] = {}
        self.windows: dict[OperatorId, WindowAggregate] = {}
        self.tables: dict[OperatorId, TimeTable] = {}
        shapes: dict[OperatorId, DataFrame] = {}
        for operator in graph.operators:
            if isinstance(operator, SourceOperator):
                self.sources[operator.id] = make_source(operator)
                columns = ", ".join(f"`{each.name}` {each.type}" for each in operator.columns)
                shapes[operator.id] = spark.createDataFrame([], columns)
                if operator.watermark is not None:
                    shapes[operator.id] = shapes[operator.id].selectExpr(
                        "*", event_time(operator.watermark)
                    )
            elif isinstance(operator, QueryOperator):
                shapes[operator.id] = _checked_query(shapes[operator.input], operator)
            elif isinstance(operator, WindowAggregateOperator):
                window = _checked_window(
                    shapes[operator.input], operator, shuffle_partitions(parallelism)
                )
                self.windows[operator.id] = window
                self.tables[operator.id] = TimeTable(
                    url=state_url,
                    folder=paths.table(operator.id, PARTIALS),
                    schema=window.schema,
                    keys=window.keys,
                    parallelism=parallelism,
                )
                shapes[operator.id] = window.results(spark.createDataFrame([], window.schema))
            else:
                self.sinks[operator.id] = make_sink(operator, state_url, paths.job)

    def sink_tables(self) -> list[tuple[OperatorId, ...]]:
        """The sink operators of each table that is written."""
        tables: dict[str, list[OperatorId]] = {}
        for operator in self.graph.sinks():
            tables.setdefault(operator.table, []).append(operator.id)
        return [tuple(each) for each in tables.values()]

    def derive(
        self, operator_id: OperatorId, given: Mapping[OperatorId, DataFrame | None]
    ) -> DataFrame | None:
        """The rows of a stateless operator, from those of the operators that the epoch has already
        run.

        None: there are none, and it is known without asking Spark.
        """
        if operator_id in given:
            return given[operator_id]
        operator = self.graph.operator(operator_id)
        assert isinstance(operator, QueryOperator | SinkOperator), f"{operator_id} has not run yet"
        rows = self.derive(operator.input, given)
        if rows is None or isinstance(operator, SinkOperator):
            return rows
        return apply_query(rows, operator)


def event_time(watermark: WatermarkSpec) -> str:
    """The hidden column that carries event time."""
    return f"`{watermark.event_time}` AS `{EVENT_TIME}`"


def apply_query(rows: DataFrame, operator: QueryOperator) -> DataFrame:
    """Filter, then project."""
    if operator.where is not None:
        rows = rows.where(operator.where.sql)
    return rows.selectExpr(*(f"{each.sql} AS `{each.name}`" for each in operator.select))


def _checked_query(rows: DataFrame, operator: QueryOperator) -> DataFrame:
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
    rows: DataFrame, operator: WindowAggregateOperator, partitions: int
) -> WindowAggregate:
    try:
        return WindowAggregate(operator, rows, partitions)
    except (AnalysisException, ParseException) as error:
        for key in operator.keys:
            _pin(rows, key, key.sql)
        for call in operator.aggregates:
            condition = f" FILTER (WHERE {call.condition})" if call.condition else ""
            _pin(rows, call, f"{call.function}({', '.join(call.arguments) or '1'}){condition}")
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
