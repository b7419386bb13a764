"""The Iceberg source: rows that are appended to a table, by ranges of its snapshots.

The driver reads the snapshots and their manifests; tasks read the files. A range begins and ends at
a row of a file of a snapshot. Snapshots, manifests and files are immutable, so it has the same rows
whenever it is read, until its snapshots expire.

With `format = 'change_data_feed'` the stream is a changelog: the rows of the files that a snapshot
removed are deleted, those of the files that it added are inserted, and rows that are both were only
copied. Such a snapshot is read as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from resurgence.connectors.connector import SourceDeclaration
from resurgence.connectors.contract import (
    BAD_POSITION,
    RECORD_POSITION,
    Source,
    left_out,
    raw_records,
)
from resurgence.connectors.formats.explanation import Explainer, parsed
from resurgence.connectors.formats.json.lines import JSON, JsonLineReader
from resurgence.connectors.formats.json.writer import object_sql
from resurgence.connectors.iceberg.catalogs.catalog import IcebergCatalog
from resurgence.connectors.iceberg.options import IcebergSourceOptions, StartKind, StopAt
from resurgence.connectors.iceberg.reading.file_reader import FILE, ROW, FilePiece, read_pieces
from resurgence.connectors.iceberg.reading.snapshots import (
    TablePosition,
    following,
    is_complete,
    newest_before,
)
from resurgence.connectors.iceberg.reading.source_table import (
    CHANGE_ID,
    SNAPSHOT_ID,
    LoadedTable,
    SourceTable,
    gone_from_history,
)
from resurgence.connectors.iceberg.reading.table_files import accesses, declared_columns
from resurgence.connectors.lakehouse.carried_rows import without_carried
from resurgence.connectors.lookups.contract import spark_schema
from resurgence.errors import BadRecord, SourceError, UserError
from resurgence.graph.values import CHANGE, Column
from resurgence.state.records import InputRange, Offset, RecordPosition

if TYPE_CHECKING:
    from pyiceberg.table import Table

_SNAPSHOT = "__snapshot"
"""The column with the number of a row's snapshot in its range."""


