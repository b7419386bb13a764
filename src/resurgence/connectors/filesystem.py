"""The `filesystem` sink: a folder of Parquet or JSON files, on a disk or in an object store.
Exactly once.

Staged objects are in the hidden folder `.resurgence`. Commit moves each to its final name, which
contains the job and the epoch. A file appears whole or not at all. In an object store a move is a
copy, and the staged objects of an epoch are deleted while the next one is committed, so that a
commit is two round trips: the record, and all copies at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from resurgence.connectors.connector import Connector, FormatChoice, LookupRole, SinkRole
from resurgence.connectors.contract import (
    CoveredInput,
    StagedOutput,
    require_same_input,
)
from resurgence.connectors.file_sink import FileSink
from resurgence.connectors.formats.contract import Format, WriteSettings
from resurgence.connectors.formats.options import LineSinkOptions
from resurgence.connectors.formats.parquet_files import PARQUET
from resurgence.connectors.lookups.files import FilesystemLookup, FilesystemLookupOptions
from resurgence.errors import ObjectMissing, SinkError
from resurgence.graph.connector_spec import Guarantee
from resurgence.graph.table_options import option
from resurgence.ids import Epoch, JobIdentity
from resurgence.storage.object_store import storage_url
from resurgence.storage.parallel import in_parallel


class FilesystemSinkOptions(LineSinkOptions):
    """The options of a `filesystem` sink."""

    path: str = option("a folder or URL")


class FilesystemSink(FileSink):
    """A folder of files."""

    def __init__(
        self,
        options: FilesystemSinkOptions,
        keys: Sequence[str] = (),
        file_format: Format = PARQUET,
    ) -> None:
        settings = WriteSettings(tuple(keys), options.timestamps)
        super().__init__(storage_url(options.path), ".resurgence", file_format, settings)
        self._copied: tuple[str, ...] = ()
        """Staged objects that were copied to their final names, and are to be deleted. Those that
        are lost in a crash or between threads are found by the next sweep.
        """

    def check(self) -> None:
        """Open the store, which creates the folder."""
        _ = self._store

    def commit(
        self, job: JobIdentity, epoch: Epoch, staged: StagedOutput, covered: CoveredInput
    ) -> None:
        if not staged.files:
            return
        files: list[JsonValue] = [each.path for each in staged.files]
        content, _ = in_parallel(
            [
                lambda: self._log.fix(job, epoch, {"files": files}, covered),
                self._delete_copied,
            ]
        )
        assert content is not None
        require_same_input(self._url, epoch, self._log.covered(content), covered)
        fixed = content["files"]
        if not isinstance(fixed, list):
            raise SinkError(
                f"the commit record of epoch {epoch} in {self._url}/.resurgence is damaged"
            )
        self._copied = self._publish(
            {str(path): self._final(job, epoch, number) for number, path in enumerate(fixed)}
        )
        self.discard(
            StagedOutput(files=tuple(each for each in staged.files if each.path not in fixed))
        )

    def sweep(self, job: JobIdentity, epoch: Epoch) -> None:
        self._delete_copied()
        self._log.sweep(
            job,
            epoch,
            lambda past, number: self._store.size(self._final(job, past, number)) is not None,
        )

    def retract(self, job: JobIdentity, after: Epoch, up_to: Epoch) -> None:
        if self._is_untouched() or self._log.is_retracted(job, after, up_to):
            return
        # Close the epochs before their files are removed: a zombie publishes nothing in between.
        self._log.close(job, after, up_to, {})
        dead = {f"{job}-{epoch:010}" for epoch in range(after + 1, up_to + 1)}
        visible = [each.path for each in self._store.list("")]
        self._store.delete(path for path in visible if path.rpartition("-")[0] in dead)
        self._log.mark_retracted(job, after, up_to, {})

    def _final(self, job: JobIdentity, epoch: Epoch, number: int) -> str:
        return f"{job}-{epoch:010}-{number:05}.{self._format.suffix}"

    def _publish(self, moves: Mapping[str, str]) -> tuple[str, ...]:
        """Move staged objects to their final names, unless another process has done so. Return the
        copied ones, which are to be deleted.
        """
        try:
            return self._store.move(moves)
        except ObjectMissing:
            return tuple(path for each in moves.items() for path in self._publish_one(*each))

    def _publish_one(self, staged: str, final: str) -> tuple[str, ...]:
        try:
            return self._store.move({staged: final})
        except ObjectMissing as error:
            if self._store.size(final) is None:
                raise SinkError(
                    f"staged output {self._url}/{staged} of {final} is missing",
                    hint="Roll the job back to an earlier checkpoint. Staged output was removed by"
                    " hand.",
                ) from error
            return ()

    def _delete_copied(self) -> None:
        copied, self._copied = self._copied, ()
        self._store.delete(copied)


FILESYSTEM = Connector(
    "filesystem",
    sink=SinkRole(
        make=lambda options, table: FilesystemSink(options, table.keys, table.format),
        options=FilesystemSinkOptions,
        formats=FormatChoice(PARQUET, lambda each: each.writes_files),
        guarantee=Guarantee.EXACTLY_ONCE,
    ),
    lookup=LookupRole(
        make=lambda options, table: FilesystemLookup(table.table, options, table.columns),
        options=FilesystemLookupOptions,
        formats=FormatChoice(PARQUET, lambda each: False),
    ),
)
