"""The contract of what is in files: lines of records, or columns. A source asks it how many rows a
file may have, how it is cut, and how it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from resurgence.connectors.contract import RECORD_BYTES
from resurgence.connectors.directory.files import Piece
from resurgence.connectors.directory.selection import Selection, partition_sql
from resurgence.connectors.directory.tasks import MODIFIED, SIZE
from resurgence.connectors.formats.contract import Fault
from resurgence.graph.values import Column
from resurgence.state.records import RecordPosition
from resurgence.storage.local_files import StoredFile

METADATA = {"path": "STRING", "line": "BIGINT", "size": "BIGINT", "modified": "TIMESTAMP"}
"""The metadata of a record: its file, its line or row from 1, the size of the file as it is stored,
and when the file was modified.
"""
HIDDEN = (Column(name=RECORD_BYTES, type="BIGINT", metadata=RECORD_BYTES),)
"""What the engine measures while it reads."""
PARTITION_KEY = "partition "
"""The prefix of the metadata that is a folder's value of a partition column."""
POSITION = "struct(path AS partition, line AS offset) AS position"


class Content(Protocol):
    """What is in the files of a source."""

    unit: str
    """What a record is, as in `line`."""

    def check(self) -> None:
        """Raise UserError if this can never be read."""
        ...

    def pieces(self, files: Sequence[StoredFile]) -> list[Piece]:
        """Return whole files."""
        ...

    def rows(self, piece: Piece) -> int:
        """Return how many rows a piece has, approximately."""
        ...

    def size(self, piece: Piece) -> int:
        """Return how many stored bytes a piece has, approximately."""
        ...

    def can_be_cut(self, piece: Piece) -> bool:
        """Return whether an epoch can read a part of it."""
        ...

    def cut(self, piece: Piece, rows: int, size: int) -> tuple[Piece, Piece | None]:
        """Return the beginning of a piece, with at most so many rows or bytes, and the rest."""
        ...

    def halves(self, piece: Piece) -> tuple[Piece, Piece] | None:
        """Split a piece of any kind; None if it is a single record."""
        ...

    def read(self, spark: SparkSession, pieces: Sequence[Piece], parallelism: int) -> DataFrame:
        """Return the records of pieces, with a column `position`."""
        ...

    def parsed(self, records: DataFrame) -> DataFrame:
        """Convert such records to the columns of `Source.read`."""
        ...

    def raw(self, records: DataFrame) -> DataFrame:
        """Convert such records to columns `position` and `raw`."""
        ...

    def parse_raw(self, records: DataFrame) -> DataFrame:
        """Convert raw records to the columns of `Source.read`."""
        ...

    def explainer(self) -> Callable[[bytes | None], str]:
        """Return a function that returns why a raw record is bad."""
        ...

    def fault(self, piece: Piece, position: RecordPosition) -> Fault:
        """Return why the record of a piece at a position is bad."""
        ...

    def measured(self, rows: int, size: int) -> None:
        """Take note that so many stored bytes had so many rows."""
        ...


def with_partitions(columns: tuple[Column, ...], fields: Sequence[str]) -> tuple[Column, ...]:
    """Return columns with those that are in the names of folders as metadata."""
    return tuple(
        each.model_copy(update={"metadata": f"{PARTITION_KEY}{each.name}"})
        if each.name in fields
        else each
        for each in columns
    )


def metadata_of(
    selection: Selection, columns: Sequence[Column], size: str, *, has_facts: bool
) -> Mapping[str, SparkColumn]:
    """Return the metadata of records, which have a column `position`; `size` is SQL for the bytes of
    a record. Records that were stored aside do not have the facts of their file.
    """
    relative = f"substr(position.partition, {len(selection.shown) + 2})"
    partitions = {
        each.metadata: F.expr(partition_sql(relative, each.name, each.type))
        for each in columns
        if each.metadata is not None and each.metadata.startswith(PARTITION_KEY)
    }
    return {
        "path": F.col("position.partition"),
        "line": F.expr("position.offset + 1"),
        "size": F.expr(SIZE if has_facts else "CAST(NULL AS BIGINT)"),
        "modified": F.expr(f"timestamp_micros({MODIFIED if has_facts else 'NULL'})"),
        RECORD_BYTES: F.expr(size),
        **partitions,
    }
