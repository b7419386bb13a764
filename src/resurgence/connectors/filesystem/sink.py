"""The `filesystem` sink: a folder of files, on a disk or in an object store. Exactly once.

Staged objects are in the hidden folder `.resurgence`. Commit moves each to its final name, which
contains the job and the epoch. A file appears whole or not at all. In an object store a move is a
copy, and the staged objects of an epoch are deleted while the next one is committed, so that a
commit is two round trips: the record, and all copies at once.

With a rolling policy, commits hold rows back until a file is complete. `rolling` decides that, and
explains why each row becomes visible exactly once; here are the reads and writes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from pydantic import JsonValue
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from resurgence.connectors.contract import CoveredInput, StagedOutput, require_same_input
from resurgence.connectors.file_sink import FileSink
from resurgence.connectors.filesystem.file_names import FileNames
from resurgence.connectors.filesystem.log_end import LogEnd, LogEnds
from resurgence.connectors.filesystem.merging import Merger
from resurgence.connectors.filesystem.options import FilesystemSinkOptions
from resurgence.connectors.filesystem.partitions import FOLDER, folder_sql, missing_columns
from resurgence.connectors.filesystem.published_files import PublishedFiles
from resurgence.connectors.filesystem.records import Record, commit_record, flush_record, oldest
from resurgence.connectors.filesystem.retraction import Retraction
from resurgence.connectors.filesystem.rolling import Part, Rolled, RollingPolicy, roll
from resurgence.connectors.formats.contract import Format, WriteSettings
from resurgence.connectors.formats.parquet_files import PARQUET
from resurgence.connectors.staging import FileLayout
from resurgence.errors import UserError, did_you_mean
from resurgence.graph.values import EVENT_TIME
from resurgence.ids import Epoch, Generation, JobIdentity
from resurgence.storage.object_store import storage_url
from resurgence.storage.parallel import in_parallel
from resurgence.storage.parquet import ParquetEncoder

_HIDDEN = ".resurgence"
_SUFFIX = "suffix"
"""The detail of a staged file that names its format and compression. An edit of the table may change
these before the file is committed.
"""


class FilesystemSink(FileSink):
    """A folder of files."""

    def __init__(
        self,
        options: FilesystemSinkOptions,
        settings: WriteSettings[Any],
        file_format: Format = PARQUET,
        columns: Sequence[str] | None = None,
    ) -> None:
        """`columns` are those that the table declares, if it does."""
        super().__init__(storage_url(options.path), _HIDDEN, file_format, settings)
        self._options = options
        self._columns = columns
        self._compression = options.compression(file_format)
        self._suffix = file_format.suffix + (self._compression.suffix if self._compression else "")
        has_policy = options.file_size is not None or options.interval is not None
        self._policy = RollingPolicy(options.file_size, options.interval) if has_policy else None
        self._names = FileNames(file_format.suffix, options.prefix)
        self._end: LogEnd | None = None
        """Read at the first commit or flush, then kept up to date."""
        self._copied: tuple[str, ...] = ()
        """Staged objects whose rows are in final files, and which are to be deleted. Those that are
        lost in a crash or between threads are found by the next sweep.
        """

    @property
    def _fields(self) -> tuple[str, ...]:
        return self._options.fields or ()

    @property
    def _layout(self) -> FileLayout:
        encoder = self._compression.encoder if self._compression else None
        is_split = self._fields or self._options.time_pattern
        return FileLayout(self._format, self._settings, encoder, FOLDER if is_split else None)

    @property
    def _merger(self) -> Merger:
        return Merger(self._layout.encoder_of, self._format.batches)

    def _merger_of(self, name: str) -> Merger:
        """Return what cuts a file. The table may have had another format when it was written."""
        if name.endswith(f".{self._suffix}"):
            return self._merger
        batches = PARQUET.batches if name.endswith(f".{PARQUET.suffix}") else None
        return Merger(ParquetEncoder, batches)

    @functools.cached_property
    def _published(self) -> PublishedFiles:
        return PublishedFiles(self._store, f"{self._url}/{_HIDDEN}")

    @functools.cached_property
    def _ends(self) -> LogEnds:
        return LogEnds(self._store, self._log, self._published, self._names)

    def _current(self, job: JobIdentity) -> LogEnd:
        if self._end is None:
            self._end = self._ends.completed(job)
        return self._end

    def check(self) -> None:
        """Open the store, which creates the folder. Raise UserError for columns that cannot
        partition the table.
        """
        if self._columns is not None:
            self._require_columns(self._columns)
        keys = {each.lower() for each in self._settings.keys}
        others = [each for each in self._fields if each.lower() not in keys]
        if self._format.spec.is_changelog and keys and others:
            # An update would be in two folders.
            raise UserError(
                f"a changelog with a PRIMARY KEY cannot be partitioned by '{others[0]}', which is"
                " not part of the key",
                hint="Name columns of the PRIMARY KEY in 'partitioning.fields'.",
            )
        if self._policy and not self._format.is_line_based and self._format.batches is None:
            raise UserError(
                f"files of format '{self._format.name}' cannot be rolled over several epochs",
                hint="Remove the options 'rolling_policy.*', or choose another format.",
            )
        _ = self._store

    def _require_columns(self, known: Sequence[str]) -> None:
        for each in missing_columns(self._fields, known):
            raise UserError(
                f"'partitioning.fields' names the column '{each}', which does not exist",
                hint=did_you_mean(each, known),
            )

    def _prepared(self, rows: DataFrame) -> DataFrame:
        if self._layout.folder is None:
            return rows
        self._require_columns(rows.columns)
        folder = F.expr(folder_sql(self._options.time_pattern, self._fields))
        return rows.withColumn(FOLDER, folder).drop(EVENT_TIME)

    def stage(
        self, rows: DataFrame, job: JobIdentity, epoch: Epoch, generation: Generation
    ) -> StagedOutput:
        staged = super().stage(rows, job, epoch, generation)
        details: dict[str, JsonValue] = {_SUFFIX: self._suffix}
        files = (each.model_copy(update={"details": details}) for each in staged.files)
        return staged.model_copy(update={"files": tuple(files)})

    # ---------------------------------------------------------------- commit

    def commit(
        self,
        spark: SparkSession,
        job: JobIdentity,
        epoch: Epoch,
        staged: StagedOutput,
        covered: CoveredInput,
    ) -> None:
        end = self._current(job)
        fixed = self._log.fixed(job, epoch) if epoch <= end.newest else None
        rolled, merged, is_ours = Rolled(), [], False
        if fixed is None:
            added = self._parts(epoch, staged)
            rolled = self._rolled(end, added, staged.planned_at)
            if not added and not rolled.files:
                return
            if end.held and not end.is_ours:
                end = self._end = self._ends.closed_to_flushes(job, end)
                rolled = self._rolled(end, added, staged.planned_at)
            prefix = self._log.staged_prefix(job, epoch, 0)
            merged = self._merger.merge(spark, self._store, rolled.files, prefix)
            record = commit_record(epoch, rolled, merged, staged.planned_at)
            record = self._names.with_names(record, job, epoch, rolled.files)
            fixed, is_ours = self._fix(job, epoch, record, covered)
        require_same_input(self._url, epoch, self._log.covered(fixed), covered)
        found = self._published.parsed(fixed)
        names = self._names.recorded(job, epoch, found)
        copied = self._published.publish(dict(zip(found.files, names, strict=True)))
        parts = {part.path for file in rolled.files for part in file}
        if is_ours:
            self._copied = (*copied, *(parts - {*found.files}))
        else:
            used = {*found.files, *(each.path for each in found.held)}
            staged_paths = {each.path for each in staged.files}
            self._copied = copied
            self._store.delete((staged_paths | ({*merged} - parts)) - used)
        self._end = end.committed(epoch, found, is_ours=is_ours)

    def flush(
        self,
        spark: SparkSession,
        job: JobIdentity,
        epoch: Epoch,
        permit: Callable[[], None],
        now: datetime | None = None,
    ) -> None:
        self._flush(spark, job, epoch, permit, now)
        if now is None and self._copied:
            # Perhaps no commit follows that would delete them.
            self._delete_copied()

    def _flush(
        self,
        spark: SparkSession,
        job: JobIdentity,
        epoch: Epoch,
        permit: Callable[[], None],
        now: datetime | None,
    ) -> None:
        if self._policy is None and self._end is None and (now or self._is_untouched()):
            return
        end = self._current(job)
        if not end.held or (now is not None and not self._is_due(end, now)):
            return
        rolled = self._rolled(end, (), 0, everything=True)
        # Under the number of the next epoch: a sweep removes what is staged for earlier ones.
        prefix = self._log.staged_prefix(job, epoch, 0)
        merged = self._merger.merge(spark, self._store, rolled.files, prefix)
        names = self._names.flushed(job, end.newest, end.after, rolled.files)
        record = flush_record(rolled, merged, names)
        permit()
        _, is_ours = self._log.fix_flush(job, end.newest, end.after, record.content())
        parts = {part.path for file in rolled.files for part in file}
        if not is_ours:
            # Another process has flushed, or has committed a later epoch.
            self._end = None
            self._store.delete({*merged} - parts)
            return
        copied = self._published.publish(dict(zip(merged, names, strict=True)))
        self._copied = (*self._copied, *copied, *(parts - {*merged}))
        self._end = end.flushed(record)

    def _is_due(self, end: LogEnd, now: datetime) -> bool:
        policy, micros = self._policy, round(now.timestamp() * 1_000_000)
        return policy is not None and any(policy.is_old(e.planned_at, micros) for e in end.held)

    def _rolled(
        self, end: LogEnd, added: tuple[Part, ...], now: int, *, everything: bool = False
    ) -> Rolled:
        return roll(self._policy, end.held, added, self._suffix, now, everything=everything)

    def _parts(self, epoch: Epoch, staged: StagedOutput) -> tuple[Part, ...]:
        return tuple(
            Part(
                path=each.path,
                rows=each.rows,
                bytes=each.bytes,
                folder=each.folder,
                suffix=str(each.details.get(_SUFFIX, self._suffix)),
                epoch=epoch,
                planned_at=staged.planned_at,
            )
            for each in staged.files
        )

    def _fix(
        self, job: JobIdentity, epoch: Epoch, record: Record, covered: CoveredInput
    ) -> tuple[dict[str, JsonValue], bool]:
        """Fix the record of an epoch, and delete at the same time what was copied before."""
        outcomes = in_parallel(
            [
                lambda: self._log.fix_first(job, epoch, record.content(), covered),
                self._delete_copied,
            ]
        )
        assert outcomes[0] is not None
        return outcomes[0]

    def _delete_copied(self) -> None:
        copied, self._copied = self._copied, ()
        self._store.delete(copied)

    def sweep(self, job: JobIdentity, epoch: Epoch) -> None:
        self._delete_copied()
        # Another thread may be committing, by this object or that of another INSERT. This one
        # advances its end after its files are visible; an end that was read names those that are
        # not visible yet.
        end = self._end or self._ends.read(job)

        def is_visible(past: Epoch, content: dict[str, JsonValue], number: int) -> bool:
            names = self._names.recorded(job, past, self._published.parsed(content))
            return self._store.size(names[number]) is not None

        held = {each.path for each in end.held}

        def is_held(path: str) -> bool:
            final = end.moves.get(path)
            return path in held or (final is not None and self._store.size(final) is None)

        self._log.sweep(job, epoch, is_visible, is_held)

    def forget(self, job: JobIdentity, before: Epoch) -> None:
        since = oldest((self._end or self._ends.read(job)).held)
        super().forget(job, before if since is None else min(before, since))

    def retract(self, job: JobIdentity, after: Epoch, up_to: Epoch) -> None:
        if self._is_untouched() or self._log.is_retracted(job, after, up_to):
            return
        self._end = None
        Retraction(
            self._store, self._log, self._ends, self._published, self._merger_of, self._names
        ).run(job, after, up_to)
