"""The input of thinned epochs.

Retention by time removes checkpoints between older ones that it retains. To restore one of the
older ones, the epochs after it must be replayed over the input that they read. Therefore, before
their records are deleted, that input is merged into objects of many epochs each: a day of one epoch
per second is 87 objects, and one listing request.
"""

from __future__ import annotations

from collections.abc import Mapping

from resurgence.ids import Epoch, JobIdentity
from resurgence.state.paths import JobPaths
from resurgence.state.protocol.epoch_runs import EpochRuns
from resurgence.state.records import UNUSABLE, ThinnedEpoch, ThinnedEpochs, decode
from resurgence.storage.object_store import ObjectStore


class InputHistory:
    """The inputs of a job's thinned epochs."""

    def __init__(self, store: ObjectStore, paths: JobPaths) -> None:
        self._store = store
        self._paths = paths

    def after(self, epoch: Epoch, job: JobIdentity) -> dict[Epoch, ThinnedEpoch]:
        """Return the thinned epochs after one. Unreadable ones are omitted; the caller detects the
        gap.
        """
        return self._runs(job).between(epoch)

    def add(self, job: JobIdentity, epochs: Mapping[Epoch, ThinnedEpoch]) -> None:
        """Store the input of epochs, so that their own records can be deleted."""
        self._runs(job).add(epochs)

    def prune(self, oldest: Epoch) -> bool:
        """Delete objects that contain only epochs up to the oldest retained checkpoint. Return
        whether any object is left.
        """
        return self._runs(JobIdentity("")).prune(oldest)

    def _runs(self, job: JobIdentity) -> EpochRuns[ThinnedEpoch]:
        def read(path: str, data: bytes) -> dict[Epoch, ThinnedEpoch]:
            try:
                record = decode(ThinnedEpochs, data, path)
            except UNUSABLE:
                return {}
            return dict(record.epochs) if record.job == job else {}

        return EpochRuns(
            self._store,
            self._paths.inputs,
            lambda epochs: ThinnedEpochs(job=job, epochs=epochs).encode(),
            read,
        )
