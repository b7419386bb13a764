"""Compaction of a Delta table: a commit that removes small files and adds one with the same rows.

Its actions say that no data changed, so streaming readers pass over it. It names no epoch: the newest
epoch of each sink stays what it was.

Other commits may come first, those of epochs among them. So the version to commit to is looked at
again before each attempt, and the commit succeeds only as the next one. What was written replaces its
files only if all of them are still in the table. An upsert that was planned by an older version is
refused in the same way, and planned anew. In this process it is not even disturbed: a commit of an
epoch and one of the compaction exclude each other.

A file with a deletion vector is left alone: an action of `deltalake` cannot remove it.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pydantic import JsonValue
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from resurgence.connectors.contract import StagedFile
from resurgence.connectors.delta.columns import TableShape, require_writable
from resurgence.connectors.delta.files import LiveFile, added_file, as_parts, file_name
from resurgence.connectors.delta.log import read_version
from resurgence.connectors.delta.table import SinkTable, brief
from resurgence.connectors.delta.writing.leftovers import FOLDER
from resurgence.connectors.lakehouse.compaction import commit_turn
from resurgence.connectors.lakehouse.data_files import FileLayout
from resurgence.connectors.lakehouse.merge_plan import SmallFile
from resurgence.connectors.lakehouse.merged_files import MERGE, merging_tasks, write_merged
from resurgence.connectors.lakehouse.stored_rows import gone_from_table, read_groups
from resurgence.errors import SinkError
from resurgence.storage.object_store import shared_store

log = logging.getLogger(__name__)

_FOLDER = f"{FOLDER}/compacted"
"""Not below the folder of a job, which is swept."""
_ATTEMPTS = 10


class DeltaCompaction:
    """The files of a Delta table, as `lakehouse.compaction` merges them."""

    def __init__(
        self,
        url: str,
        layout_of: Callable[[TableShape], FileLayout],
        commits: threading.Lock,
        info: Mapping[str, JsonValue],
    ) -> None:
        """`layout_of` returns how rows with all columns of the table become files. `commits` is held
        by whoever commits to the table in this process.
        """
        self.name = url
        self._table = SinkTable(url)
        self._layout_of = layout_of
        self._commits = commits
        self._info = info
        self._seen: dict[str, LiveFile] = {}

    def small_files(self, below: int) -> Sequence[SmallFile]:
        self._table.refresh()
        require_writable(self._table.shape(), removes=False)
        unmovable = self._table.names_with_deletion_vectors()
        found = self._table.live_files(below)
        self._seen = {each.path: each for each in found if file_name(each.path) not in unmovable}
        return [
            SmallFile(each.path, each.bytes, tuple(sorted(each.partition.items())))
            for each in self._seen.values()
        ]

    def merge(self, spark: SparkSession, merges: Sequence[tuple[SmallFile, ...]]) -> bool:
        replaced = [tuple(self._seen[each.path] for each in merge) for merge in merges]
        written = self._write(spark, replaced)
        made = [_Merge(files, written.get(number, ())) for number, files in enumerate(replaced)]
        return self._commit(made)

    def _write(
        self, spark: SparkSession, replaced: Sequence[Sequence[LiveFile]]
    ) -> Mapping[int, tuple[StagedFile, ...]]:
        shape = self._table.shape()
        # In the order of time, so that what a failed run has written can be listed alone.
        prefix = f"{_FOLDER}/{time.time_ns() // 1_000_000:013}-{uuid.uuid4().hex[:8]}"
        groups = [
            [
                dataclasses.replace(part, values={**part.values, MERGE: pa.scalar(number)})
                for part in as_parts(files, shape.schema)
            ]
            for number, files in enumerate(replaced)
        ]
        try:
            rows = read_groups(
                spark,
                self.name,
                groups,
                StructType([*shape.schema, StructField(MERGE, LongType())]),
                merging_tasks(spark, len(groups)),
                missing=gone_from_table,
            )
            written = write_merged(rows, self.name, prefix, self._layout_of(shape))
            for number, files in enumerate(replaced):
                _require_same_rows(files, written.get(number, ()))
            return written
        except Exception:
            store = shared_store(self.name)
            listed = store.list(_FOLDER, after=prefix)
            store.delete(each.path for each in listed if each.path.startswith(prefix))
            raise

    def _commit(self, made: Sequence[_Merge]) -> bool:
        """Commit those merges whose files are all in the table, and delete what was written for the
        others. Return whether there were no others.
        """
        from deltalake.exceptions import DeltaError

        tried: list[_Merge] = []
        next_version = 0
        for attempt in range(_ATTEMPTS + 1):
            with commit_turn(self._commits, self.name, attempt):
                self._table.refresh()
                if self._table.version >= next_version > 0 and self._has_added(next_version, tried):
                    # Only the answer was lost.
                    return self._conclude(made, tried)
                live, unmovable = self._table.paths(), self._table.names_with_deletion_vectors()
                tried = [each for each in made if each.is_current(live, unmovable)]
                if not tried or attempt == _ATTEMPTS:
                    break
                require_writable(self._table.shape(), removes=False)
                next_version = self._table.version + 1
                try:
                    self._table.commit(
                        {},
                        [added_file(file) for each in tried for file in each.written],
                        [file for each in tried for file in each.replaced],
                        self._info,
                        changes_rows=False,
                    )
                    return self._conclude(made, tried)
                except (DeltaError, OSError) as error:
                    log.info("compaction of %s was refused: %s", self.name, brief(error))
        if self._table.version < next_version:
            # A request without an answer may still arrive.
            raise SinkError(f"it is not known whether the compaction of {self.name} was committed")
        return self._conclude(made, ())

    def _has_added(self, number: int, tried: Sequence[_Merge]) -> bool:
        """Return whether a version is the one that was tried. Its files may have been replaced since,
        so those of the table do not tell.
        """
        version = read_version(shared_store(self.name), number)
        if version is None:
            raise SinkError(f"version {number} of {self.name} is not in its log any more")
        written = {file.path for each in tried for file in each.written}
        return any(each.path in written for each in version.added)

    def _conclude(self, made: Sequence[_Merge], committed: Collection[_Merge]) -> bool:
        rest = [each for each in made if each not in committed]
        shared_store(self.name).delete(file.path for each in rest for file in each.written)
        return not rest


def _require_same_rows(replaced: Sequence[LiveFile], written: Sequence[StagedFile]) -> None:
    """Raise SinkError if files have not as many rows as the log says. Nothing must be lost here."""
    expected = [each.rows for each in replaced if each.rows is not None]
    found = sum(each.rows for each in written)
    if len(expected) == len(replaced) and sum(expected) != found:
        raise SinkError(
            f"{len(replaced)} files of the table have {found} rows, but its log says"
            f" {sum(expected)}; the first one is {replaced[0].path}",
            hint="Check the statistics of these files. They are not merged.",
        )


@dataclass(frozen=True)
class _Merge:
    """Files of the table, and those that were written with their rows."""

    replaced: tuple[LiveFile, ...]
    written: tuple[StagedFile, ...]

    def is_current(self, live: Collection[str], unmovable: Collection[str]) -> bool:
        """Return whether the table has all files as they were read."""
        return all(
            each.path in live and file_name(each.path) not in unmovable for each in self.replaced
        )
