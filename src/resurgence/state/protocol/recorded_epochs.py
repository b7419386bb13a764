"""The recorded input of epochs after a checkpoint, over which they are replayed.

The output of a sealed epoch may be visible, so its input must be found. It is recorded in the
metadata of its sources, in its manifest and in `committed.json`, and each of them is sufficient;
for a thinned epoch, it is in the input history.
"""

from __future__ import annotations

from collections.abc import Mapping

from resurgence.errors import NoValidCheckpoint
from resurgence.ids import NO_EPOCH, Epoch, JobIdentity, OperatorId
from resurgence.state.paths import JobPaths
from resurgence.state.protocol.decisions import (
    EpochObjects,
    EpochRange,
    RecordedEpoch,
    epoch_after,
    is_dead,
)
from resurgence.state.protocol.input_history import InputHistory
from resurgence.state.records import (
    UNUSABLE,
    CommittedRecord,
    InputRange,
    Manifest,
    OperatorCheckpointMetadata,
    decode,
)
from resurgence.storage.object_store import ObjectStore


class RecordedEpochs:
    """Finds the recorded input of epochs."""

    def __init__(self, store: ObjectStore, paths: JobPaths) -> None:
        self._store = store
        self._paths = paths
        self.history = InputHistory(store, paths)

    def after(
        self,
        epoch: Epoch,
        alive: Mapping[Epoch, EpochObjects],
        dead: tuple[EpochRange, ...],
        job: JobIdentity,
    ) -> dict[Epoch, RecordedEpoch]:
        """Return the recorded epochs after one. Raise NoValidCheckpoint if an epoch was sealed and
        its input is unknown.
        """
        later = {each: objects for each, objects in alive.items() if each > epoch}
        thinned = {
            each: RecordedEpoch(
                inputs=known.inputs,
                sealed=True,
                committed=True,
                attempt=max(known.attempt, later[each].next_attempt if each in later else 0),
            )
            for each, known in self.history.after(epoch, job).items()
            if not is_dead(each, dead)
        }
        # An interrupted replay may have left metadata of its own: the history takes precedence.
        own = {
            each: found
            for each, objects in later.items()
            if each not in thinned and (found := self.of(objects, job)) is not None
        }
        recorded = dict(sorted((thinned | own).items()))
        sealed = (each for each, known in recorded.items() if known.sealed)
        newest = max(sealed, default=NO_EPOCH)
        following = epoch_after(epoch, dead)
        while following < newest:
            if following not in recorded:
                raise self._not_known(following)
            following = epoch_after(following, dead)
        return recorded

    def of(self, objects: EpochObjects, job: JobIdentity) -> RecordedEpoch | None:
        """Return the input of an epoch, from any readable record of its own."""
        inputs: dict[OperatorId, InputRange] = {}
        rows_in: dict[OperatorId, int] = {}
        is_complete = False
        for path in (
            *([objects.committed] if objects.committed else []),
            *objects.manifests.values(),
        ):
            kind: type[CommittedRecord] | type[Manifest] = (
                CommittedRecord if path == objects.committed else Manifest
            )
            try:
                record = decode(kind, self._store.read(path), path)
            except UNUSABLE:
                continue
            if (record.job, record.epoch) == (job, objects.epoch):
                inputs, is_complete = dict(record.inputs), True
                rows_in = dict(record.counts.rows_in)
                break
        if not is_complete:
            inputs = self._inputs_of_sources(objects, job)
        was_sealed = bool(objects.manifests or objects.condemned or objects.committed)
        if not inputs and was_sealed:
            raise self._not_known(objects.epoch)
        if not inputs:
            return None
        return RecordedEpoch(
            inputs=inputs,
            rows_in=rows_in,
            sealed=was_sealed,
            committed=objects.committed is not None,
            attempt=objects.next_attempt,
        )

    def _not_known(self, epoch: Epoch) -> NoValidCheckpoint:
        return NoValidCheckpoint(
            f"epoch {epoch} must be replayed, but no record of its input is readable",
            hint=f"Restore {self._paths.epoch(epoch)}/ or {self._paths.inputs}/ from a backup.",
        )

    def _inputs_of_sources(
        self, objects: EpochObjects, job: JobIdentity
    ) -> dict[OperatorId, InputRange]:
        """Return the input in the sources' own metadata. Older generations may have started the
        epoch over other input without sealing it, so the newest one is used.
        """
        newest: dict[OperatorId, OperatorCheckpointMetadata] = {}
        for path in objects.operators:
            try:
                metadata = decode(OperatorCheckpointMetadata, self._store.read(path), path)
            except UNUSABLE:
                continue
            if (metadata.job, metadata.epoch) != (job, objects.epoch):
                continue
            known = newest.get(metadata.operator)
            if known is None or known.generation < metadata.generation:
                newest[metadata.operator] = metadata
        return {
            operator: metadata.input
            for operator, metadata in newest.items()
            if metadata.input is not None
        }
