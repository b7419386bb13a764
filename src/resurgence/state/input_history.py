"""The input of epochs whose checkpoints were thinned out.

Retention by time removes checkpoints between older ones that stay. To restore one of the older ones,
the epochs after it must be replayed over the input that they read. So before their records are
deleted, that input is merged into objects of up to `RUN` epochs each: a day of one epoch a second is
87 objects, and one listing request.

Nothing is overwritten. A run of epochs grows by an object that holds all of the one before, which is
then deleted; whoever reads takes all that are there together. An epoch has one input, so they never
contradict each other.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import defaultdict
from collections.abc import Mapping

from resurgence.ids import Epoch, JobIdentity
from resurgence.state.paths import JobPaths, thinned_range
from resurgence.state.records import UNUSABLE, ThinnedEpoch, ThinnedEpochs, decode
from resurgence.storage.object_store import ObjectStore

RUN = 1000
"""Epochs in one object, at most: those with the same quotient."""


class InputHistory:
    """The inputs of a job's thinned epochs."""

    def __init__(self, store: ObjectStore, paths: JobPaths) -> None:
        self._store = store
        self._paths = paths

    def after(self, epoch: Epoch, job: JobIdentity) -> dict[Epoch, ThinnedEpoch]:
        """The thinned epochs after one. What cannot be read is missing: whoever needs it sees the
        gap.
        """
        found: dict[Epoch, ThinnedEpoch] = {}
        for path, (_, last) in self._listed().items():
            if epoch < last:
                found |= self._read(path, job)
        return {each: thinned for each, thinned in sorted(found.items()) if each > epoch}

    def add(self, job: JobIdentity, epochs: Mapping[Epoch, ThinnedEpoch]) -> None:
        """Keep the input of epochs, so that their own records can go."""
        listed = self._listed()
        runs: dict[int, dict[Epoch, ThinnedEpoch]] = defaultdict(dict)
        for epoch, thinned in epochs.items():
            runs[epoch // RUN][epoch] = thinned
        for number, added in runs.items():
            before = {
                path: self._read(path, job)
                for path, (first, _) in listed.items()
                if first // RUN == number
            }
            merged: dict[Epoch, ThinnedEpoch] = {}
            for each in (*before.values(), added):
                merged |= each
            data = ThinnedEpochs(job=job, epochs=dict(sorted(merged.items()))).encode()
            path = self._paths.thinned(
                min(merged), max(merged), hashlib.sha256(data).hexdigest()[:12]
            )
            self._store.create(path, data)
            # One that cannot be read may hold more than is known here: it stays.
            self._store.delete(each for each, held in before.items() if held and each != path)

    def prune(self, oldest: Epoch) -> bool:
        """Delete what only epochs up to the oldest kept checkpoint are in; whether any is left."""
        listed = self._listed()
        gone = [path for path, (_, last) in listed.items() if last <= oldest]
        self._store.delete(gone)
        return len(gone) < len(listed)

    def _listed(self) -> dict[str, tuple[Epoch, Epoch]]:
        found = (each.path for each in self._store.list(self._paths.inputs))
        return {path: span for path in found if (span := thinned_range(path)) is not None}

    def _read(self, path: str, job: JobIdentity) -> dict[Epoch, ThinnedEpoch]:
        with contextlib.suppress(*UNUSABLE):
            record = decode(ThinnedEpochs, self._store.read(path), path)
            if record.job == job:
                return dict(record.epochs)
        return {}
