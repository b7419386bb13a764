"""The load plan: everything that a new generation needs to resume from a checkpoint."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from resurgence.ids import NO_EPOCH, Epoch, Generation, JobIdentity, OperatorId
from resurgence.state.key_groups import FileSlice, deal
from resurgence.state.protocol.decisions import EpochRange, Fallback, RecordedEpoch, epoch_after
from resurgence.state.records import (
    OFFSETS,
    Manifest,
    Offset,
    OperatorCheckpointMetadata,
    TableKind,
)


class OperatorLoad(BaseModel):
    """The state that one operator loads: its metadata, and the files of each subtask."""

    model_config = ConfigDict(frozen=True)

    metadata: OperatorCheckpointMetadata
    subtasks: dict[str, tuple[tuple[FileSlice, ...], ...]]
    """Per table, one entry per subtask of the new parallelism."""


class LoadPlan(BaseModel):
    """The epoch to resume from, and its state. `epoch` 0: there is no checkpoint, start empty."""

    model_config = ConfigDict(frozen=True)

    job: JobIdentity
    generation: Generation
    parallelism: int
    epoch: Epoch = NO_EPOCH
    operators: dict[OperatorId, OperatorLoad] = {}
    manifest: Manifest | None = None
    commit_pending: bool = False
    """The epoch is sealed, but not recorded as committed: commit its sinks before continuing."""
    recorded: dict[Epoch, RecordedEpoch] = {}
    """Later epochs with recorded input: they are replayed over the same input."""
    fallbacks: tuple[Fallback, ...] = ()
    """Newer checkpoints that are unusable, with the reasons."""
    dead: tuple[EpochRange, ...] = ()
    """The epochs that were rolled back: sinks must retract what they committed for them."""

    replays_due: bool = False
    """The checkpoint has finished, but dead letters are to be read again."""

    @property
    def next_epoch(self) -> Epoch:
        """The epoch to run first."""
        return self.after(self.epoch)

    def after(self, epoch: Epoch) -> Epoch:
        """Return the epoch that follows another. Numbers of dead epochs are not reused."""
        return epoch_after(epoch, self.dead)

    def replay_of(self, epoch: Epoch) -> EpochRange | None:
        """Return the first and the last epoch that are replayed if this is one of them."""
        return (min(self.recorded), max(self.recorded)) if epoch in self.recorded else None

    @property
    def finished(self) -> bool:
        """Whether the restored checkpoint is the end of bounded input."""
        return self.manifest is not None and self.manifest.finished

    @property
    def input_ends(self) -> dict[OperatorId, Offset]:
        """The offset at which each source ended whose input is exhausted."""
        return {
            operator: load.metadata.tables[OFFSETS].values
            for operator, load in self.operators.items()
            if load.metadata.input is not None and load.metadata.input.final
        }


def operator_load(metadata: OperatorCheckpointMetadata, parallelism: int) -> OperatorLoad:
    """Assign an operator's files to the subtasks of the new parallelism."""
    return OperatorLoad(
        metadata=metadata,
        subtasks={
            name: deal(table.files, parallelism)
            for name, table in metadata.tables.items()
            if table.kind is not TableKind.GLOBAL
        },
    )
