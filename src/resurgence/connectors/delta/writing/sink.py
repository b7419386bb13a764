"""The Delta sink: each epoch is one transaction of the table. Exactly once.

Append-only rows: `stage` lets tasks write data files where the table will have them, and `commit`
adds them. A changelog with a PRIMARY KEY: `stage` writes its net changes to the job's storage, and
`commit` rewrites the files that hold their keys, by the version that it commits to.

A record in the job's storage (`commit_log`) fixes which staged files are the output of an epoch, and
the input that it covers. The table names the newest epoch (`transactions`, which has the proof). A
state dir that was restored from a backup lacks newer records, but the table still names their epoch.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime

from pydantic import JsonValue
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
from resurgence.connectors.delta.columns import (
    TableShape,
    all_nullable,
    missing_columns,
    require_partitioning,
    require_storable,
    require_writable,
)
from resurgence.connectors.delta.file_details import file_layout, require_storable_keys
from resurgence.connectors.delta.files import added_file
from resurgence.connectors.delta.table import (
    SinkTable,
    application_id,
    require_package,
)
from resurgence.connectors.delta.writing.commit_record import are_changes, fixed_files, record_of
from resurgence.connectors.delta.writing.compaction import DeltaCompaction
from resurgence.connectors.delta.writing.leftovers import FOLDER, Leftovers
from resurgence.connectors.delta.writing.retraction import retract_epochs
from resurgence.connectors.delta.writing.sink_options import DeltaSinkOptions
from resurgence.connectors.delta.writing.staged_columns import require_as_staged, with_columns
from resurgence.connectors.delta.writing.transactions import attempts, input_number, transactions_of
from resurgence.connectors.delta.writing.upsert import UpsertCommit, require_no_deletion_vectors
from resurgence.connectors.lakehouse.compaction import Compaction
from resurgence.connectors.lakehouse.copy_on_write import KEY_RANGES, StagedChanges, stage_changes
from resurgence.connectors.lakehouse.data_files import (
    FileLayout,
    files_prefix,
    rehearse_files,
    write_files,
)
from resurgence.connectors.lakehouse.options import (
    names_in,
    require_columns,
    sort_fields,
)
from resurgence.connectors.lakehouse.pruning import merged_ranges
from resurgence.connectors.lakehouse.staged_files import require_staged, staged_by_others
from resurgence.errors import SinkConflict
from resurgence.graph.values import CHANGE
from resurgence.ids import NO_EPOCH, Epoch, Generation, JobIdentity
from resurgence.storage.object_store import ObjectStore, shared_store, storage_url

_OTHER_COPY = (
    "Check whether another copy of this state dir is running, or it was restored from an older"
    " copy."
)


class DeltaSink:
    """A Delta table."""

    retracts = True

    def __init__(self, options: DeltaSinkOptions, table: SinkDeclaration) -> None:
        self._options = options
        self._table = table
        self._url = storage_url(options.path)
        self._delta = SinkTable(self._url)
        self._log = CommitLog(shared_store(table.state_url), table.state_folder)
        self._leftovers = Leftovers(self._url, table.table, self._log)
        self._commits = threading.Lock()
        """Held while a commit to the table is made in this process."""
        self._compaction = self._make_compaction()
        self._prepared_for: tuple[StructType, TableShape] | None = None
        """The columns of the rows, and the table as it was then."""
        self._generation: Generation | None = None
        """The one that stages by this sink."""

    def _make_compaction(self) -> Compaction | None:
        policy = self._options.merge_policy
        if policy is None:
            return None
        table = DeltaCompaction(
            self._url,
            lambda shape: self._layout(shape, shape.schema.names),
            self._commits,
            {"sink": self._table.table, "compaction": True},
        )
        return Compaction(table, policy)

    @property
    def _store(self) -> ObjectStore:
        return shared_store(self._url)

    def check(self) -> None:
        require_package(self._table.table)
        if self._delta.exists():
            shape = self._delta.shape()
            require_writable(shape, removes=False)
            require_partitioning(self._table.table, shape, names_in(self._options.partitioned_by))

    def stage(
        self, rows: DataFrame, job: JobIdentity, epoch: Epoch, generation: Generation
    ) -> StagedOutput:
        self._generation = generation
        columns = StructType([each for each in rows.schema if each.name != CHANGE])
        self._prepare(columns, removes=CHANGE in rows.columns)
        named, shape = self._named(rows), self._delta.shape()
        if CHANGE in rows.columns:
            keys = self._keys()
            prefix = self._log.staged_prefix(job, epoch, generation)
            require = require_storable_keys(shape, keys)
            staged = stage_changes(named, keys, self._table.state_url, prefix, require)
        else:
            prefix = files_prefix(FOLDER, job, epoch, generation)
            staged = write_files(named, self._url, prefix, self._layout(shape, columns.names))
        return with_columns(staged, shape, columns.names)

    def rehearsed(self, rows: DataFrame) -> DataFrame:
        columns = StructType([each for each in rows.schema if each.name != CHANGE])
        is_changelog = CHANGE in rows.columns
        self._prepare(columns, removes=is_changelog)
        shape = self._delta.shape()
        layout = self._layout(shape, columns.names, self._keys() if is_changelog else ())
        return rehearse_files(self._named(rows).drop(CHANGE), layout)

    def _prepare(self, columns: StructType, *, removes: bool) -> None:
        """Create the table, or add the columns that it lacks."""
        if self._prepared_for is not None and self._prepared_for == (columns, self._delta.shape()):
            return
        name = self._table.table
        wanted = names_in(self._options.partitioned_by)
        sorted_by = [each.column for each in sort_fields(self._options.sort_by)]
        require_columns("partitioning.fields", wanted, columns.names)
        require_columns("sort.fields", sorted_by, columns.names)
        require_storable(name, columns, wanted)
        if not self._delta.exists():
            known = {each.lower(): each for each in columns.names}
            self._delta.create(all_nullable(columns), [known[each.lower()] for each in wanted])
        shape = self._delta.shape()
        require_writable(shape, removes=removes)
        require_partitioning(name, shape, wanted)
        if removes:
            require_no_deletion_vectors(self._delta)
        if added := missing_columns(name, shape, columns):
            self._delta.add_columns(StructType(added))
            shape = self._delta.shape()
        self._prepared_for = (columns, shape)

    def _named(self, rows: DataFrame) -> DataFrame:
        """Return the rows with the names that the table has: Spark ignores their case."""
        known = {each.lower(): each for each in self._delta.shape().schema.names}
        return rows.toDF(*(known.get(each.lower(), each) for each in rows.columns))

    def _keys(self) -> tuple[str, ...]:
        known = {each.lower(): each for each in self._delta.shape().schema.names}
        return tuple(known[each.lower()] for each in self._table.keys)

    def _layout(
        self, shape: TableShape, columns: Sequence[str], keys: Sequence[str] = ()
    ) -> FileLayout:
        """Return how rows with these columns become files. `keys`: if they are upserted."""
        order = sort_fields(self._options.sort_by)
        layout = file_layout(shape, columns, order, self._options.target_bytes)
        return dataclasses.replace(layout, require=require_storable_keys(shape, keys))

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
        with self._commits:
            self._commit(spark, job, epoch, staged, covered)
        if self._compaction is not None:
            self._compaction.after_commit(spark)

    def _commit(
        self,
        spark: SparkSession,
        job: JobIdentity,
        epoch: Epoch,
        staged: StagedOutput,
        covered: CoveredInput,
    ) -> None:
        application = application_id(job, self._table.table)
        self._delta.refresh()
        if self._delta.newest_epoch(application) >= epoch:
            self._require_known(job, epoch, covered)
            return
        fixed = self._log.fix(job, epoch, record_of(staged), covered)
        require_same_input(self._url, epoch, self._log.covered(fixed), covered)
        files = fixed_files(fixed, epoch)
        if not files:
            # The epoch was rolled back, and this process is a zombie.
            return
        transactions = transactions_of(application, epoch, covered)
        info: dict[str, JsonValue] = {"job": job, "sink": self._table.table, "epoch": epoch}
        if are_changes(files):
            upsert = self._upsert(spark, job, epoch, files, transactions, info)
            is_own = attempts().commit(self._delta, application, epoch, upsert.attempt)
            upsert.delete_unused()
            if not is_own:
                self._require_known(job, epoch, covered)
            staged_paths = {each.path for each in (*staged.files, *files)}
            shared_store(self._table.state_url).delete(staged_paths)
            return
        others = [each.path for each in staged_by_others(files, self._generation)]
        require_staged(self._url, others, lambda each: self._store.size(each) is not None)
        added = [added_file(each) for each in files]

        def append() -> None:
            shape = self._delta.shape()
            require_writable(shape, removes=False)
            require_as_staged(shape, files)
            self._delta.commit(transactions, added, (), info)

        if not attempts().commit(self._delta, application, epoch, append):
            self._require_known(job, epoch, covered)

    def _upsert(
        self,
        spark: SparkSession,
        job: JobIdentity,
        epoch: Epoch,
        files: Sequence[StagedFile],
        transactions: Mapping[str, int],
        info: Mapping[str, JsonValue],
    ) -> UpsertCommit:
        def require(shape: TableShape) -> None:
            require_as_staged(shape, files)

        require(self._delta.shape())
        keys = self._keys()
        ranges = [each.details[KEY_RANGES] for each in files]
        return UpsertCommit(
            spark,
            self._delta,
            StagedChanges(
                self._table.state_url,
                tuple(each.path for each in files),
                sum(each.bytes for each in files),
                keys,
            ),
            merged_ranges([each for each in ranges if isinstance(each, dict)], keys),
            f"{FOLDER}/{job}/{epoch:010}-upsert",
            require,
            lambda shape: self._layout(shape, shape.schema.names, keys),
            transactions,
            info,
        )

    def _require_known(self, job: JobIdentity, epoch: Epoch, covered: CoveredInput) -> None:
        """Raise SinkConflict if the table names this epoch, or a later one, and this state has no
        record of it, or one over other input.
        """
        fixed = self._log.fixed(job, epoch)
        if fixed is not None:
            require_same_input(self._url, epoch, self._log.covered(fixed), covered)
        application = application_id(job, self._table.table)
        held, on_record = self._delta.newest_epoch(application), self._log.recall(job, ()).newest
        # The record of an epoch precedes its commit.
        if held > on_record or (fixed is None and on_record <= epoch):
            raise SinkConflict(
                f"{self._url} holds epoch {held} of this job, but the state has no record of it",
                hint=_OTHER_COPY,
            )
        known = (0, input_number(covered))
        if held == epoch and self._delta.covered_input(application) not in known:
            raise SinkConflict(
                f"{self._url} holds epoch {epoch} of this job over other input", hint=_OTHER_COPY
            )

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

    def take_over(self, job: JobIdentity) -> None:
        """Do nothing: a commit is one object of the log."""

    def recall(self, job: JobIdentity, epochs: Collection[Epoch]) -> SinkMemory:
        memory = self._log.recall(job, epochs)
        newest = NO_EPOCH
        if self._delta.exists():
            newest = Epoch(self._delta.newest_epoch(application_id(job, self._table.table)))
        return SinkMemory(max(memory.newest, newest), memory.inputs, memory.retracted)

    def discard(self, staged: StagedOutput) -> None:
        changes = {each.path for each in staged.files if KEY_RANGES in each.details}
        shared_store(self._table.state_url).delete(changes)
        self._store.delete(each.path for each in staged.files if each.path not in changes)

    def sweep(self, job: JobIdentity, epoch: Epoch) -> None:
        self._leftovers.sweep(job, epoch)

    def forget(self, job: JobIdentity, before: Epoch) -> None:
        self._log.forget(job, before)

    def retract(self, job: JobIdentity, after: Epoch, up_to: Epoch) -> None:
        """Restore what the table had before the epochs; see `rollback` for when it cannot."""
        if self._log.is_retracted(job, after, up_to):
            return
        if self._delta.exists():
            application = application_id(job, self._table.table)
            retract_epochs(self._delta, attempts(), application, after, up_to)
        self._log.close(job, after, up_to, {})
        self._log.mark_retracted(job, after, up_to, {})
