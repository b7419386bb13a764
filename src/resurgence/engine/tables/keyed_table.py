"""What tables by key share: rows are shuffled by the hash of their key, each file is written in
that order, and a state TTL is measured in the time of the epochs.

`KeyTable` stores changes, `GroupTable` one row per group.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from resurgence.engine.tables.cache_reads import CacheReads, CacheReports
from resurgence.engine.tables.live_files import LiveFiles
from resurgence.engine.tables.sorted_rows import KEY
from resurgence.engine.tables.state_writer import GROUP, Fill, StateWriter, Written
from resurgence.faults import FaultAction
from resurgence.ids import Epoch, Generation
from resurgence.spark_plans.projection import Projection
from resurgence.state.key_groups import KEY_GROUPS, FileSlice, shuffle_partitions
from resurgence.state.records import TableCheckpoint, TableKind

TIME = "__time"
"""The column with the time of the epoch that changed the row, in microseconds; or the event time of
the row, if its state expires by the watermark.
"""

TOUCHED_AT = "touched_at"

GROUP_OF_KEY = f"pmod(hash({KEY}), {KEY_GROUPS})"


class KeyedTable:
    """A table of rows by key. LiveFiles owns the list of files."""

    def __init__(
        self,
        *,
        url: str,
        folder: str,
        columns: tuple[StructField, ...],
        parallelism: int,
        ttl_micros: int | None = None,
    ) -> None:
        """`columns` are those between `KEY` and `TIME`."""
        self._parallelism = parallelism
        self._ttl = ttl_micros
        self._url = url
        self._writer = StateWriter(url, folder, caches=True)
        self._cache_reports: CacheReports | None = None
        self.schema = StructType(
            [StructField(KEY, LongType()), *columns, StructField(TIME, LongType())]
        )
        names = (f"`{each}`" for each in self.schema.names)
        self._grouped = Projection(*names, f"{GROUP_OF_KEY} AS {GROUP}")

    def cache_reads(self) -> CacheReads:
        """Return how often the tasks of its epochs have read state files so far."""
        return CacheReads() if self._cache_reports is None else self._cache_reports.total

    def _reports(self, spark: SparkSession) -> CacheReports:
        """Return what the tasks of an epoch report their reads to."""
        if self._cache_reports is None:
            self._cache_reports = CacheReports.of(spark)
        return self._cache_reports

    def since(self, time: int) -> int | None:
        """Return the expiry bound: keys that were last touched before it are expired."""
        return None if self._ttl is None else time - self._ttl

    def mergeable(self, live: LiveFiles, time: int) -> frozenset[str]:
        """Return the paths of files worth merging: small files, and files with rows that expired at
        least one TTL ago.
        """
        since = self.since(time)
        if since is None or self._ttl is None:
            return live.small_files()
        stale = {each.path for each in live.files if each.time_start < since - self._ttl}
        return live.small_files() | stale

    def load(
        self, checkpoint: TableCheckpoint, subtasks: tuple[tuple[FileSlice, ...], ...]
    ) -> LiveFiles:
        """Return the files of a checkpoint, as a load plan assigned them to subtasks."""
        touched_at = checkpoint.values.get(TOUCHED_AT)
        return LiveFiles(subtasks, touched_at if isinstance(touched_at, int) else None)

    def checkpoint(self, live: LiveFiles) -> TableCheckpoint:
        """Return the table's part of the operator's metadata."""
        return TableCheckpoint(
            kind=TableKind.KEY,
            schema_text=self.schema.json(),
            files=live.files,
            values={} if live.touched_at is None else {TOUCHED_AT: live.touched_at},
        )

    def dealt(self, rows: DataFrame) -> DataFrame:
        """Shuffle rows by key, into one partition per subtask."""
        return self.gathered(self.shuffled(rows))

    def shuffled(self, rows: DataFrame) -> DataFrame:
        """Shuffle rows by key, into partitions that Spark knows to hold whole keys."""
        return rows.repartition(shuffle_partitions(self._parallelism), KEY)

    def gathered(self, rows: DataFrame) -> DataFrame:
        """Merge the partitions of `shuffled` rows into one per subtask."""
        is_dealt = shuffle_partitions(self._parallelism) == self._parallelism
        return rows if is_dealt else rows.coalesce(self._parallelism)

    def _written(
        self,
        rows: DataFrame,
        fill: Fill,
        epoch: Epoch,
        generation: Generation,
        fault: FaultAction | None,
    ) -> Written:
        """Write rows, one partition per subtask, as files in the order of their keys."""
        grouped = self._grouped.of(rows).sortWithinPartitions(KEY)
        columns = self.schema.names
        return self._writer.write(grouped, columns, fill, TIME, epoch, generation, fault)
