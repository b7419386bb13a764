"""The load plan: all that a new generation needs to go on from a checkpoint."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from resurgence.ids import NO_EPOCH, Epoch, Generation, JobIdentity, OperatorId
from resurgence.state.key_groups import FileSlice, deal
from resurgence.state.protocol.decisions import EpochRange, Fallback, RecordedEpoch, epoch_after
from resurgence.state.records import Manifest, OperatorCheckpointMetadata, TableKind


class OperatorLoad(BaseModel):
    """What one operator starts from: its metadata, and for each subtask the files that it loads."""

    model_config = ConfigDict(frozen=True)

    metadata: OperatorCheckpointMetadata
    subtasks: dict[str, tuple[tuple[FileSlice, ...], ...]]
    """Per table, one entry per subtask of the new parallelism."""


class LoadPlan(BaseModel):
    """Where to go on, and with what. `epoch` 0: there was no checkpoint, begin from nothing."""

    model_config = ConfigDict(frozen=True)

    job: JobIdentity
    generation: Generation
    parallelism: int
    epoch: Epoch = NO_EPOCH
    operators: dict[OperatorId, OperatorLoad] = {}
    manifest: Manifest | None = None
    commit_pending: bool = False
    """The epoch is sealed, but nothing says that its sinks are done: commit them before going
    on.
    """
    recorded: dict[Epoch, RecordedEpoch] = {}
    """Later epochs of which something is known: they are replayed over the same input."""
    fallbacks: tuple[Fallback, ...] = ()
    """Newer checkpoints that could not be used, and why."""
    dead: tuple[EpochRange, ...] = ()
    """The epochs that were rolled back: what sinks committed for them is to be retracted."""

    @property
    def next_epoch(self) -> Epoch:
        """The epoch to run first."""
        return self.after(self.epoch)

    def after(self, epoch: Epoch) -> Epoch:
        """The epoch that follows on another. Numbers that were rolled back are not used again."""
        return epoch_after(epoch, self.dead)

    @property
    def finished(self) -> bool:
        """The restored checkpoint is the end of bounded input."""
        return self.manifest is not None and self.manifest.finished


def operator_load(metadata: OperatorCheckpointMetadata, parallelism: int) -> OperatorLoad:
    """Deal an operator's files to the subtasks of the new parallelism."""
    return OperatorLoad(
        metadata=metadata,
        subtasks={
            name: deal(table.files, parallelism)
            for name, table in metadata.tables.items()
            if table.kind is not TableKind.GLOBAL
        },
    )
