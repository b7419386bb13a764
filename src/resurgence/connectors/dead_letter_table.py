"""The table of a job's dead letters: a folder of Parquet files beside its checkpoints.

It is written as a `filesystem` sink is: staged in an epoch, named by its checkpoint, committed once,
retracted by a rollback. Retention of checkpoints does not touch it.
"""

from __future__ import annotations

from resurgence.connectors.filesystem import FilesystemSink, FilesystemSinkOptions
from resurgence.connectors.formats.contract import WriteSettings
from resurgence.graph.table_options import TableOptions
from resurgence.ids import NO_EPOCH, Epoch, JobIdentity
from resurgence.state.paths import JobPaths


class DeadLetterTable(FilesystemSink):
    """The dead letters of one job. Nothing is created before the first one."""

    def __init__(self, state_url: str, paths: JobPaths) -> None:
        options = FilesystemSinkOptions(path=f"{state_url}/{paths.dead_letters}")
        super().__init__(options, WriteSettings(TableOptions()))

    def retract(self, job: JobIdentity, after: Epoch, up_to: Epoch) -> None:
        """Retract the dead letters of epochs that were rolled back. Most jobs never had any."""
        if self.recall(job, ()).newest > NO_EPOCH:
            super().retract(job, after, up_to)

    def sweep(self, job: JobIdentity, epoch: Epoch) -> None:
        if not self._is_untouched():
            super().sweep(job, epoch)

    def forget(self, job: JobIdentity, before: Epoch) -> None:
        if not self._is_untouched():
            super().forget(job, before)
