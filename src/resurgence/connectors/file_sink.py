"""What sinks of files have in common: they stage files under a URL and keep a commit log there.

A sink adds how an epoch's staged files are committed and retracted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from resurgence.connectors.commit_log import CommitLog
from resurgence.connectors.contract import SinkMemory, StagedOutput
from resurgence.connectors.formats.contract import Format, WriteSettings
from resurgence.connectors.staging import FileLayout, rehearse_files, stage_files
from resurgence.ids import Epoch, Generation, JobIdentity
from resurgence.storage.object_store import ObjectStore, is_missing_folder, shared_store


class FileSink:
    """The part of a sink's contract that does not depend on how its files are committed."""

    retracts = True

    def __init__(
        self, url: str, log_folder: str, file_format: Format, settings: WriteSettings[Any]
    ) -> None:
        self._url = url
        self._log_folder = log_folder
        self._format = file_format
        self._settings = settings

    @property
    def _store(self) -> ObjectStore:
        return shared_store(self._url)

    @functools.cached_property
    def _log(self) -> CommitLog:
        return CommitLog(self._store, self._log_folder)

    @property
    def _layout(self) -> FileLayout:
        """How rows become files."""
        return FileLayout(self._format, self._settings)

    def _prepared(self, rows: DataFrame) -> DataFrame:
        """Return rows with the columns that the layout requires."""
        return rows

    def _is_untouched(self) -> bool:
        """Return whether nothing was ever staged here. Opening the store would create the
        folder.
        """
        return is_missing_folder(self._url)

    def stage(
        self, rows: DataFrame, job: JobIdentity, epoch: Epoch, generation: Generation
    ) -> StagedOutput:
        prefix = self._log.staged_prefix(job, epoch, generation)
        return stage_files(self._prepared(rows), self._layout, self._url, prefix)

    def rehearsed(self, rows: DataFrame) -> DataFrame:
        return rehearse_files(self._prepared(rows), self._layout)

    def flush(
        self,
        spark: SparkSession,
        job: JobIdentity,
        epoch: Epoch,
        permit: Callable[[], None],
        now: datetime | None = None,
    ) -> None:
        """Do nothing: nothing is held back."""

    def take_over(self, job: JobIdentity) -> None:
        """Do nothing: a commit of files holds nothing open."""

    def recall(self, job: JobIdentity, epochs: Collection[Epoch]) -> SinkMemory:
        return SinkMemory() if self._is_untouched() else self._log.recall(job, epochs)

    def discard(self, staged: StagedOutput) -> None:
        self._store.delete(each.path for each in staged.files)

    def sweep(self, job: JobIdentity, epoch: Epoch) -> None:
        self._log.sweep(job, epoch)

    def forget(self, job: JobIdentity, before: Epoch) -> None:
        self._log.forget(job, before)
