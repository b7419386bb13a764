"""The contract of formats: how records are read and written, and what the planner must know.

A format is one `Format` in one module, and one line in `registry`. Connectors check the
capabilities of a format, never its name. A connector delivers records, one line or one message
each, and the format converts them to rows; a sink receives rows, and the format converts them to
values, which the sink writes as lines or messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame

from resurgence.connectors.formats.options import RecordSourceOptions
from resurgence.graph.connector_spec import FormatSpec
from resurgence.graph.table_options import TableOptions
from resurgence.graph.values import Column
from resurgence.storage.parquet import EncodedFile

F = TypeVar("F", bound=TableOptions)

TEXT = "text"
"""The column with a record of a format of text; null if the record is not UTF-8."""
VALUE = "value"
"""The column with a record of a binary format, and with a rendered record of any format."""


class Fault(NamedTuple):
    """Why a record is bad."""

    reason: str
    column: int | None = None
    """Where in the text, from 1, if that is known."""
    hint: str | None = None
    """Set if the general hint about bad records does not help."""


class RecordReader(Protocol):
    """Reads the records of one table."""

    def check(self) -> None:
        """Raise UserError if records can never be read. Called before Spark starts."""
        return

    def parse(self, records: DataFrame, metadata: Mapping[str, SparkColumn]) -> DataFrame:
        """Convert columns `position`, a RecordPosition, and TEXT or VALUE to the declared columns,
        BAD_POSITION and RECORD_POSITION; a changelog has its hidden columns as well. `metadata` has
        expressions over the columns of `records`, by key.
        """
        ...

    def explain(self, raw: bytes | None) -> Fault:
        """Return why a record is bad. None is a message without a value."""
        ...

    def for_tasks(self) -> RecordReader:
        """Return a reader that explains records in Spark tasks. It has no expressions of Spark,
        which cannot be sent to a task, and makes no requests.
        """
        # A copy of a dataclass has no cached properties.
        return replace(self) if is_dataclass(self) else self


class RecordWriter(Protocol):
    """Writes the rows of one table."""

    def check(self) -> None:
        """Raise UserError if records can never be written. Called before Spark starts."""
        return

    def render(self, rows: DataFrame) -> DataFrame:
        """Convert rows to the column VALUE, STRING or BINARY, and the columns that the settings
        name to be passed through.
        """
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
class RecordTable(Generic[F]):
    """The declaration of a table, for the reader of its records."""

    columns: tuple[Column, ...]
    format_options: F
    keys: tuple[str, ...] = ()
    """The PRIMARY KEY by which a changelog is normalised."""
    options: RecordSourceOptions = field(default_factory=RecordSourceOptions)
    subject: str | None = None
    """The subject of its records in a schema registry, if the connector defines one."""


@dataclass(frozen=True)
class WriteSettings(Generic[F]):
    """How the rows of a table are written."""

    format_options: F
    keys: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    """Columns of the rows that are passed through and are no part of the record. If a changelog has
    keys, their values depend on the keys alone.
    """
    subject: str | None = None
    """The subject of the records in a schema registry, if the connector defines one."""


@dataclass(frozen=True)
class Compression:
    """A way to compress the files of a format."""

    encoder: Callable[[], FileEncoder]
    """As in Format."""
    suffix: str = ""
    """Appended to the suffix of the format."""


@dataclass(frozen=True)
class Format:
    """A format by name, and its capabilities."""

    spec: FormatSpec
    suffix: str = ""
    """The suffix of its files, without the dot."""
    is_text: bool = False
    """Its records are read from the column TEXT, not VALUE."""
    is_line_based: bool = False
    """A record is a line of text, so files can be concatenated and printed."""
    is_columnar: bool = False
    """A file of it holds columns with types, not records."""
    is_free_text: bool = False
    """A record can contain a newline, or be null; where records are lines, that is refused."""
    skips_tombstones: bool = False
    """A message without a value is no record; else it is a bad one."""
    reader: Callable[[RecordTable[Any]], RecordReader] | None = None
    """Set if it can be read from records."""
    writer: Callable[[WriteSettings[Any]], RecordWriter] | None = None
    """Set if it can be written as records."""
    encoder: Callable[[], FileEncoder] | None = None
    """Set if it can be written to files: an encoder for one file, made in a Spark task. Its input
    are rendered records, or rows if the format has no writer.
    """
    compressions: Mapping[str, Compression] = field(default_factory=dict, compare=False)
    """Other encoders, by the name of their compression."""
    batches: Callable[[bytes], Iterator[pa.RecordBatch]] | None = None
    """Decodes a file into the batches that its encoder was given. Set if files of it can be merged
    and are not line-based; those are concatenated.
    """
    jars: tuple[str, ...] = ()
    """Jars that Spark needs for it besides its own, as sets by name."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def reads_lines(self) -> bool:
        return self.reads_messages and self.is_line_based

    @property
    def reads_messages(self) -> bool:
        return self.reader is not None

    @property
    def writes_messages(self) -> bool:
        return self.writer is not None

    @property
    def writes_files(self) -> bool:
        return self.encoder is not None

    @property
    def writes_lines(self) -> bool:
        return self.writes_files and self.is_line_based
