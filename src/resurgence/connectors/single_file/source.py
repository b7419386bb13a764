"""The `single_file` source: a file of lines, read from start to end.

Its offset is a line, the byte where that line begins, so that an epoch reads only its part, and a
fingerprint of what precedes it, so that a replaced file is detected. The source is bounded: it ends
at the end of the file.
"""

from __future__ import annotations

import codecs
import hashlib
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from resurgence.connectors.contract import Source, left_out, raw_records, whole_number
from resurgence.connectors.formats.contract import TEXT, Fault, RecordReader
from resurgence.connectors.formats.explanation import RAW, Explainer
from resurgence.connectors.formats.options import RecordSourceOptions
from resurgence.connectors.single_file.lines import BLOCK, cut_into_spans, line_reader
from resurgence.errors import BadRecord, SourceRangeGone, UserError
from resurgence.graph.table_options import option
from resurgence.state.records import InputRange, Offset, RecordPosition

METADATA = {"path": "STRING", "line": "BIGINT"}
"""The metadata of a record: its file, and its line in the file, from 1."""
_FINGERPRINT = "fingerprint"
"""The member of an offset that shows whether the file before it is unchanged."""
_FINGERPRINT_BYTES = 64 * 1024
"""How many bytes the fingerprint covers at the start of the file, and again before the offset."""
_REPLACED_HINT = (
    "Restore the file that the job has read, which may only grow at its end, or start a new job"
    " with another --name."
)
_BAD_LINE_HINT = (
    "Fix the line, or set bad_data = 'dead_letter' on the table to store such lines aside, or 'drop'"
    " to drop and count them."
)
_NOT_BLANK = "startswith(text, '{') OR text IS NULL OR length(trim(BOTH ' \t\r' FROM text)) > 0"
"""Blank lines are no records. The first condition is the cheapest and nearly always true of JSON."""


class SingleFileSourceOptions(RecordSourceOptions):
    """The options of a `single_file` source."""

    path: str = option()


