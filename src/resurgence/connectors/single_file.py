"""`single_file`: one local file of JSON lines, read from end to end, or written exactly once.

As a source, its offset is a line; the byte where that line begins rides along, so that an epoch
reads only its part, and a fingerprint of what stands before it, so that another file in its place is
noticed. The file is bounded: its end is the end of the input.

As a sink, commit writes an epoch's bytes at the place that the commit log fixed for that epoch,
under a lock; doing it again writes the same bytes at the same place. A new job begins the file
anew.
"""

from __future__ import annotations

import codecs
import fcntl
import functools
import hashlib
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from resurgence.connectors.commit_log import CommitLog
from resurgence.connectors.connector import Connector, FormatChoice, SinkRole, SourceRole
from resurgence.connectors.contract import (
    CoveredInput,
    SinkMemory,
    StagedOutput,
    require_same_input,
)
from resurgence.connectors.formats.contract import BadLine, Format, RecordTable, WriteSettings
from resurgence.connectors.formats.json_lines import JSON, OUT_OF_RANGE
from resurgence.connectors.formats.options import BadData, LineSinkOptions, LineSourceOptions
from resurgence.connectors.staging import stage_files
from resurgence.errors import (
    BadRecord,
    ConfigError,
    ObjectMissing,
    SinkError,
    SourceRangeGone,
    UserError,
)
from resurgence.graph.connector_spec import Guarantee
from resurgence.graph.table_options import option
from resurgence.graph.values import Column
from resurgence.ids import Epoch, Generation, JobIdentity
from resurgence.spark_tasks import ArrowFunction
from resurgence.state.records import InputRange, Offset
from resurgence.storage.object_store import (
    ObjectStore,
    is_missing_folder,
    shared_store,
    storage_url,
)

METADATA = {"path": "STRING", "line": "BIGINT"}
"""What is known of a record beside what is in it: its file, and its line in it, from 1."""
_BLOCK = 4 * 1024 * 1024
"""Bytes looked at in one go when lines are counted, and the least that one task reads."""
_FINGERPRINT = "fingerprint"
"""The member of an offset that tells whether the file before it is still the same."""
_FINGERPRINT_BYTES = 64 * 1024
"""How much of the start of the file, and of what stands before an offset, its fingerprint covers."""
_REPLACED_HINT = (
    "restore the file that the job has read, of which only the end may grow, or start a new job"
    " with another --name"
)
_BAD_LINE_HINT = (
    "mend the line, or set bad_data = 'drop' on the table to count and leave out such lines"
)
_UNIT_HINT = (
    "declare the unit of whole numbers with timestamp_unit = 'millis', 'micros' or 'nanos' on the"
    " table, or 'timestamp_unit.column' for one column"
)
_UNKNOWN: BadLine = ("cannot be read", 1, None)
_LOCK_DEADLINE_SECONDS = 30.0


@dataclass(frozen=True)
class _Span:
    """Whole lines of the file: bytes from `start` up to `end`, the first of them being line
    `line`.
    """

    start: int
    end: int
    line: int


class SingleFileSourceOptions(LineSourceOptions):
    """The options of a `single_file` source."""

    path: str = option()


