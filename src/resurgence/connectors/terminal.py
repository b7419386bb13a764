"""`stdout` and `blackhole`: sinks to inspect a stream, and to measure it.

`stdout` is at least once: what was printed cannot be retracted, so a crash between printing an
epoch and recording its commit prints it again. With a limit it is at most once: it never prints
more rows than the limit. `blackhole` computes every row and stores none.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from resurgence.connectors.connector import Connector, FormatChoice, SinkRole
from resurgence.connectors.contract import CoveredInput, SinkMemory, StagedFile, StagedOutput
from resurgence.connectors.formats.contract import Format, WriteSettings
from resurgence.connectors.formats.json.lines import JSON
from resurgence.connectors.staging import FileLayout, rehearse_files, stage_files
from resurgence.errors import ObjectMissing
from resurgence.graph.connector_spec import Guarantee
from resurgence.graph.table_options import TableOptions
from resurgence.ids import Epoch, Generation, JobIdentity
from resurgence.storage.object_store import ObjectStore, shared_store
from resurgence.storage.parallel import in_parallel

_LINE = re.compile(rb"[^\n]*\n")
"""A line, as it was staged. A record may contain any other line break."""


class StdoutSink:
    """JSON lines on standard output, staged in the job's own store."""

    retracts = False

    def __init__(
        self,
        settings: WriteSettings[Any],
        file_format: Format,
        state_url: str,
        folder: str,
        *,
        is_limited: bool = False,
    ) -> None:
        self._is_limited = is_limited
        self._format = file_format
        self._settings = settings
        self._url = state_url
        self._folder = folder

    def check(self) -> None:
        """Nothing to check: standard output is always available."""

    def stage(
        self, rows: DataFrame, job: JobIdentity, epoch: Epoch, generation: Generation
    ) -> StagedOutput:
        prefix = f"{self._folder}/{epoch:010}-{generation}"
        return stage_files(rows, FileLayout(self._format, self._settings), self._url, prefix)

    def rehearsed(self, rows: DataFrame) -> DataFrame:
        return rehearse_files(rows, FileLayout(self._format, self._settings))

    def commit(
        self,
        spark: SparkSession,
        job: JobIdentity,
        epoch: Epoch,
        staged: StagedOutput,
        covered: CoveredInput,
    ) -> None:
        store = shared_store(self._url)
        reads = [functools.partial(_read_lines, store, each) for each in staged.files]
        pieces = in_parallel(reads)
        if self._is_limited:
            self.discard(staged)
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.flush()
        if not self._is_limited:
            self.discard(staged)

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
        """Do nothing: a commit holds nothing open."""

    def recall(self, job: JobIdentity, epochs: Collection[Epoch]) -> SinkMemory:
        """Return an empty memory: what was printed is not recorded."""
        return SinkMemory()

    def discard(self, staged: StagedOutput) -> None:
        shared_store(self._url).delete(each.path for each in staged.files)

    def sweep(self, job: JobIdentity, epoch: Epoch) -> None:
        store = shared_store(self._url)
        listed = [each.path for each in store.list(self._folder)]
        store.delete(path for path in listed if int(path.rsplit("/", 1)[1][:10]) <= epoch)

    def forget(self, job: JobIdentity, before: Epoch) -> None:
        """Do nothing: nothing was recorded."""

    def retract(self, job: JobIdentity, after: Epoch, up_to: Epoch) -> None:
        """Do nothing: what was printed cannot be retracted."""


def _read_lines(store: ObjectStore, file: StagedFile) -> bytes:
    """Return the lines of a staged file; none if it was printed and deleted before."""
    try:
        return b"".join(_LINE.findall(store.read(file.path))[: file.rows])
    except ObjectMissing:
        return b""


class BlackholeSink:
    """A sink that computes every row and stores none."""

    retracts = True

    def check(self) -> None:
        """Nothing to check."""

    def stage(
        self, rows: DataFrame, job: JobIdentity, epoch: Epoch, generation: Generation
    ) -> StagedOutput:
        counted = Observation()
        rows.observe(counted, F.count(F.lit(1)).alias("rows")).write.format("noop").mode(
            "overwrite"
        ).save()
        return StagedOutput(rows=int(counted.get["rows"]))

    def rehearsed(self, rows: DataFrame) -> DataFrame:
        return rows

    def commit(
        self,
        spark: SparkSession,
        job: JobIdentity,
        epoch: Epoch,
        staged: StagedOutput,
        covered: CoveredInput,
    ) -> None:
        """Do nothing: nothing was stored."""

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
        """Do nothing: a commit holds nothing open."""

    def recall(self, job: JobIdentity, epochs: Collection[Epoch]) -> SinkMemory:
        """Return an empty memory: nothing was recorded."""
        return SinkMemory()

    def discard(self, staged: StagedOutput) -> None:
        """Do nothing: nothing was stored."""

    def sweep(self, job: JobIdentity, epoch: Epoch) -> None:
        """Do nothing: nothing was stored."""

    def forget(self, job: JobIdentity, before: Epoch) -> None:
        """Do nothing: nothing was recorded."""

    def retract(self, job: JobIdentity, after: Epoch, up_to: Epoch) -> None:
        """Do nothing: nothing was stored."""


_LINES = FormatChoice(JSON, lambda each: each.writes_lines)

STDOUT = Connector(
    "stdout",
    sink=SinkRole(
        make=lambda options, table: StdoutSink(
            table.write_settings(),
            table.format,
            table.state_url,
            table.state_folder,
            is_limited=table.is_limited,
        ),
        options=TableOptions,
        formats=_LINES,
        guarantee=Guarantee.AT_LEAST_ONCE,
    ),
)
BLACKHOLE = Connector(
    "blackhole",
    sink=SinkRole(
        make=lambda options, table: BlackholeSink(),
        options=TableOptions,
        formats=_LINES,
        guarantee=Guarantee.EXACTLY_ONCE,
    ),
)
