"""The contract of formats: how records are read, how rows become files, what the planner must know.

A format is one `Format` in one module, and one line in `registry`. Connectors check the
capabilities of a format, never its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame

from resurgence.connectors.formats.options import LineSourceOptions, TimestampFormat
from resurgence.graph.connector_spec import FormatSpec
from resurgence.graph.values import Column
from resurgence.storage.parquet import EncodedFile

BadLine = tuple[str, int, str | None]
"""Why a line is bad, in which column from 1, and a hint if there is a special one."""


class LineReader(Protocol):
    """Reads the records of one table from lines of text."""

    def parse(self, lines: DataFrame, metadata: Mapping[str, SparkColumn]) -> DataFrame:
        """Convert columns `position` and `text` to the declared columns, BAD_POSITION and
        RECORD_POSITION; a changelog has its hidden columns as well. A null text is a line that is
        not UTF-8. `metadata` has expressions over `position`, by key.
        """
        ...

    def explain_bad_line(self, text: str) -> BadLine:
        """Return why a line is bad."""
        ...


class FileEncoder(Protocol):
    """Collects the batches of one Spark task into one file."""

    @property
    def size(self) -> int:
        """Bytes buffered so far."""
        ...

    def add(self, batch: pa.RecordBatch) -> None:
        """Append a batch."""
        ...

    def finish(self) -> EncodedFile | None:
        """Return the file, or None if nothing was added."""
        ...


@dataclass(frozen=True)
class RecordTable:
    """The declaration of a table, for the reader of its records."""

    columns: tuple[Column, ...]
    keys: tuple[str, ...] = ()
    """The PRIMARY KEY by which a changelog is normalised."""
    options: LineSourceOptions = field(default_factory=LineSourceOptions)


@dataclass(frozen=True)
class WriteSettings:
    """How the rows of a table are written."""

    keys: tuple[str, ...] = ()
    timestamps: TimestampFormat = TimestampFormat.RFC3339


def _unchanged(rows: DataFrame, settings: WriteSettings) -> DataFrame:
    return rows


@dataclass(frozen=True)
class Format:
    """A format by name, and its capabilities."""

    spec: FormatSpec
    suffix: str
    """The suffix of its files, without the dot."""
    is_line_based: bool = False
    """A record is a line of text, so files can be concatenated and printed."""
    line_reader: Callable[[RecordTable], LineReader] | None = None
    """Set if it can be read from lines."""
    encoder: Callable[[], FileEncoder] | None = None
    """Set if it can be written: an encoder for one file, made in a Spark task."""
    prepared: Callable[[DataFrame, WriteSettings], DataFrame] = _unchanged
    """Converts rows to the input of the encoder."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def reads_lines(self) -> bool:
        return self.line_reader is not None

    @property
    def writes_files(self) -> bool:
        return self.encoder is not None

    @property
    def writes_lines(self) -> bool:
        return self.writes_files and self.is_line_based
