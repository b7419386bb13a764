"""Columnar files: rows with types. A row that is stored aside is written as JSON."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DateType, StructType, TimestampNTZType, TimestampType

from resurgence.connectors.contract import BAD_POSITION
from resurgence.connectors.directory.columns import row_count
from resurgence.connectors.directory.content import HIDDEN, POSITION, metadata_of
from resurgence.connectors.directory.files import Piece
from resurgence.connectors.directory.selection import Selection
from resurgence.connectors.directory.tasks import ColumnReader, read_in_tasks
from resurgence.connectors.formats.contract import TEXT, VALUE, Fault
from resurgence.connectors.formats.explanation import RAW, Explainer
from resurgence.connectors.formats.json.lines import JsonLineReader
from resurgence.connectors.formats.json.values import data_type, is_out_of_range
from resurgence.connectors.formats.json.writer import render
from resurgence.connectors.formats.record_columns import (
    RECORD_POSITION_SQL,
    carried,
    declared_values,
)
from resurgence.graph.values import Column
from resurgence.state.records import RecordPosition
from resurgence.storage.local_files import StoredFile
from resurgence.storage.object_store import ObjectStore
from resurgence.storage.parallel import in_parallel

SPLIT_BYTES = 32 * 1024 * 1024
"""A larger piece is split over tasks."""
_MOST_COUNTS = 20_000
_INSTANTS = (TimestampType, TimestampNTZType, DateType)


class ColumnContent:
    """Rows of columnar files."""

    unit = "row"

    def __init__(
        self,
        store: Callable[[], ObjectStore],
        selection: Selection,
        columns: tuple[Column, ...],
    ) -> None:
        """`columns` has partition columns as metadata."""
        self._store = store
        self._selection = selection
        self._columns = (*columns, *HIDDEN)
        self._stored = tuple(each for each in columns if each.metadata is None)
        self._reader = JsonLineReader(self._columns)
        self._explainer = Explainer(self._reader)
        self._counts: dict[StoredFile, int] = {}
        """Of files that are about to be planned."""

    def check(self) -> None:
        return

    # ---------------------------------------------------------------- pieces

    def pieces(self, files: Sequence[StoredFile]) -> list[Piece]:
        if len(self._counts) > _MOST_COUNTS:
            self._counts = {}
        unknown = [each for each in files if each not in self._counts and each.size]
        store = self._store()
        counts = in_parallel(
            [functools.partial(row_count, store, Piece(*each)) for each in unknown]
        )
        self._counts |= dict(zip(unknown, counts, strict=True))
        return [Piece(*each, end=self._counts.get(each, 0)) for each in files]

    def rows(self, piece: Piece) -> int:
        return piece.most_rows

    def size(self, piece: Piece) -> int:
        whole = self._counts.get(piece.file, piece.end or 1)
        return round(piece.size * piece.most_rows / max(1, whole))

    def measured(self, rows: int, size: int) -> None:
        return

    def can_be_cut(self, piece: Piece) -> bool:
        return True

    def cut(self, piece: Piece, rows: int, size: int) -> tuple[Piece, Piece | None]:
        by_size = int(piece.most_rows * size / max(1, self.size(piece)))
        end = piece.start + max(1, min(rows, by_size, piece.most_rows))
        if piece.end is None or end >= piece.end:
            return piece, None
        return piece._replace(end=end), piece._replace(start=end, line=end)

    def halves(self, piece: Piece) -> tuple[Piece, Piece] | None:
        if piece.most_rows < 2:
            return None
        middle = piece.start + piece.most_rows // 2
        return piece._replace(end=middle), piece._replace(start=middle, line=middle)

    # ---------------------------------------------------------------- rows

    def read(self, spark: SparkSession, pieces: Sequence[Piece], parallelism: int) -> DataFrame:
        spans = [part for piece in pieces for part in self._split(piece, parallelism)]
        named = [f"`{each.name}` {each.type}" for each in self._stored]
        schema = StructType.fromDDL(", ".join(named)) if named else StructType()
        assert isinstance(schema, StructType)
        required = tuple(each.name for each in self._stored if not each.nullable)
        reader = ColumnReader(to_arrow_schema(schema, timezone="UTC"), required)
        values = ", ".join(f"`value_{each.name}` {each.type}" for each in self._stored)
        access = self._store().access
        rows = read_in_tasks(spark, access, spans, parallelism, reader, values)
        columns = [f"`value_{each.name}`" for each in self._stored]
        return rows.selectExpr(POSITION, "size", "modified", *columns)

    def _split(self, piece: Piece, parallelism: int) -> list[Piece]:
        parts = min(parallelism, -(-self.size(piece) // SPLIT_BYTES), piece.most_rows)
        if parts < 2:
            return [piece]
        cuts = [piece.start + piece.most_rows * each // parts for each in range(parts + 1)]
        return [
            piece._replace(start=first, end=last, line=first)
            for first, last in itertools.pairwise(cuts)
        ]

    def parsed(self, records: DataFrame) -> DataFrame:
        metadata = metadata_of(self._selection, self._columns, "0L", has_facts=True)
        known, _ = carried(self._columns, metadata)
        rows = records.select("*", *known)
        values = declared_values(self._columns, lambda each: f"`value_{each.name}`")
        bad = F.expr(f"IF({self._is_bad()}, position, NULL) AS `{BAD_POSITION}`")
        return rows.select(*values, bad, F.expr(RECORD_POSITION_SQL))

    def _is_bad(self) -> str:
        faults = []
        for each in self._stored:
            value = f"`value_{each.name}`"
            if isinstance(data_type(each.type), _INSTANTS):
                faults.append(f"({value} IS NOT NULL AND {is_out_of_range(value)})")
            if not each.nullable:
                faults.append(f"({value} IS NULL)")
        return " OR ".join(faults) or "false"

    def raw(self, records: DataFrame) -> DataFrame:
        columns = [F.col(f"`value_{each.name}`").alias(each.name) for each in self._stored]
        place = F.col("position").alias("__place")
        written = render(records.select(place, *columns), passed=("__place",))
        return written.selectExpr("__place AS position", f"CAST({VALUE} AS BINARY) AS {RAW}")

    def parse_raw(self, records: DataFrame) -> DataFrame:
        text = F.try_validate_utf8(F.col(RAW).cast("string")).alias(TEXT)
        metadata = metadata_of(self._selection, self._columns, "0L", has_facts=False)
        return self._reader.parse(records.select("position", text), metadata)

    def explainer(self) -> Callable[[bytes | None], str]:
        return self._explainer

    def fault(self, piece: Piece, position: RecordPosition) -> Fault:
        return Fault("a NOT NULL column has no value, or a timestamp is out of range")
