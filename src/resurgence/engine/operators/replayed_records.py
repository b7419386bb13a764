"""Reads the records of a replay request in a Spark task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from resurgence.ids import OperatorId
from resurgence.spark_tasks import ArrowFunction
from resurgence.state.paths import JobPaths
from resurgence.state.protocol.decisions import EpochRange
from resurgence.state.replays import Replays
from resurgence.storage.access import StoreAccess, store_access
from resurgence.storage.object_store import shared_store, task_store
from resurgence.storage.parquet import whole_table

_SCHEMA = (
    "partition STRING, offset BIGINT, raw BINARY, key BINARY,"
    " headers ARRAY<STRUCT<key: STRING, value: BINARY>>, timestamp TIMESTAMP"
)


@dataclass(frozen=True)
class ReplayedRecords:
    """The replay requests of a running job, as raw records."""

    state_url: str
    paths: JobPaths
    dead: tuple[EpochRange, ...] = ()
    """Epochs that were rolled back: their dead letters are not replayed."""

    def read(self, spark: SparkSession, operator: OperatorId, number: int) -> DataFrame:
        """Return the records of a request, with the columns of RAW_RECORDS."""
        request = Replays(shared_store(self.state_url), self.paths).request(operator, number)
        reader = _reader(store_access(self.state_url), request.path, self.dead)
        return (
            spark.range(0, 1, 1, 1)
            .mapInArrow(reader, _SCHEMA)
            .selectExpr(
                "named_struct('partition', partition, 'offset', offset) AS position",
                "raw",
                "key",
                "headers",
                "timestamp",
            )
        )


def _reader(access: StoreAccess, path: str, dead: tuple[EpochRange, ...]) -> ArrowFunction:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            table = whole_table(task_store(access).read(path))
            for first, last in dead:
                epoch = table.column("epoch")
                within = pc.and_(pc.greater_equal(epoch, first), pc.less_equal(epoch, last))
                table = table.filter(pc.invert(within))
            yield from table.drop_columns(["epoch"]).to_batches()

    return read
