"""A graph compiled against Spark: its operators, validated once, then run in every epoch."""

from __future__ import annotations

import functools

from pyspark.sql import SparkSession

from resurgence.connectors.contract import Sink, Source
from resurgence.connectors.dead_letter_table import DeadLetterTable
from resurgence.connectors.registry import make_lookup
from resurgence.engine.operators.base import Operator, OperatorContext
from resurgence.engine.operators.registry import make_operator
from resurgence.engine.operators.sink import SinkOperator
from resurgence.engine.operators.source import SourceOperator
from resurgence.engine.tables.cache_reads import CacheReads
from resurgence.engine.tables.live_files import LiveFiles
from resurgence.engine.tables.lookup_cache import LookupCache
from resurgence.graph.model import Graph
from resurgence.ids import OperatorId
from resurgence.state.key_groups import shuffle_partitions
from resurgence.state.paths import JobPaths
from resurgence.state.protocol.decisions import EpochRange


class Pipeline:
    """The operators of a graph, ready to run."""

    def __init__(
        self,
        spark: SparkSession,
        graph: Graph,
        state_url: str,
        paths: JobPaths,
        parallelism: int,
        dead: tuple[EpochRange, ...] = (),
    ) -> None:
        """`dead` are the epochs that were rolled back."""
        spark.conf.set("spark.sql.shuffle.partitions", shuffle_partitions(parallelism))
        # Rows that a failed epoch of another generation has cached.
        spark.catalog.clearCache()
        self.spark = spark
        lookups = {
            each.name: LookupCache(each, make_lookup(each), spark) for each in graph.lookup_tables()
        }
        context = OperatorContext(spark, state_url, paths, parallelism, lookups, dead)
        self.dead_letters = DeadLetterTable(state_url, paths)
        self.operators: dict[OperatorId, Operator] = {}
        """In the order of the graph: inputs first."""
        for spec in graph.operators:
            inputs = [self.operators[each].shape for each in spec.input_ids]
            self.operators[spec.id] = make_operator(spec, inputs, context)
        compiled = tuple(each.spec for each in self.operators.values())
        self.graph = graph.model_copy(update={"operators": compiled})

    @property
    def source_operators(self) -> dict[OperatorId, SourceOperator]:
        return {
            each.id: each for each in self.operators.values() if isinstance(each, SourceOperator)
        }

    @property
    def sources(self) -> dict[OperatorId, Source]:
        return {operator_id: each.source for operator_id, each in self.source_operators.items()}

    @property
    def sinks(self) -> dict[OperatorId, Sink]:
        return {
            each.id: each.sink for each in self.operators.values() if isinstance(each, SinkOperator)
        }

    def live_files(self) -> dict[OperatorId, LiveFiles]:
        """Return the files of all state tables after the newest sealed epoch."""
        return {each.id: each.live for each in self.operators.values() if each.live is not None}

    def cache_reads(self) -> CacheReads:
        """Return how often the tasks of all epochs so far have read files of state by key."""
        return functools.reduce(
            CacheReads.plus, (each.cache_reads() for each in self.operators.values()), CacheReads()
        )

    def table_schemas(self) -> dict[OperatorId, str]:
        """Return the schemas of all state tables."""
        return {
            each.id: each.table_schema
            for each in self.operators.values()
            if each.table_schema is not None
        }

    def sink_tables(self) -> list[tuple[OperatorId, ...]]:
        """Return the sink operators of each output table."""
        tables: dict[str, list[OperatorId]] = {}
        for operator in self.graph.sinks():
            tables.setdefault(operator.table, []).append(operator.id)
        return [tuple(each) for each in tables.values()]
