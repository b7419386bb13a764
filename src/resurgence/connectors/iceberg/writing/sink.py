"""The Iceberg sink: appends, and upserts by key, exactly once.

`stage` writes data files at their final locations, where no reader sees them; the changes of an
upsert are staged in the job's storage, because which files they replace is known only when they are
committed. `commit` fixes by a record which files are the output of the epoch (`commit_log`), and adds
them to the table in one transaction with a marker (`commit`). `recall` returns both records and
marker: a state dir that was restored from a backup lacks newer records, but the table still has the
marker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pydantic import JsonValue, TypeAdapter, ValidationError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from resurgence.connectors.commit_log import CommitLog
from resurgence.connectors.connector import SinkDeclaration
from resurgence.connectors.contract import (
    CoveredInput,
    SinkMemory,
    StagedFile,
    StagedOutput,
    require_same_input,
)
from resurgence.connectors.iceberg.catalogs.catalog import IcebergCatalog
from resurgence.connectors.iceberg.options import IcebergSinkOptions
from resurgence.connectors.iceberg.partitioning import partition_terms
from resurgence.connectors.iceberg.writing.commit import Committer, TableChange
from resurgence.connectors.iceberg.writing.compaction import IcebergCompaction
from resurgence.connectors.iceberg.writing.data_files import (
    added_file,
    data_access,
    file_layout,
    location_of,
    needs_rewrite,
    table_order,
)
from resurgence.connectors.iceberg.writing.leftovers import Leftovers
from resurgence.connectors.iceberg.writing.marker import Marker, Writer
from resurgence.connectors.iceberg.writing.retraction import Retraction
from resurgence.connectors.iceberg.writing.sink_table import SinkTable
from resurgence.connectors.iceberg.writing.upsert import Upsert
from resurgence.connectors.lakehouse.compaction import Compaction
from resurgence.connectors.lakehouse.copy_on_write import KEY_RANGES, stage_changes
from resurgence.connectors.lakehouse.data_files import (
    FileLayout,
    files_prefix,
    rehearse_files,
    write_files,
)
from resurgence.connectors.lakehouse.options import sort_fields
from resurgence.connectors.lakehouse.staged_files import require_staged, staged_by_others
from resurgence.errors import SinkConflict, SinkError
from resurgence.graph.specs.base import slug
from resurgence.graph.values import CHANGE
from resurgence.ids import Epoch, Generation, JobIdentity
from resurgence.state.protocol.decisions import is_dead
from resurgence.storage.object_store import shared_store

if TYPE_CHECKING:
    from pyiceberg.table import Table

_FILES: TypeAdapter[tuple[StagedFile, ...]] = TypeAdapter(tuple[StagedFile, ...])


class IcebergSink:
    """An Iceberg table."""

    retracts = True

    def __init__(self, options: IcebergSinkOptions, table: SinkDeclaration) -> None:
        self._options = options
        self._declared = table
        self._catalog = IcebergCatalog(options.place())
        self._sorted_by = sort_fields(options.sort_by)
        self._table = SinkTable(
            self._catalog,
            table.table,
            partition_terms(options.partitioned_by),
            self._sorted_by,
        )
        self._id = f"sink-{slug(table.table)}"
        """The same for all INSERTs into the table: one of their sinks commits for all."""
        self._log = CommitLog(shared_store(table.state_url), table.state_folder)
        # With connections of their own, because they run beside the epochs.
        self._leftovers = Leftovers(IcebergCatalog(self._catalog.place), self._folder)
        self._commits = threading.Lock()
        """Held while a commit to the table is made in this process."""
        self._compaction = self._make_compaction()
        self._generation: Generation | None = None
        """The one that stages by this sink."""

    def _make_compaction(self) -> Compaction | None:
        policy = self._options.merge_policy
        if policy is None:
            return None
        catalog = IcebergCatalog(self._catalog.place)
        table = IcebergCompaction(catalog, self._layout, self._commits, self._id)
        return Compaction(table, policy)

    @property
    def _folder(self) -> str:
        return f"resurgence/{self._id}"

    def check(self) -> None:
        self._catalog.require_package()
        self._table.check()

    # ---------------------------------------------------------------- stage

    def stage(
        self, rows: DataFrame, job: JobIdentity, epoch: Epoch, generation: Generation
    ) -> StagedOutput:
        self._generation = generation
        table = self._table.prepare(_columns(rows))
        named = _named(rows, table)
        if CHANGE in rows.columns:
            prefix = self._log.staged_prefix(job, epoch, generation)
            return stage_changes(named, self._keys(table), self._declared.state_url, prefix)
        prefix = files_prefix(self._folder, job, epoch, generation)
        access = data_access(table)
        return write_files(
            named, access.url, prefix, self._layout(table, named.columns), access=access
        )

    def rehearsed(self, rows: DataFrame) -> DataFrame:
        table = self._table.prepare(_columns(rows))
        named = _named(rows, table).drop(CHANGE)
        return rehearse_files(named, self._layout(table, named.columns))

    def _layout(self, table: Table, written: Sequence[str]) -> FileLayout:
        order = self._sorted_by or table_order(table)
        return file_layout(table, tuple(written), order, self._options.target_bytes)

    def _keys(self, table: Table) -> tuple[str, ...]:
        known = {each.name.lower(): each.name for each in table.schema().fields}
        return tuple(known[each.lower()] for each in self._declared.keys)

    # ---------------------------------------------------------------- commit

    def commit(
        self,
        spark: SparkSession,
        job: JobIdentity,
        epoch: Epoch,
        staged: StagedOutput,
        covered: CoveredInput,
    ) -> None:
        # An earlier attempt may have fixed output, perhaps by another version of the query.
        if not staged.files and self._log.fixed(job, epoch) is None:
            return
        content: dict[str, JsonValue] = {
            "epoch": epoch,
            "files": [each.path for each in staged.files],
            "data": _FILES.dump_python(staged.files, mode="json"),
        }
        fixed = self._log.fix(job, epoch, content, covered)
        place = f"Iceberg table {self._catalog.place}"
        require_same_input(place, epoch, self._log.covered(fixed), covered)
        files = _fixed_files(fixed, epoch)
        if files:
            committer = Committer(self._catalog, Writer(job, self._id))
            marker = Marker(epoch, covered)
            with self._commits:
                is_own = committer.commit(
                    marker, lambda table: self._change(spark, table, job, epoch, files)
                )
            if not is_own:
                self._require_on_record(job)
        self.discard(StagedOutput(files=_without(staged.files, files)))
        self._delete_changes(files)
        if self._compaction is not None:
            self._compaction.after_commit(spark)

    def _change(
        self,
        spark: SparkSession,
        table: Table,
        job: JobIdentity,
        epoch: Epoch,
        files: tuple[StagedFile, ...],
    ) -> TableChange:
        """Return what an epoch changes in the table as it is now."""
        # A commit has no generation: names are unique anyway.
        prefix = files_prefix(self._folder, job, epoch, Generation(0))
        upsert = Upsert(
            spark, table, self._keys(table), prefix, lambda names: self._layout(table, names)
        )
        if KEY_RANGES in files[0].details:
            change = upsert.apply(self._declared.state_url, files)
        else:
            others = [location_of(each) for each in staged_by_others(files, self._generation)]
            place = f"Iceberg table {self._catalog.place}"
            require_staged(place, others, lambda each: table.io.new_input(each).exists())
            stale = [each for each in files if needs_rewrite(table, each)]
            added = [added_file(table, each) for each in files if each not in stale]
            change = TableChange([*added, *upsert.rewritten(stale)], (), upsert.undo)
        self._leftovers.expect(each.file_path for each in change.added)
        return change

    def _require_on_record(self, job: JobIdentity) -> None:
        """Raise SinkConflict if the table has a later epoch than this state has a record of. The
        record of an epoch precedes its commit.
        """
        table = self._catalog.load()
        held = Writer(job, self._id).read(table.properties).epoch
        if held > self._log.recall(job, ()).newest:
            raise SinkConflict(
                f"Iceberg table {self._catalog.place} holds epoch {held} of this job, but the state"
                " has no record of it",
                hint="Check whether another copy of this state dir is running, or it was restored"
                " from an older copy.",
            )

    def _delete_changes(self, files: Sequence[StagedFile]) -> None:
        changes = [each.path for each in files if KEY_RANGES in each.details]
        shared_store(self._declared.state_url).delete(changes)

    def flush(
        self,
        spark: SparkSession,
        job: JobIdentity,
        epoch: Epoch,
        permit: Callable[[], None],
        now: datetime | None = None,
    ) -> None:
        """Nothing is held back. The compaction ends with the job."""
        if now is None and self._compaction is not None:
            self._compaction.stop(spark)

    # ---------------------------------------------------------------- records

    def take_over(self, job: JobIdentity) -> None:
        """Do nothing: a commit is one request to the catalog."""

    def recall(self, job: JobIdentity, epochs: Collection[Epoch]) -> SinkMemory:
        memory = self._log.recall(job, epochs)
        table = self._catalog.find()
        if table is None:
            return memory
        marker = Writer(job, self._id).read(table.properties)
        held = {}
        if marker.covered is not None and marker.epoch in epochs:
            held = {marker.epoch: marker.covered}
        return SinkMemory(
            newest=max(memory.newest, marker.epoch),
            inputs=memory.inputs | held,
            retracted=memory.retracted,
        )

    def discard(self, staged: StagedOutput) -> None:
        self._delete_changes(staged.files)
        data = [each for each in staged.files if KEY_RANGES not in each.details]
        if data and (table := self._catalog.find()) is not None:
            for each in data:
                table.io.delete(location_of(each))

    def sweep(self, job: JobIdentity, epoch: Epoch) -> None:
        self._log.sweep(job, epoch)
        self._leftovers.sweep(Writer(job, self._id), self._log, epoch)

    def forget(self, job: JobIdentity, before: Epoch) -> None:
        self._log.forget(job, before)

    # ---------------------------------------------------------------- retract

    def retract(self, job: JobIdentity, after: Epoch, up_to: Epoch) -> None:
        if self._log.is_retracted(job, after, up_to):
            return
        # Closed first: then no record of these epochs appears any more.
        self._log.close(job, after, up_to, {})
        writer = Writer(job, self._id)
        retraction = Retraction(self._catalog, writer, self._folder, after, up_to)
        retraction.commit(
            None
            if self._declared.keys
            else lambda committed: self._appended(writer, after, up_to, committed)
        )
        self._log.mark_retracted(job, after, up_to, {})

    def _appended(self, writer: Writer, after: Epoch, up_to: Epoch, committed: Epoch) -> list[str]:
        """Return the files of the dead epochs that were committed, as far as they are on record."""
        earlier = self._log.recall(writer.job, ()).retracted
        return [
            location_of(file)
            for content in self._log.between(writer.job, after, up_to)
            if isinstance(epoch := content.get("epoch"), int)
            and epoch <= committed
            and not is_dead(Epoch(epoch), earlier)
            for file in _fixed_files(content, Epoch(epoch))
        ]


def _columns(rows: DataFrame) -> StructType:
    return StructType([each for each in rows.schema if each.name != CHANGE])


def _named(rows: DataFrame, table: Table) -> DataFrame:
    """Return the rows with the names that the table has: Spark ignores their case."""
    known = {each.name.lower(): each.name for each in table.schema().fields}
    return rows.toDF(*(known.get(each.lower(), each) for each in rows.columns))


def _fixed_files(content: Mapping[str, JsonValue], epoch: Epoch) -> tuple[StagedFile, ...]:
    """Return the files that an epoch's record fixes; none if the epoch was rolled back."""
    try:
        return _FILES.validate_python(content.get("data", []))
    except ValidationError as error:
        raise SinkError(
            f"the commit record of epoch {epoch} is damaged",
            hint="Restore the records of the sink from a backup.",
        ) from error


def _without(staged: Sequence[StagedFile], fixed: Sequence[StagedFile]) -> tuple[StagedFile, ...]:
    """Return what was staged in vain, because another attempt fixed the output."""
    needed = {each.path for each in fixed}
    return tuple(each for each in staged if each.path not in needed)