class IcebergSource(Source):
    """The rows that are appended to a table, or its changelog."""

    position_sql = "concat(position.partition, '@', position.offset)"

    def __init__(self, options: IcebergSourceOptions, declaration: SourceDeclaration) -> None:
        self._options = options
        self._name = declaration.table
        self._columns = declaration.columns
        self._is_changelog = declaration.format.spec.is_changelog
        self._catalog = IcebergCatalog(options.place(), SourceError)
        self._table = SourceTable(self._catalog, self._name, is_changelog=self._is_changelog)
        self.bad_data = options.bad_data
        # A record of a changelog is stored with its change, and can be read again.
        hidden = (Column(name=CHANGE, type="INT"),) if self._is_changelog else ()
        self._reader = JsonLineReader((*self._columns, *hidden))

    def check(self) -> None:
        self._table.check([each.name for each in self._columns])

    # ---------------------------------------------------------------- start

    def first_offset(self, now: datetime, parallelism: int) -> Offset:
        loaded = self._table.load(now)
        is_bounded = self._options.stop_at is StopAt.LATEST
        first = self._first_snapshot(loaded)
        position = TablePosition(
            table=str(loaded.table.metadata.table_uuid),
            snapshot=first,
            sequence=0 if first is None else loaded.history[first].sequence,
            stop=loaded.head if is_bounded else None,
            is_bounded=is_bounded,
        )
        match self._options.offset.kind:
            case StartKind.EARLIEST if loaded.head is not None:
                position = replace(position, file=0, whole=True)
            case StartKind.SNAPSHOT:
                position = replace(position, file=0)
        return position.as_offset()

    def _first_snapshot(self, loaded: LoadedTable) -> int | None:
        """Return the snapshot with or after which the job begins."""
        start, head = self._options.offset, loaded.head
        if start.kind is StartKind.SNAPSHOT:
            known = loaded.history.get(start.value)
            if known is None or following(loaded.history, head, known.id, known.sequence) is None:
                raise UserError(
                    f"table '{self._name}': snapshot {start.value} is not in the history of Iceberg"
                    f" table {self._catalog.place}",
                    hint="Name a snapshot that the table still has, or use earliest or latest.",
                )
            return start.value
        if start.kind is StartKind.TIMESTAMP:
            found = newest_before(loaded.history, head, start.value)
            if found is None and not is_complete(loaded.history, head):
                raise UserError(
                    f"table '{self._name}': the snapshots of Iceberg table {self._catalog.place}"
                    " before 'source.offset' have expired",
                    hint="Use a later instant, or earliest to begin with all rows of the table.",
                )
            return None if found is None else found.id
        return head

    # ---------------------------------------------------------------- plan

    def plan(self, offset: Offset, most_rows: int, now: datetime) -> InputRange | None:
        start = TablePosition.of(offset)
        if start.is_at_stop:
            return InputRange(start=offset, end=offset, rows=0, final=True)
        loaded = self._table.loaded(now)
        head = start.stop if start.is_bounded else loaded.head
        found = self._table.range_after(loaded, start, head, most_rows)
        if found.end == start:
            return None
        end = found.end
        return InputRange(start=offset, end=end.as_offset(), rows=found.rows, final=end.is_at_stop)

    # ---------------------------------------------------------------- read

    def read(self, spark: SparkSession, input_range: InputRange, parallelism: int) -> DataFrame:
        rows = self._placed_rows(spark, input_range, parallelism)
        required = [f"`{each.name}` IS NULL" for each in self._columns if not each.nullable]
        bad = f"IF({' OR '.join(required) or 'false'}, position, NULL)"
        return rows.selectExpr(
            *(f"`{each}`" for each in rows.columns if each != "position"),
            f"{bad} AS `{BAD_POSITION}`",
            f"position AS `{RECORD_POSITION}`",
        )

    def records(self, spark: SparkSession, input_range: InputRange, parallelism: int) -> DataFrame:
        rows = self._placed_rows(spark, input_range, parallelism)
        line = object_sql([*rows.drop("position").schema])
        return raw_records(rows.select("position", F.expr(f"CAST({line} AS BINARY) AS raw")))

    def _placed_rows(
        self, spark: SparkSession, input_range: InputRange, parallelism: int
    ) -> DataFrame:
        """Return the rows of a range with `position`, without excluded records: the declared
        columns, and CHANGE in a changelog.
        """
        start, end = TablePosition.of(input_range.start), TablePosition.of(input_range.end)
        loaded = self._table.holding(end)
        found = self._table.range_after(loaded, start, end.snapshot, input_range.rows)
        rows = self._rows(spark, loaded.table, found.pieces, parallelism)
        if found.replaced:
            replaced = self._rows(spark, loaded.table, found.replaced, parallelism)
            names = [each.name for each in self._columns]
            changes = without_carried(replaced, _SNAPSHOT, names, "position")
            rows = rows.unionByName(changes) if found.pieces else changes
        return left_out(rows.drop(_SNAPSHOT), input_range.excluded)

    def _rows(
        self, spark: SparkSession, table: Table, pieces: Sequence[FilePiece], parallelism: int
    ) -> DataFrame:
        schema = spark_schema(self._columns)
        columns = declared_columns(table, schema, gone_from_history)
        if self._is_changelog:
            columns = columns.extended({CHANGE: CHANGE_ID, _SNAPSHOT: SNAPSHOT_ID}, pa.int32())
            added = [StructField(each, IntegerType()) for each in (CHANGE, _SNAPSHOT)]
            schema = StructType([*schema, *added])
        found = accesses(table, pieces)
        rows = read_pieces(spark, pieces, found, columns, schema, parallelism, with_place=True)
        position = F.struct(F.col(FILE).alias("partition"), F.col(ROW).alias("offset"))
        return rows.withColumn("position", position).drop(FILE, ROW)

    def parse(self, records: DataFrame) -> DataFrame:
        return parsed(self._reader, JSON, records, {})

    def explainer(self) -> Callable[[bytes | None], str]:
        return Explainer(self._reader)

    def bad_record(self, input_range: InputRange, position: RecordPosition) -> BadRecord:
        place = f"{self._catalog.place}, {position.partition}, row {position.offset}"
        return BadRecord(
            f"{place}: a column that is declared NOT NULL is null",
            hint="Declare the column without NOT NULL, or set bad_data = 'dead_letter' to store such"
            " rows aside, or 'drop' to drop and count them.",
            position=place,
        )

    def halved(self, input_range: InputRange) -> tuple[InputRange, InputRange] | None:
        if input_range.rows < 2:
            return None
        start, end = TablePosition.of(input_range.start), TablePosition.of(input_range.end)
        loaded = self._table.holding(end)
        first = self._table.range_after(loaded, start, end.snapshot, input_range.rows // 2)
        if first.rows == input_range.rows:
            return None
        cut = first.end.as_offset()
        return (
            InputRange(start=input_range.start, end=cut, rows=first.rows),
            InputRange(
                start=cut,
                end=input_range.end,
                rows=input_range.rows - first.rows,
                final=input_range.final,
            ),
        )

    def in_words(self, input_range: InputRange) -> str:
        start, end = TablePosition.of(input_range.start), TablePosition.of(input_range.end)
        return f"after {start}, up to {end}"