class SingleFileSource(Source):
    """A file of lines."""

    position_sql = "concat(position.partition, ', line ', position.offset + 1)"

    def __init__(self, options: SingleFileSourceOptions, reader: RecordReader) -> None:
        self._path = Path(options.path).expanduser().absolute()
        self._reader = reader
        self._explainer = Explainer(reader)
        self.bad_data = options.bad_data

    def check(self) -> None:
        self._reader.check()
        self._require_file()

    def _require_file(self) -> None:
        if not self._path.is_file():
            raise UserError(
                f"the source file {self._path} does not exist", hint="Check the option 'path'."
            )
        if not os.access(self._path, os.R_OK):
            raise UserError(
                f"the source file {self._path} cannot be read", hint="Check its permissions."
            )

    def first_offset(self, now: datetime, parallelism: int) -> Offset:
        return {"line": 0, "byte": 0}

    def plan(self, offset: Offset, most_rows: int, now: datetime) -> InputRange:
        line, byte = whole_number(offset, "line"), whole_number(offset, "byte")
        self._require_file()
        size = self._path.stat().st_size
        self._require_unchanged(offset)
        end, lines = self._advance(byte, most_rows)
        return InputRange(
            start=offset, end=self._offset(line + lines, end), rows=lines, final=end >= size
        )

    def _offset(self, line: int, byte: int) -> Offset:
        offset: Offset = {"line": line, "byte": byte}
        return {**offset, _FINGERPRINT: self._fingerprint(byte)} if byte else offset

    def _fingerprint(self, byte: int) -> str:
        """Return a digest of the first and the last bytes of the file up to a byte."""
        digest = hashlib.blake2b(digest_size=8)
        with self._path.open("rb") as file:
            for start in (0, max(0, byte - _FINGERPRINT_BYTES)):
                file.seek(start)
                digest.update(file.read(min(_FINGERPRINT_BYTES, byte - start)))
        return digest.hexdigest()

    def _require_unchanged(self, offset: Offset) -> None:
        """Raise SourceRangeGone unless the file up to an offset is the one that was read. An offset
        of an older release has no fingerprint: then only the length is checked.
        """
        line, byte = whole_number(offset, "line"), whole_number(offset, "byte")
        size = self._path.stat().st_size
        if byte > size:
            message = f"the source file {self._path} was truncated or replaced"
            detail = f"it has {size} bytes, but the job has read {byte} (up to line {line})"
            raise SourceRangeGone(f"{message}: {detail}", hint=_REPLACED_HINT)
        if offset.get(_FINGERPRINT, self._fingerprint(byte)) != self._fingerprint(byte):
            message = f"the source file {self._path} was replaced or changed"
            detail = (
                f"its first {byte} bytes (up to line {line}) are not those that the job has read"
            )
            raise SourceRangeGone(f"{message}: {detail}", hint=_REPLACED_HINT)

    def read(self, spark: SparkSession, input_range: InputRange, parallelism: int) -> DataFrame:
        return self.parse(self._lines(spark, input_range, parallelism))

    def records(self, spark: SparkSession, input_range: InputRange, parallelism: int) -> DataFrame:
        return raw_records(self._lines(spark, input_range, parallelism))

    def parse(self, records: DataFrame) -> DataFrame:
        metadata = {
            "path": F.col("position.partition"),
            "line": F.col("position.offset") + F.lit(1),
        }
        text = F.try_validate_utf8(F.col(RAW).cast("string")).alias(TEXT)
        return self._reader.parse(records.select("position", text).where(_NOT_BLANK), metadata)

    def explainer(self) -> Callable[[bytes | None], str]:
        return self._explainer

    def _lines(self, spark: SparkSession, input_range: InputRange, parallelism: int) -> DataFrame:
        """Return the lines of a range: columns `position` and RAW."""
        self._require_file()
        self._require_unchanged(input_range.start)
        self._require_unchanged(input_range.end)
        spans = cut_into_spans(
            self._path,
            whole_number(input_range.start, "byte"),
            whole_number(input_range.end, "byte"),
            whole_number(input_range.start, "line"),
            parallelism,
        )
        lines = spark.range(0, len(spans), 1, len(spans)).mapInArrow(
            line_reader(str(self._path), spans), "line BIGINT, raw BINARY"
        )
        path = F.lit(str(self._path))
        position = F.struct(path.alias("partition"), F.col("line").alias("offset"))
        excluded = [*map(self.located, input_range.excluded)]
        return left_out(lines.select(position.alias("position"), "raw"), excluded)

    def located(self, position: RecordPosition) -> RecordPosition:
        # A file is one partition, also if it was moved and the option edited.
        return position.model_copy(update={"partition": str(self._path)})

    def halved(self, input_range: InputRange) -> tuple[InputRange, InputRange] | None:
        start, end = input_range.start, input_range.end
        self._require_file()
        self._require_unchanged(end)
        lines = input_range.rows // 2
        byte, found = self._advance(whole_number(start, "byte"), lines)
        if not 0 < found < input_range.rows or byte >= whole_number(end, "byte"):
            return None
        cut = self._offset(whole_number(start, "line") + found, byte)
        rest = input_range.rows - found
        return (
            InputRange(start=start, end=cut, rows=found),
            InputRange(start=cut, end=end, rows=rest, final=input_range.final),
        )

    def in_words(self, input_range: InputRange) -> str:
        start, end = (
            f"line {whole_number(each, 'line')}, byte {whole_number(each, 'byte')}"
            for each in (input_range.start, input_range.end)
        )
        return f"after {start}, up to {end}"

    def bad_record(self, input_range: InputRange, position: RecordPosition) -> BadRecord:
        fault = Fault("cannot be read")
        with self._path.open("rb") as file:
            file.seek(whole_number(input_range.start, "byte"))
            for number, line in enumerate(file, start=whole_number(input_range.start, "line")):
                if number == position.offset:
                    line = line.removeprefix(codecs.BOM_UTF8) if number == 0 else line
                    fault = self._reader.explain(line.rstrip(b"\r\n"))
                    break
        return BadRecord(
            f"{self._path}, line {position.offset + 1}, column {fault.column or 1}: {fault.reason}",
            hint=fault.hint or _BAD_LINE_HINT,
            position=f"{self._path}, line {position.offset + 1}",
        )

    def _advance(self, byte: int, most_lines: int) -> tuple[int, int]:
        """Return (byte after at most that many lines, number of lines found)."""
        lines = 0
        with self._path.open("rb") as file:
            file.seek(byte)
            unfinished = False
            while lines < most_lines and (block := file.read(BLOCK)):
                found = block.count(b"\n")
                if lines + found >= most_lines:
                    place = -1
                    for _ in range(most_lines - lines):
                        place = block.index(b"\n", place + 1)
                    return byte + place + 1, most_lines
                lines += found
                byte += len(block)
                unfinished = not block.endswith(b"\n")
        return byte, lines + unfinished
