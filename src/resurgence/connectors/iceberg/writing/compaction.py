"""Compaction of an Iceberg table: a snapshot that replaces small files by one with the same rows.

Its operation is `replace`, so streaming readers pass over it. It sets no property of the table: the
marker of each sink stays what it was.

Other commits may come first, those of epochs among them. So the table is loaded again before each
attempt, which succeeds only on the snapshot that was looked at. What was written replaces its files
only if all of them are still in the table, without deletes. An upsert that was planned on an older
snapshot is refused in the same way, and planned anew. In this process it is not even disturbed: a
commit of an epoch and one of the compaction exclude each other.

Files with deletes, and those of an older partition spec, are left alone.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from resurgence.connectors.contract import StagedFile
from resurgence.connectors.iceberg.catalogs.catalog import IcebergCatalog
from resurgence.connectors.iceberg.catalogs.store_location import located_store
from resurgence.connectors.iceberg.reading.file_reader import FilePiece, read_groups
from resurgence.connectors.iceberg.reading.table_files import (
    accesses,
    declared_columns,
    own_columns,
    piece_of,
)
from resurgence.connectors.iceberg.writing.commit import Refused, TableChange, commit_once
from resurgence.connectors.iceberg.writing.data_files import (
    added_file,
    data_access,
    data_location,
    location_of,
)
from resurgence.connectors.iceberg.writing.marker import SINK
from resurgence.connectors.lakehouse.compaction import commit_turn
from resurgence.connectors.lakehouse.data_files import FileLayout
from resurgence.connectors.lakehouse.merge_plan import SmallFile
from resurgence.connectors.lakehouse.merged_files import MERGE, merging_tasks, write_merged
from resurgence.connectors.lakehouse.stored_rows import gone_from_table
from resurgence.errors import ConnectionLost, SinkError, UserError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

log = logging.getLogger(__name__)

_FOLDER = "resurgence/compacted"
"""Not below the folder of a sink, which is swept."""
_ATTEMPT = "resurgence.compaction"
"""The property of a snapshot with the unique name of its commit."""
_MERGE_ID = -1
"""Of MERGE: no column of a table has it."""
_ATTEMPTS = 10


class IcebergCompaction:
    """The files of an Iceberg table, as `lakehouse.compaction` merges them."""

    def __init__(
        self,
        catalog: IcebergCatalog,
        layout_of: Callable[[Table, Sequence[str]], FileLayout],
        commits: threading.Lock,
        sink: str,
    ) -> None:
        """`layout_of` returns how rows with some columns become files of the table. `commits` is held
        by whoever commits to the table in this process. `sink` names it in snapshots.
        """
        self.name = f"Iceberg table {catalog.place}"
        self._catalog = catalog
        self._layout_of = layout_of
        self._commits = commits
        self._sink = sink
        self._seen: dict[str, DataFile] = {}

    def small_files(self, below: int) -> Sequence[SmallFile]:
        found = self._movable(self._catalog.load())
        self._seen = {path: each for path, each in found.items() if each.file_size_in_bytes < below}
        return [
            SmallFile(path, each.file_size_in_bytes, each.partition)
            for path, each in self._seen.items()
        ]

    def _movable(self, table: Table) -> dict[str, DataFile]:
        """Return the files of the current snapshot that may be replaced, by location."""
        with self._catalog.translated("plan its files"):
            try:
                tasks = [*table.scan().plan_files()]
            except ValueError as error:
                # pyiceberg does not read equality deletes.
                raise UserError(f"{self.name} cannot be read: {error}") from error
        spec = table.spec().spec_id
        return {
            each.file.file_path: each.file
            for each in tasks
            if each.file.spec_id == spec and not each.delete_files
        }

    def merge(self, spark: SparkSession, merges: Sequence[tuple[SmallFile, ...]]) -> bool:
        table = self._catalog.load()
        replaced = [tuple(self._seen[each.path] for each in merge) for merge in merges]
        written = self._write(spark, table, replaced)
        made = [
            _Merge(table.spec().spec_id, files, written.get(number, ()))
            for number, files in enumerate(replaced)
        ]
        for each in made:
            if not each.has_all_rows:
                self._delete(table, made)
                raise SinkError(f"the compaction of {self.name} has lost rows, and was given up")
        return self._commit(made)

    def _write(
        self, spark: SparkSession, table: Table, replaced: Sequence[Sequence[DataFile]]
    ) -> Mapping[int, tuple[StagedFile, ...]]:
        # In the order of time, so that what a failed run has written can be listed alone.
        prefix = f"{_FOLDER}/{time.time_ns() // 1_000_000:013}-{uuid.uuid4().hex[:8]}"
        columns = own_columns(table)
        groups = [
            [_numbered(piece_of(table, file), number) for file in files]
            for number, files in enumerate(replaced)
        ]
        access = data_access(table)
        try:
            rows = read_groups(
                spark,
                groups,
                accesses(table, (piece for each in groups for piece in each)),
                declared_columns(table, columns, gone_from_table).extended(
                    {MERGE: _MERGE_ID}, pa.int64()
                ),
                StructType([*columns, StructField(MERGE, LongType())]),
                merging_tasks(spark, len(groups)),
            )
            layout = self._layout_of(table, columns.names)
            return write_merged(rows, access.url, prefix, layout, access=access)
        except Exception:
            folder = f"{data_location(table)}/{_FOLDER}"
            store, path = located_store(folder, table.io.properties)
            begin = f"{path}{prefix.removeprefix(_FOLDER)}"
            listed = store.list(path, after=begin)
            store.delete(each.path for each in listed if each.path.startswith(begin))
            raise

    def _commit(self, made: Sequence[_Merge]) -> bool:
        """Commit those merges whose files are all in the table, and delete what was written for the
        others. Return whether there were no others.
        """
        attempts: dict[str, list[_Merge]] = {}
        unanswered_on: int | None = None
        for attempt in range(_ATTEMPTS + 1):
            with commit_turn(self._commits, self.name, attempt):
                table = self._catalog.load()
                if (committed := self._committed(table, attempts)) is not None:
                    # Only the answer was lost.
                    return self._conclude(table, made, committed)
                live = self._movable(table)
                tried = [each for each in made if each.is_current(table, live)]
                if not tried or attempt == _ATTEMPTS:
                    break
                name = uuid.uuid4().hex
                attempts[name] = tried
                change = TableChange(
                    [added_file(table, file) for each in tried for file in each.written],
                    [live[file.file_path] for each in tried for file in each.replaced],
                    moves_rows=True,
                )
                origin = {SINK: self._sink, _ATTEMPT: name}
                try:
                    commit_once(self._catalog, table, change, origin, {})
                    return self._conclude(table, made, tried)
                except Refused as error:
                    log.info("compaction of %s was refused: %s", self.name, error)
                except ConnectionLost as error:
                    log.info("compaction of %s got no answer: %s", self.name, error.message)
                    unanswered_on = table.metadata.current_snapshot_id
        if unanswered_on is not None and unanswered_on == table.metadata.current_snapshot_id:
            # A request without an answer may still arrive.
            raise SinkError(f"it is not known whether the compaction of {self.name} was committed")
        return self._conclude(table, made, ())

    def _committed(
        self, table: Table, attempts: Mapping[str, list[_Merge]]
    ) -> Collection[_Merge] | None:
        """Return the merges of the attempt that was committed, if one was. Its files may have been
        replaced since, so those of the table do not tell.
        """
        for snapshot in reversed(table.metadata.snapshots):
            summary = snapshot.summary.additional_properties if snapshot.summary else {}
            if summary.get(_ATTEMPT) in attempts:
                return attempts[summary[_ATTEMPT]]
        return None

    def _conclude(
        self, table: Table, made: Sequence[_Merge], committed: Collection[_Merge]
    ) -> bool:
        rest = [each for each in made if each not in committed]
        self._delete(table, rest)
        return not rest

    def _delete(self, table: Table, merges: Sequence[_Merge]) -> None:
        for each in merges:
            for file in each.written:
                table.io.delete(location_of(file))


@dataclass(frozen=True)
class _Merge:
    """Files of the table, and those that were written with their rows."""

    spec: int
    """The partition spec of all of them."""
    replaced: tuple[DataFile, ...]
    written: tuple[StagedFile, ...]

    @property
    def has_all_rows(self) -> bool:
        expected = sum(each.record_count for each in self.replaced)
        return sum(each.rows for each in self.written) == expected

    def is_current(self, table: Table, live: Collection[str]) -> bool:
        """Return whether the table has all files as they were read."""
        return table.spec().spec_id == self.spec and all(
            each.file_path in live for each in self.replaced
        )


def _numbered(piece: FilePiece, number: int) -> FilePiece:
    return dataclasses.replace(piece, shared={**piece.shared, _MERGE_ID: pa.scalar(number)})