class SingleFileSource:
    """A file of lines."""

    def __init__(
        self,
        options: SingleFileSourceOptions,
        columns: Sequence[Column],
        keys: tuple[str, ...] = (),
        record_format: Format = JSON,
    ) -> None:
        self._path = Path(options.path).expanduser().absolute()
        if record_format.line_reader is None:
            raise ConfigError(f"format '{record_format.name}' cannot be read from lines")
        self._reader = record_format.line_reader(RecordTable(tuple(columns), keys, options))
        self.drops_bad_records = options.bad_data is BadData.DROP

    def check(self) -> None:
        if not self._path.is_file():
            raise UserError(
                f"the source file {self._path} does not exist", hint="check the option 'path'"
            )
        if not os.access(self._path, os.R_OK):
            raise UserError(
                f"the source file {self._path} cannot be read", hint="check its permissions"
            )

    def first_offset(self, now: datetime, parallelism: int) -> Offset:
        return {"line": 0, "byte": 0}

    def plan(self, offset: Offset, most_rows: int, now: datetime) -> InputRange:
        line, byte = _number(offset, "line"), _number(offset, "byte")
        self.check()
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
        """Of the file up to a byte: its first and its last bytes."""
        digest = hashlib.blake2b(digest_size=8)
        with self._path.open("rb") as file:
            for start in (0, max(0, byte - _FINGERPRINT_BYTES)):
                file.seek(start)
                digest.update(file.read(min(_FINGERPRINT_BYTES, byte - start)))
        return digest.hexdigest()

    def _require_unchanged(self, offset: Offset) -> None:
        """Raise SourceRangeGone unless the file up to an offset is the one that was read. An offset
        of an older release has no fingerprint: then it must only be long enough.
        """
        line, byte = _number(offset, "line"), _number(offset, "byte")
        size = self._path.stat().st_size
        if byte > size:
            message = f"the source file {self._path} was truncated or replaced"
            detail = f"it has {size} bytes, and the job has read {byte} (up to line {line})"
            raise SourceRangeGone(f"{message}: {detail}", hint=_REPLACED_HINT)
        if offset.get(_FINGERPRINT, self._fingerprint(byte)) != self._fingerprint(byte):
            message = f"the source file {self._path} was replaced or changed"
            detail = (
                f"its first {byte} bytes (up to line {line}) are not those that the job has read"
            )
            raise SourceRangeGone(f"{message}: {detail}", hint=_REPLACED_HINT)

    def read(self, spark: SparkSession, input_range: InputRange, parallelism: int) -> DataFrame:
        self.check()
        self._require_unchanged(input_range.start)
        self._require_unchanged(input_range.end)
        spans = self._spans(input_range, parallelism)
        lines = spark.range(0, len(spans), 1, len(spans)).mapInArrow(
            _line_reader(str(self._path), spans), "position BIGINT, text STRING"
        )
        metadata = {"path": F.lit(str(self._path)), "line": F.col("position") + 1}
        return self._reader.parse(lines, metadata)

    def halved(self, input_range: InputRange) -> tuple[InputRange, InputRange] | None:
        start, end = input_range.start, input_range.end
        self.check()
        self._require_unchanged(end)
        lines = input_range.rows // 2
        byte, found = self._advance(_number(start, "byte"), lines)
        if not 0 < found < input_range.rows or byte >= _number(end, "byte"):
            return None
        cut = self._offset(_number(start, "line") + found, byte)
        rest = input_range.rows - found
        return (
            InputRange(start=start, end=cut, rows=found),
            InputRange(start=cut, end=end, rows=rest, final=input_range.final),
        )

    def in_words(self, input_range: InputRange) -> str:
        start, end = (
            f"line {_number(each, 'line')}, byte {_number(each, 'byte')}"
            for each in (input_range.start, input_range.end)
        )
        return f"after {start}, up to {end}"

    def bad_record(self, input_range: InputRange, position: int) -> BadRecord:
        reason, column, hint = _UNKNOWN
        with self._path.open("rb") as file:
            file.seek(_number(input_range.start, "byte"))
            for number, line in enumerate(file, start=_number(input_range.start, "line")):
                if number == position:
                    line = line.removeprefix(codecs.BOM_UTF8) if number == 0 else line
                    reason, column, hint = self._explain(line.rstrip(b"\r\n"))
                    if hint is None and OUT_OF_RANGE in reason:
                        hint = _UNIT_HINT
                    break
        return BadRecord(
            f"{self._path}, line {position + 1}, column {column}: {reason}",
            hint=hint or _BAD_LINE_HINT,
            position=f"{self._path}, line {position + 1}",
        )

    def _explain(self, line: bytes) -> BadLine:
        try:
            return self._reader.explain_bad_line(line.decode())
        except UnicodeDecodeError as error:
            place = len(line[: error.start].decode()) + 1
            return f"not UTF-8: byte {line[error.start]:02x}", place, None

    def _advance(self, byte: int, most_lines: int) -> tuple[int, int]:
        """(byte after at most that many lines, how many lines there were)."""
        lines = 0
        with self._path.open("rb") as file:
            file.seek(byte)
            unfinished = False
            while lines < most_lines and (block := file.read(_BLOCK)):
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

    def _spans(self, input_range: InputRange, parallelism: int) -> tuple[_Span, ...]:
        """The range cut into pieces of whole lines, one per task; a small range is one piece."""
        start, end = _number(input_range.start, "byte"), _number(input_range.end, "byte")
        line = _number(input_range.start, "line")
        pieces = max(1, min(parallelism, (end - start) // _BLOCK))
        spans: list[_Span] = []
        with self._path.open("rb") as file:
            for piece in range(1, pieces + 1):
                target = start + (end - start) // (pieces - piece + 1)
                file.seek(target)
                cut = min(end, target + len(file.readline())) if target < end else end
                spans.append(_Span(start, cut, line))
                if piece < pieces:
                    file.seek(start)
                    line += _count_newlines(file, cut - start)
                start = cut
        return tuple(spans)


def _count_newlines(file: BinaryIO, length: int) -> int:
    total = 0
    while length > 0 and (block := file.read(min(_BLOCK, length))):
        total += block.count(b"\n")
        length -= len(block)
    return total


def _line_reader(path: str, spans: tuple[_Span, ...]) -> ArrowFunction:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # The row says which span is meant: a task's number does not, where inputs are united.
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _read_span(path, spans[number])

    return read


def _read_span(path: str, span: _Span) -> Iterator[pa.RecordBatch]:
    with Path(path).open("rb") as file:
        file.seek(span.start)
        line, left, carry = span.line, span.end - span.start, b""
        while left > 0 or carry:
            block = file.read(min(_BLOCK, left)) if left > 0 else b""
            left -= len(block)
            if span.start == 0 and line == 0 and not carry:
                block = block.removeprefix(codecs.BOM_UTF8)
            if left > 0 and block:
                whole, newline, rest = (carry + block).rpartition(b"\n")
                if not newline:
                    carry += block
                    continue
                carry = rest
            else:
                whole, carry, left = (carry + block).removesuffix(b"\n"), b"", 0
            texts = pc.split_pattern(pa.array([whole], pa.binary()), b"\n").flatten()
            positions = pa.array(range(line, line + len(texts)), pa.int64())
            yield pa.RecordBatch.from_arrays([positions, _text(texts)], ["position", "text"])
            line += len(texts)


def _text(lines: pa.Array) -> pa.Array:
    """Bytes as text; a line that is not UTF-8 is null."""
    try:
        return lines.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.concat_arrays([_text_or_null(each) for each in lines])


def _text_or_null(line: pa.BinaryScalar) -> pa.Array:
    try:
        return pa.array([line.as_py().decode()], pa.string())
    except UnicodeDecodeError:
        return pa.nulls(1, pa.string())


def hidden_folder(path: Path) -> Path:
    """Where a sink keeps what is staged, and its records: beside its file."""
    return path.parent / f".{path.name}.resurgence"


class SingleFileSinkOptions(LineSinkOptions):
    """The options of a `single_file` sink."""

    path: str = option()


class SingleFileSink:
    """One file of lines, which only ever grows by whole epochs."""

    retracts = True

    def __init__(
        self,
        options: SingleFileSinkOptions,
        keys: Sequence[str] = (),
        file_format: Format = JSON,
    ) -> None:
        self._path = Path(options.path).expanduser().absolute()
        self._format = file_format
        self._settings = WriteSettings(tuple(keys), options.timestamps)
        self._url = storage_url(str(hidden_folder(self._path)))

    @property
    def _store(self) -> ObjectStore:
        return shared_store(self._url)

    @functools.cached_property
    def _log(self) -> CommitLog:
        return CommitLog(self._store, "commits")

    def check(self) -> None:
        if self._path.is_dir():
            raise UserError(
                f"the sink file {self._path} is a folder", hint="check the option 'path'"
            )
        _ = self._store

    def stage(
        self, rows: DataFrame, job: JobIdentity, epoch: Epoch, generation: Generation
    ) -> StagedOutput:
        prefix = self._log.staged_prefix(job, epoch, generation)
        return stage_files(rows, self._format, self._url, prefix, self._settings)

    def commit(
        self, job: JobIdentity, epoch: Epoch, staged: StagedOutput, covered: CoveredInput
    ) -> None:
        with self._locked():
            latest = self._log.latest(job)
            if latest is None or (latest[0] < epoch and staged.files):
                content: Offset = {
                    "offset": _end(latest),
                    "length": sum(each.bytes for each in staged.files),
                    "files": [each.path for each in staged.files],
                }
                latest = epoch, self._log.fix(job, epoch, content, covered)
            fixed = latest[1] if latest[0] == epoch else self._log.fixed(job, epoch)
            held = None if fixed is None else self._log.covered(fixed)
            require_same_input(str(self._path), epoch, held, covered)
            if latest[0] == epoch:
                files = [str(each) for each in _list(latest[1], "files")]
                self._write(_number(latest[1], "offset"), _number(latest[1], "length"), files)
                self._store.delete(files)
        self.discard(staged)

    def recall(self, job: JobIdentity, epochs: Collection[Epoch]) -> SinkMemory:
        return SinkMemory() if is_missing_folder(self._url) else self._log.recall(job, epochs)

    def discard(self, staged: StagedOutput) -> None:
        self._store.delete(each.path for each in staged.files)

    def sweep(self, job: JobIdentity, epoch: Epoch) -> None:
        self._log.sweep(job, epoch)

    def forget(self, job: JobIdentity, before: Epoch) -> None:
        self._log.forget(job, before)

    def retract(self, job: JobIdentity, after: Epoch, up_to: Epoch) -> None:
        if is_missing_folder(self._url):
            # Nothing was ever staged here, and opening the store would make the folder.
            return
        with self._locked():
            if self._log.is_retracted(job, after, up_to):
                return
            # Of everything the first records may be gone; of less they are kept.
            dead = self._log.between(job, after, up_to)
            end = min(
                (_number(each, "offset") for each in dead), default=_end(self._log.latest(job))
            )
            end = end if after else 0
            if self._path.is_file() and self._path.stat().st_size > end:
                os.truncate(self._path, end)
            content: Offset = {"offset": end, "length": 0}
            self._log.close(job, after, up_to, content)
            self._log.mark_retracted(job, after, up_to, content)

    def _write(self, offset: int, length: int, files: Sequence[str]) -> None:
        """Put the staged pieces at their place and cut off what stands after them.

        The pieces are deleted only after they are all written, so a missing piece means that this
        was done before: then the file reaches beyond them.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666), "r+b") as target:
            target.seek(offset)
            for path in files:
                try:
                    target.write(self._store.read(path))
                except ObjectMissing as error:
                    if target.seek(0, os.SEEK_END) >= offset + length:
                        return
                    raise SinkError(
                        f"{self._url}/{path} was staged for {self._path} and is gone",
                        hint="staged output was removed by hand; bring it back from a copy",
                    ) from error
            target.truncate()
            target.flush()
            os.fsync(target.fileno())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One committer at a time on this machine; the lock dies with its holder."""
        folder = hidden_folder(self._path)
        folder.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + _LOCK_DEADLINE_SECONDS
        with (folder / "lock").open("a") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() > deadline:
                        raise SinkError(
                            f"another process holds the lock of {self._path}",
                            hint="is another job writing this file? it will be tried again",
                        ) from error
                    time.sleep(0.02)
            yield


def _end(latest: tuple[Epoch, Mapping[str, object]] | None) -> int:
    """Where the output of a job ends, by its newest record."""
    return _number(latest[1], "offset") + _number(latest[1], "length") if latest else 0


def _number(content: Mapping[str, object], name: str) -> int:
    value = content.get(name)
    if not isinstance(value, int):
        raise UserError(
            f"'{name}' is missing in {dict(content)}", hint="was the checkpoint edited by hand?"
        )
    return value


def _list(content: Mapping[str, object], name: str) -> Sequence[object]:
    value = content.get(name)
    return value if isinstance(value, list) else ()


SINGLE_FILE = Connector(
    "single_file",
    source=SourceRole(
        make=lambda options, table: SingleFileSource(
            options, table.columns, table.keys, table.format
        ),
        options=SingleFileSourceOptions,
        formats=FormatChoice(JSON, lambda each: each.reads_lines),
        metadata=METADATA,
    ),
    sink=SinkRole(
        make=lambda options, table: SingleFileSink(options, table.keys, table.format),
        options=SingleFileSinkOptions,
        formats=FormatChoice(JSON, lambda each: each.writes_lines),
        guarantee=Guarantee.EXACTLY_ONCE,
    ),
)
