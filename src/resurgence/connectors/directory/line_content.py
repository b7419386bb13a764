"""Files of lines: JSON, CSV or text, plain or compressed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from resurgence.connectors.directory.content import HIDDEN, POSITION, metadata_of
from resurgence.connectors.directory.files import Piece
from resurgence.connectors.directory.lines import (
    count_lines,
    cut_lines,
    lines_of,
    read_piece,
    split_piece,
)
from resurgence.connectors.directory.options import Compression
from resurgence.connectors.directory.selection import Selection
from resurgence.connectors.directory.tasks import LineReader, read_in_tasks
from resurgence.connectors.formats.contract import TEXT, Fault, RecordReader
from resurgence.connectors.formats.explanation import RAW, Explainer
from resurgence.graph.values import Column
from resurgence.state.records import RecordPosition
from resurgence.storage.local_files import StoredFile
from resurgence.storage.object_store import ObjectStore

SPLIT_BYTES = 32 * 1024 * 1024
"""A larger piece is split over tasks. Its lines before the last part are counted for that."""
_SAMPLE = 64 * 1024
_COMPRESSED_ROW = 20.0
"""The stored bytes of a compressed line that are assumed before any was read."""
_SUFFIXES = {".gz": Compression.GZIP, ".zst": Compression.ZSTD}
_NOT_BLANK = "startswith(text, '{') OR text IS NULL OR length(trim(BOTH ' \t\r' FROM text)) > 0"
"""Blank lines are no records."""
_DAMAGED = "the file is damaged from here on"


class _LineExplainer(Explainer):
    """Returns why a line is bad, in Spark tasks."""

    def __reduce__(self) -> tuple[type[Explainer], tuple[RecordReader]]:
        return _LineExplainer, (self._reader.for_tasks(),)

    def __call__(self, raw: bytes | None) -> str:
        return _DAMAGED if raw is None else super().__call__(raw)


class LineContent:
    """Records, one a line."""

    unit = "line"

    def __init__(
        self,
        store: Callable[[], ObjectStore],
        selection: Selection,
        compression: Compression | None,
        columns: tuple[Column, ...],
        reader: RecordReader,
    ) -> None:
        """`columns` has partition columns as metadata."""
        self._store = store
        self._selection = selection
        self._compression = compression
        self._columns = (*columns, *HIDDEN)
        self._reader = reader
        self._explainer = _LineExplainer(reader)
        self._row_bytes: float | None = None

    def check(self) -> None:
        self._reader.check()

    def compression_of(self, path: str) -> Compression:
        """Return how a file is compressed."""
        if self._compression is not None:
            return self._compression
        endings = (kind for suffix, kind in _SUFFIXES.items() if path.endswith(suffix))
        return next(endings, Compression.NONE)

    # ---------------------------------------------------------------- pieces

    def pieces(self, files: Sequence[StoredFile]) -> list[Piece]:
        return [
            Piece(*each, end=each.size if self._is_plain(each.path) else None) for each in files
        ]

    def _is_plain(self, path: str) -> bool:
        return self.compression_of(path) is Compression.NONE

    def rows(self, piece: Piece) -> int:
        if self._row_bytes is None:
            self._row_bytes = self._sampled(piece)
        return max(1, round(self.size(piece) / self._row_bytes))

    def _sampled(self, piece: Piece) -> float:
        """Return the bytes of a line at the beginning of a piece."""
        if piece.end is None or not self._is_plain(piece.path):
            return _COMPRESSED_ROW
        sample = read_piece(
            self._store(), piece, piece.start, min(piece.start + _SAMPLE, piece.end)
        )
        return max(1.0, len(sample) / max(1, sample.count(b"\n")))

    def size(self, piece: Piece) -> int:
        is_plain = piece.end is not None and self._is_plain(piece.path)
        return piece.most_rows if is_plain else piece.size

    def measured(self, rows: int, size: int) -> None:
        if rows and size:
            # Half of the new value: one epoch may be unusual.
            before = self._row_bytes or size / rows
            self._row_bytes = max(1.0, (before + size / rows) / 2)

    def can_be_cut(self, piece: Piece) -> bool:
        return self._is_plain(piece.path)

    def cut(self, piece: Piece, rows: int, size: int) -> tuple[Piece, Piece | None]:
        byte, lines = cut_lines(self._store(), piece, rows, size)
        assert piece.end is not None
        if byte >= piece.end:
            return piece, None
        return piece._replace(end=byte), piece._replace(start=byte, line=piece.line + lines)

    def halves(self, piece: Piece) -> tuple[Piece, Piece] | None:
        if self._is_plain(piece.path):
            head, rest = self.cut(piece, piece.most_rows, max(1, piece.most_rows // 2))
            if rest is None:
                # The last line is the longest.
                head, rest = self._before_last_line(piece)
            return None if rest is None else (head, rest)
        count = count_lines(self._store(), piece, self.compression_of(piece.path))
        if count < 2:
            return None
        middle = piece.start + count // 2
        end = piece.start + count
        return (
            piece._replace(end=middle),
            piece._replace(start=middle, line=middle, end=end),
        )

    def _before_last_line(self, piece: Piece) -> tuple[Piece, Piece | None]:
        lines = count_lines(self._store(), piece, Compression.NONE)
        return self.cut(piece, lines - 1, piece.most_rows) if lines > 1 else (piece, None)

    # ---------------------------------------------------------------- rows

    def read(self, spark: SparkSession, pieces: Sequence[Piece], parallelism: int) -> DataFrame:
        spans = [part for piece in pieces for part in self._split(piece, parallelism)]
        reader = LineReader({each.path: self.compression_of(each.path) for each in pieces})
        access = self._store().access
        lines = read_in_tasks(spark, access, spans, parallelism, reader, "value_raw BINARY")
        return lines.selectExpr(POSITION, "size", "modified", f"value_raw AS {RAW}")

    def _split(self, piece: Piece, parallelism: int) -> list[Piece]:
        size = self.size(piece)
        if parallelism < 2 or size < SPLIT_BYTES or not self._is_plain(piece.path):
            return [piece]
        parts = min(parallelism, -(-size // SPLIT_BYTES))
        return split_piece(self._store(), piece, parts)

    def parsed(self, records: DataFrame) -> DataFrame:
        return self._parsed(records, has_facts=True)

    def raw(self, records: DataFrame) -> DataFrame:
        return records.select("position", RAW)

    def parse_raw(self, records: DataFrame) -> DataFrame:
        return self._parsed(records, has_facts=False)

    def _parsed(self, records: DataFrame, *, has_facts: bool) -> DataFrame:
        facts = ["size", "modified"] if has_facts else []
        text = F.try_validate_utf8(F.col(RAW).cast("string")).alias(TEXT)
        metadata = metadata_of(
            self._selection, self._columns, f"octet_length({TEXT})", has_facts=has_facts
        )
        return self._reader.parse(
            records.select("position", *facts, text).where(_NOT_BLANK), metadata
        )

    def explainer(self) -> Callable[[bytes | None], str]:
        return self._explainer

    def fault(self, piece: Piece, position: RecordPosition) -> Fault:
        for each in lines_of(self._store(), piece, self.compression_of(piece.path)):
            if each.texts is None:
                return Fault(f"{_DAMAGED}: {each.damage}", hint=_DAMAGED_HINT)
            place = position.offset - each.first
            if place < len(each.texts):
                return self._reader.explain(each.texts[place].as_py().removesuffix(b"\r"))
        return Fault("cannot be read")


_DAMAGED_HINT = (
    "Set bad_data = 'drop' or 'dead_letter' on the table to continue with the next file: what is"
    " left of this one is one bad record. Or start a new job with another --name without it."
)
