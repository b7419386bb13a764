"""The records of one checkpoint: its manifest and the metadata of every operator.

Restore, retention, the commands that show checkpoints and the deep check all read and judge a
checkpoint here, so that they never differ on whether it is intact. Reading returns the errors of
unreadable records beside the readable ones; `judge_checkpoint` is pure. State files are compared
with a listing. The code that opens them (the engine, `inspection.verification`) verifies their
content.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from resurgence.errors import DamagedState, NewerFormat, ObjectMissing, ResurgenceError
from resurgence.ids import Epoch, JobIdentity, OperatorId
from resurgence.state.records import (
    UNUSABLE,
    CondemnedRecord,
    Manifest,
    ObjectDigest,
    OperatorCheckpointMetadata,
    StateFile,
    TableCheckpoint,
    decode,
    object_digest,
)
from resurgence.storage.object_store import ObjectStore


@dataclass(frozen=True)
class CheckpointRecords:
    """The readable records of a checkpoint, and the errors of the others."""

    manifest: Manifest | None = None
    operators: Mapping[OperatorId, OperatorCheckpointMetadata] = field(default_factory=dict)
    unusable: tuple[ResurgenceError, ...] = ()

    def state_files(self) -> Iterator[tuple[StateFile, TableCheckpoint]]:
        """Yield every state file that the checkpoint names, with its table."""
        for metadata in self.operators.values():
            for table in metadata.tables.values():
                for file in table.files:
                    yield file, table


@dataclass(frozen=True)
class Judgement:
    """Whether a checkpoint can be restored."""

    faults: tuple[str, ...] = ()
    """Differences from what was sealed."""
    newer: tuple[str, ...] = ()
    """Intact records of a newer format, which this release cannot judge."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it cannot be restored; empty if it is intact."""
        return (*self.faults, *self.newer)


def read_checkpoint(store: ObjectStore, manifest_path: str) -> CheckpointRecords:
    """Read a manifest and all metadata that it names."""
    try:
        manifest = decode(Manifest, store.read(manifest_path), manifest_path)
    except UNUSABLE as error:
        return CheckpointRecords(unusable=(error,))
    operators: dict[OperatorId, OperatorCheckpointMetadata] = {}
    unusable: list[ResurgenceError] = []
    for operator, expected in manifest.operators.items():
        try:
            operators[operator] = _metadata(store, operator, expected)
        except UNUSABLE as error:
            unusable.append(error)
    return CheckpointRecords(manifest, operators, tuple(unusable))


def _metadata(
    store: ObjectStore, operator: OperatorId, expected: ObjectDigest
) -> OperatorCheckpointMetadata:
    try:
        data = store.read(expected.path)
    except ObjectMissing as error:
        raise ObjectMissing(f"metadata of {operator} is missing ({expected.path})") from error
    if object_digest(expected.path, data) != expected:
        raise DamagedState(
            f"metadata of {operator} does not match its digest ({expected.path})",
            path=expected.path,
        )
    return decode(OperatorCheckpointMetadata, data, expected.path)


def judge_checkpoint(
    records: CheckpointRecords,
    job: JobIdentity,
    epoch: Epoch,
    stored_sizes: Mapping[str, int],
    damaged: frozenset[str] = frozenset(),
) -> Judgement:
    """Decide whether records form an intact checkpoint of this epoch of the job, given a listing of
    the state files. `damaged` are state files that a worker could not read.
    """
    newer = [each for each in records.unusable if isinstance(each, NewerFormat) and each.intact]
    faults = [each.message for each in records.unusable if each not in newer]
    if (manifest := records.manifest) is not None:
        if manifest.job != job:
            faults.append(f"manifest belongs to another job ({manifest.job})")
        if manifest.epoch != epoch:
            faults.append(f"manifest belongs to epoch {manifest.epoch}")
        for metadata in records.operators.values():
            faults.extend(_metadata_faults(metadata, manifest, stored_sizes, damaged))
    return Judgement(tuple(faults), tuple(each.message for each in newer))


def _metadata_faults(
    metadata: OperatorCheckpointMetadata,
    manifest: Manifest,
    stored_sizes: Mapping[str, int],
    damaged: frozenset[str],
) -> Iterator[str]:
    """Yield the faults of an operator's metadata and of the files that it names."""
    if (metadata.job, metadata.epoch) != (manifest.job, manifest.epoch):
        owner = f"job {metadata.job}, epoch {metadata.epoch}"
        yield f"metadata of {metadata.operator} belongs to {owner}"
    for name, table in metadata.tables.items():
        for file in table.files:
            size = stored_sizes.get(file.path)
            where = f"state file {file.path} of {metadata.operator}.{name}"
            if size is None:
                yield f"{where} is missing"
            elif size != file.bytes:
                yield f"{where} has {size} bytes instead of {file.bytes}"
            elif file.path in damaged:
                yield f"{where} failed its checksum"


def condemned_reasons(store: ObjectStore, path: str) -> tuple[str, ...]:
    """Return the reasons why a manifest was condemned."""
    try:
        return decode(CondemnedRecord, store.read(path), path).reasons
    except UNUSABLE as error:
        return (error.message,)
