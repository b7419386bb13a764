"""The Delta source: the rows that are appended to a table, version by version.

The driver reads the log, tasks read the data files. Commits that only move rows, such as those of a
compaction, are passed over. A commit that deletes or rewrites rows ends the job with an error: an
append-only stream cannot take rows back. With `format = 'change_data_feed'` the stream is a changelog,
and such a commit is its change data feed, or else the rows of the files that it removed and added.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from resurgence.connectors.connector import SourceDeclaration
from resurgence.connectors.contract import BAD_POSITION, RECORD_POSITION, left_out
from resurgence.connectors.delta.columns import partition_scalar
from resurgence.connectors.delta.log import LoggedFile, Version, read_version
from resurgence.connectors.delta.reading.positions import Place, Span, next_spans, spans_between
from resurgence.connectors.delta.reading.source_options import DeltaSourceOptions, StartKind, StopAt
from resurgence.connectors.delta.reading.source_table import SourceTable
from resurgence.connectors.formats.json.lines import JsonLineReader
from resurgence.connectors.generator import NUMBER, Generator
from resurgence.connectors.lakehouse.stored_rows import ROW_NUMBER, gone_from_source, read_stored
from resurgence.connectors.lookups.contract import arrow_schema, spark_schema
from resurgence.connectors.lookups.files import FilePart
from resurgence.errors import BadRecord, ObjectMissing, SourceRangeGone, UserError
from resurgence.graph.values import CHANGE, Column
from resurgence.state.records import InputRange, Offset, RecordPosition
from resurgence.storage.object_store import shared_store, storage_url
from resurgence.storage.ranged_file import RangedFile

_MOVES_AFTER = 50
"""After so many versions without rows, an epoch without rows records that they were passed over."""
_KNOWN_VERSIONS = 1000
_CHANGE_TYPE = "_change_type"
"""The column of the change data feed."""


class DeltaSource(Generator):
    """The rows appended to a Delta table."""

    name = "delta"

    def __init__(self, options: DeltaSourceOptions, declaration: SourceDeclaration) -> None:
        super().__init__(declaration.columns, options.bad_data)
        self._is_changelog = declaration.format.spec.is_changelog
        if self._is_changelog:
            # A record is stored with its change, and can be read again.
            self._reader = JsonLineReader((*self._columns, Column(name=CHANGE, type="INT")))
        self._options = options
        self._table = declaration.table
        self._url = storage_url(options.path)
        self._delta = SourceTable(declaration.table, self._url)
        self._required = [each.name for each in declaration.columns if not each.nullable]
        self._version = functools.lru_cache(_KNOWN_VERSIONS)(self._read_version)
        self._snapshot = functools.lru_cache(1)(self._read_snapshot)

    def check(self) -> None:
        self._delta.check([each.name for each in self._columns])
        if self._is_changelog:
            self._delta.require_change_feed()

    # ---------------------------------------------------------------- start

    def first_offset(self, now: datetime, parallelism: int) -> Offset:
        self.check()
        newest = self._delta.newest_version()
        stop = newest if self._options.stop_at is StopAt.LATEST else None
        start = self._options.offset
        match start.kind:
            case StartKind.LATEST:
                place = Place(newest + 1, stop=stop)
            case StartKind.EARLIEST:
                place = Place(newest, is_snapshot=True, stop=stop)
            case StartKind.VERSION:
                place = Place(self._delta.held_version(start.number), stop=stop)
            case StartKind.TIMESTAMP:
                place = Place(self._delta.version_at(start.number), stop=stop)
        return place.as_offset()

    # ---------------------------------------------------------------- plan

    def plan(self, offset: Offset, most_rows: int, now: datetime) -> InputRange | None:
        start = Place.of(offset)
        newest = self._delta.newest_after(start.version - (0 if start.is_snapshot else 1), now)
        refused: list[UserError] = []

        def files_of(place: Place) -> Sequence[LoggedFile] | None:
            try:
                return self._files(place, up_to=newest)
            except UserError as error:
                refused.append(error)
                return None

        # The rows that a version of a changelog deletes and adds belong together.
        end, spans = next_spans(start, most_rows, files_of, whole_versions=self._is_changelog)
        if refused and not spans:
            # Rows before that version are read first.
            raise refused[0]
        if not spans and not end.is_at_stop and end.version - start.version < _MOVES_AFTER:
            return None
        return InputRange(
            start=offset,
            end=end.as_offset(),
            rows=end.count - start.count,
            final=end.is_at_stop,
        )

    def _files(self, place: Place, up_to: int | None = None) -> Sequence[LoggedFile] | None:
        """Return the files to read at a place; None if the version does not exist yet."""
        if place.is_snapshot:
            return self._snapshot(place.version)
        if up_to is not None and place.version > up_to:
            return None
        return self._version(place.version)

    def _read_version(self, number: int) -> tuple[LoggedFile, ...]:
        version = read_version(shared_store(self._url), number)
        if version is None:
            raise SourceRangeGone(
                f"version {number} of the Delta table {self._url} is not in its log any more",
                hint="Start another job with 'source.offset', and raise delta.logRetentionDuration"
                " of the table.",
            )
        self._delta.require_readable(version.metadata, version.protocol)
        self._require_streamable(version)
        files = version.changed_rows if self._is_changelog else version.added_rows
        return tuple(map(self._with_rows, files))

    def _require_streamable(self, version: Version) -> None:
        """Raise UserError unless a version only appends or moves rows, or has a changelog."""
        changed = (*version.added_rows, *version.removed_rows)
        has_vectors = any(each.has_deletion_vector for each in changed)
        if self._is_changelog:
            if has_vectors and not version.change_files:
                raise UserError(
                    f"version {version.number} of the Delta table {self._url} deletes rows by"
                    " deletion vectors, and has no change data feed",
                    hint="Enable the feed, and start another job from a later version.",
                )
            if not version.change_files and self._delta.is_partitioned():
                self._require_partitions(version)
        elif version.removed_rows or has_vectors:
            raise UserError(
                f"version {version.number} of the Delta table {self._url}"
                f" ({version.operation or 'unknown operation'}) deletes or rewrites rows, but"
                f" table '{self._table}' is an append-only stream",
                hint="Read the table with format = 'change_data_feed', if it has the feed, or start"
                " another job from a later version with 'source.offset'.",
            )

    def _require_partitions(self, version: Version) -> None:
        """Raise UserError if a version does not say which partitions it removes files from."""
        if any(not each.partition for each in version.removed_rows):
            raise UserError(
                f"version {version.number} of the Delta table {self._url} removes files without"
                " naming their partitions",
                hint="Start another job from a later version.",
            )

    def _read_snapshot(self, version: int) -> tuple[LoggedFile, ...]:
        return tuple(map(self._with_rows, self._delta.files_at(version)))

    def _with_rows(self, file: LoggedFile) -> LoggedFile:
        """Count the rows of a file by its footer, if the log has no statistics."""
        if file.rows is not None:
            return file
        try:
            with RangedFile(shared_store(self._url), file.path) as stored:
                rows = pq.ParquetFile(stored).metadata.num_rows
        except ObjectMissing as error:
            raise SourceRangeGone(
                f"{self._url}/{file.path} does not exist any more",
                hint="Start another job with 'source.offset'. The table was vacuumed.",
            ) from error
        return replace(file, rows=int(rows))

    # ---------------------------------------------------------------- read

    def read(self, spark: SparkSession, input_range: InputRange, parallelism: int) -> DataFrame:
        rows = self.numbered(spark, input_range, parallelism)
        rows = left_out(rows.withColumn("position", self._position), input_range.excluded)
        hidden = [CHANGE] if self._is_changelog else []
        if self._required:
            lacks = " OR ".join(f"`{each}` IS NULL" for each in self._required)
            hidden.append(f"IF({lacks}, position, NULL) AS `{BAD_POSITION}`")
            hidden.append(f"position AS `{RECORD_POSITION}`")
        return rows.selectExpr(*(f"`{each.name}`" for each in self._columns), *hidden)

    def bad_record(self, input_range: InputRange, position: RecordPosition) -> BadRecord:
        place = f"row {position.offset} of {self._url}"
        return BadRecord(
            f"{place} is null in a column that table '{self._table}' declares as NOT NULL",
            hint="Remove NOT NULL, or set bad_data = 'drop' or 'dead_letter'.",
            position=place,
        )

    def numbered(self, spark: SparkSession, input_range: InputRange, parallelism: int) -> DataFrame:
        start, end = Place.of(input_range.start), Place.of(input_range.end)
        types = {each.name.lower(): each.type for each in arrow_schema(self._columns)}
        parts = [_part(each, types) for each in spans_between(start, end, self._files)]
        hidden = [
            StructField(ROW_NUMBER, LongType()),
            StructField(CHANGE, IntegerType()),
            StructField(_CHANGE_TYPE, StringType()),
        ]
        columns = StructType([*spark_schema(self._columns), *hidden])
        rows = read_stored(spark, self._url, parts, columns, parallelism, missing=gone_from_source)
        names = [f"`{each.name}`" for each in self._columns]
        # Rows of the feed have their own change, those of other files that of the file.
        is_insert = f"`{_CHANGE_TYPE}` IN ('insert', 'update_postimage')"
        change = f"coalesce(`{CHANGE}`, IF({is_insert}, 1, -1)) AS `{CHANGE}`"
        return rows.selectExpr(
            *names, *([change] if self._is_changelog else []), f"`{ROW_NUMBER}` AS `{NUMBER}`"
        )

    def halved(self, input_range: InputRange) -> tuple[InputRange, InputRange] | None:
        start = Place.of(input_range.start)
        if input_range.rows < 2:
            return None
        middle, _ = next_spans(start, input_range.rows // 2, self._files)
        cut = middle.as_offset()
        first = middle.count - start.count
        return (
            InputRange(start=input_range.start, end=cut, rows=first),
            InputRange(
                start=cut,
                end=input_range.end,
                rows=input_range.rows - first,
                final=input_range.final,
            ),
        )

    def in_words(self, input_range: InputRange) -> str:
        start, end = Place.of(input_range.start), Place.of(input_range.end)
        return f"from {_in_words(start)} up to {_in_words(end)}"


def _in_words(place: Place) -> str:
    return f"version {place.version}, file {place.file}, row {place.row}"


def _part(span: Span, types: dict[str, pa.DataType]) -> FilePart:
    """Return the rows of a span, with the values that its file does not have."""
    values = {
        name.lower(): partition_scalar(text, types[name.lower()])
        for name, text in span.file.partition.items()
        if name.lower() in types
    }
    values[ROW_NUMBER] = pa.scalar(span.number)
    values[CHANGE] = pa.scalar(span.file.change, pa.int32())
    selected = None
    if (span.start, span.end) != (0, span.file.rows):
        rows = span.file.rows or 0
        selected = pa.concat_arrays(
            [
                pa.repeat(pa.scalar(False), span.start),
                pa.repeat(pa.scalar(True), span.end - span.start),
                pa.repeat(pa.scalar(False), rows - span.end),
            ]
        )
    return FilePart(span.file.path, values, selected)
