"""Retention: which checkpoints are retained, and the deletion of everything else.

Retained are the newest `keep` standing checkpoints, and older ones by time: for each rule, the
first checkpoint of every interval within its span. All records before the oldest retained
checkpoint are deleted. Epochs between retained checkpoints are thinned: their state is deleted, but
their input is moved to the input history, because a restore of an older checkpoint replays them.
The sinks' commit records must reach back as far.

First everything is classified, from durable manifests only. Then the input of thinned epochs is
added to the history, then manifests are deleted, then what they name. A crash in between leaves an
epoch both in the history and with records of its own, or debris without a manifest, which a later
look finds. Epochs are thinned in batches, so that one object is written for many of them; until a
batch is full, their checkpoints are left unchanged.

A round that looks lists everything that is stored. A round that does not works from what the last
look found and from the checkpoints that this generation has sealed and the objects that it has
deleted since, so its cost depends neither on the history of the job nor on the size of its state.
That is sufficient, because no other process seals or deletes checkpoints while this generation is
the newest one, and the fence is checked before anything is deleted. What others leave behind (state
files of failed tasks, metadata of a fenced generation) is found by the next look. Rollbacks are
read once: a rollback claims a generation, which fences out this one.

Every state file that a retained checkpoint names is retained. Epochs that were rolled back are
deleted. Files written for an epoch above the newest sealed one belong to an epoch in flight and are
never deleted; nor are those of a compaction in progress, which have the number of the epoch that
was next when it began. A retained checkpoint that is unreadable might name any file up to its
epoch, so these files are retained as long as it is; it must not stop a job that does not need it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from resurgence.clock import Clock, SystemClock
from resurgence.config import KeepRule
from resurgence.errors import NoValidCheckpoint
from resurgence.ids import NO_EPOCH, Epoch, Generation, JobIdentity, OperatorId
from resurgence.state.backend import StateBackend
from resurgence.state.paths import JobPaths, state_file_epoch
from resurgence.state.protocol.checkpoint_records import CheckpointRecords, read_checkpoint
from resurgence.state.protocol.decisions import (
    EpochObjects,
    EpochRange,
    dead_ranges,
    epochs_seen,
    living,
)
from resurgence.state.records import InputRange, Manifest, ThinnedEpoch

_1970 = datetime(1970, 1, 1, tzinfo=UTC)
_BULK = 1000
"""Objects that are deleted between two checks of the fence."""


@dataclass(frozen=True)
class Deletions:
    """The objects to delete: first manifests, then the other objects, in any order."""

    manifests: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    """The other records of the same epochs."""
    files: tuple[str, ...] = ()
    oldest: Epoch = NO_EPOCH
    """The oldest retained checkpoint: no epoch before it can be replayed or rolled back to."""

    @property
    def paths(self) -> frozenset[str]:
        return frozenset((*self.manifests, *self.records, *self.files))


def kept_epochs(
    epochs: Mapping[Epoch, EpochObjects],
    keep: int,
    by_time: Collection[Epoch] = (),
) -> tuple[Epoch, ...]:
    """Return the standing checkpoints to retain, by number and by time, newest first."""
    standing = sorted(
        (epoch for epoch, objects in epochs.items() if objects.standing is not None), reverse=True
    )
    return tuple(
        epoch for number, epoch in enumerate(standing) if number < keep or epoch in by_time
    )


def kept_by_time(
    sealed_at: Mapping[Epoch, datetime], rules: Iterable[KeepRule], now: datetime
) -> frozenset[Epoch]:
    """Return, for each rule, the first checkpoint of every interval that reaches into its span.

    Intervals are aligned to 1970, so that the first checkpoint of one remains the first in every
    later round: it is never thinned in favour of a later one.
    """
    kept: set[Epoch] = set()
    for rule in rules:
        oldest = (now - rule.span - _1970) // rule.every
        first: dict[int, Epoch] = {}
        for epoch in sorted(sealed_at):
            first.setdefault((sealed_at[epoch] - _1970) // rule.every, epoch)
        kept.update(epoch for interval, epoch in first.items() if interval >= oldest)
    return frozenset(kept)


def thinnable(alive: Mapping[Epoch, EpochObjects], kept: tuple[Epoch, ...]) -> tuple[Epoch, ...]:
    """Return the committed epochs between retained checkpoints, which can be thinned."""
    if not kept:
        return ()
    return tuple(
        epoch
        for epoch, objects in alive.items()
        if kept[-1] < epoch < kept[0] and epoch not in kept and objects.committed is not None
    )


def classify(
    epochs: Mapping[Epoch, EpochObjects],
    kept: tuple[Epoch, ...],
    stored_files: Iterable[str],
    named: frozenset[str],
    unreadable: Epoch = NO_EPOCH,
    in_flight: Epoch | None = None,
    gone: Collection[Epoch] = (),
) -> Deletions:
    """Return the objects that can be deleted.

    `named` are the files that the retained checkpoints name, `unreadable` is the newest retained
    checkpoint whose files are unknown, files of `in_flight` and later epochs may not be named yet,
    and `gone` are the epochs that were rolled back or are thinned.
    """
    if not kept:
        return Deletions()
    newest, oldest = kept[0], kept[-1]
    deleted = [epochs[each] for each in sorted(epochs) if each < oldest or each in gone]
    files = [
        (epoch, path)
        for path in stored_files
        if path not in named
        and (epoch := state_file_epoch(path)) is not None
        and unreadable < epoch <= newest
        and (in_flight is None or epoch < in_flight)
    ]
    return Deletions(
        tuple(path for each in deleted for path in each.manifests.values()),
        tuple(path for each in deleted for path in each.other_paths()),
        tuple(path for _, path in sorted(files)),
        oldest,
    )


@dataclass(frozen=True)
class _Known:
    """The facts about a checkpoint that a round needs; they never change."""

    sealed_at: datetime
    files: frozenset[str]
    inputs: Mapping[OperatorId, InputRange] | None = None
    """What the epoch read, if this generation sealed it."""


@dataclass
class _Stored:
    """The objects that are known to be stored."""

    epochs: dict[Epoch, EpochObjects]
    files: set[str]

    def add(self, manifest: Manifest, paths: JobPaths, files: Iterable[str]) -> None:
        """Add a checkpoint that was sealed and committed."""
        objects = self.epochs.setdefault(manifest.epoch, EpochObjects(manifest.epoch))
        written = (each.path for each in manifest.operators.values())
        objects.operators.extend(path for path in written if path not in objects.operators)
        objects.manifests[manifest.attempt] = paths.manifest(manifest.epoch, manifest.attempt)
        objects.committed = paths.committed(manifest.epoch)
        self.files.update(files)

    def remove(self, deletions: Deletions) -> None:
        deleted = deletions.paths
        left = (path for each in self.epochs.values() for path in each.paths())
        self.epochs = epochs_seen(path for path in left if path not in deleted)
        self.files -= deleted


class Retention:
    """Runs retention rounds, and remembers what it has found, read and deleted."""

    batch = 20
    """Minimum number of epochs that are thinned at once."""

    def __init__(
        self,
        backend: StateBackend,
        keep: int,
        generation: Generation,
        keep_for: tuple[KeepRule, ...] = (),
        clock: Clock | None = None,
    ) -> None:
        self._backend = backend
        self._generation = generation
        self._keep = keep
        self._keep_for = keep_for
        self._clock = clock or SystemClock()
        self._stored: _Stored | None = None
        """None: the next round must look."""
        self._dead: tuple[EpochRange, ...] | None = None
        self._job: JobIdentity | None = None
        self._known: dict[str, _Known | None] = {}
        """Checkpoints by the path of their manifest; None if one is unreadable."""
        self._has_history = True
        """False once a listing found no history: it is not listed again."""

    def run(
        self,
        half_way: Callable[[], None] = lambda: None,
        in_flight: Epoch | None = None,
        in_use: frozenset[str] = frozenset(),
        sealed: Iterable[CheckpointRecords] = (),
        *,
        look: bool = True,
    ) -> Deletions:
        """Run one round. `half_way` is called between deleting manifests and deleting what they
        name, if there is anything to delete. Files of the epoch `in_flight` and later ones may not
        be named yet, and files `in_use` are being read; the caller determined both before this
        call. `sealed` are all checkpoints that this generation has sealed and committed since the
        round before. `look`: list what is stored, as the first round and the one after a failure
        always do.
        """
        stored, self._stored = self._stored, None
        if stored is None or look:
            stored, look = self._look(), True
        for each in sealed:
            self._add(stored, each)
        assert self._dead is not None
        alive = living(stored.epochs, self._dead)
        sealed_at = self._sealed_at(alive) if self._keep_for else {}
        by_time = kept_by_time(sealed_at, self._keep_for, self._clock.now())
        kept = kept_epochs(alive, self._keep, by_time)
        waiting = thinnable(alive, kept)
        thinned = self._thin(alive, waiting) if len(waiting) >= self.batch else ()
        remaining = [each for each in (*kept, *waiting) if each not in thinned]
        known = {path: self._read(path) for each in remaining if (path := _manifest(alive[each]))}
        unreadable = max(
            (epoch for epoch in kept if known.get(_manifest(alive[epoch]) or "") is None),
            default=NO_EPOCH,
        )
        self._known = known
        if look:
            # Files are listed after the manifests: a file that appears in between belongs to an
            # epoch in flight.
            stored.files.update(self._backend.file_sizes())
        deletions = classify(
            stored.epochs,
            kept,
            stored.files,
            in_use.union(*(each.files for each in known.values() if each is not None)),
            unreadable,
            in_flight,
            {*(stored.epochs.keys() - alive.keys()), *thinned},
        )
        self._delete(deletions, half_way)
        if look and (self._has_history or self._keep_for):
            self._backend.require_newest(self._generation)
            self._has_history = self._backend.recorded.history.prune(deletions.oldest)
        stored.remove(deletions)
        self._stored = stored
        return deletions

    def _look(self) -> _Stored:
        """List the checkpoints. The caller lists the files, after it has read the manifests."""
        stored = _Stored(self._backend.epochs(), set())
        if self._dead is None:
            self._dead = dead_ranges(self._backend.rollbacks())
        # One that is unreadable may have been restored from a backup.
        self._known = {path: known for path, known in self._known.items() if known is not None}
        return stored

    def _add(self, stored: _Stored, checkpoint: CheckpointRecords) -> None:
        manifest = checkpoint.manifest
        assert manifest is not None
        files = frozenset(file.path for file, _ in checkpoint.state_files())
        path = self._backend.paths.manifest(manifest.epoch, manifest.attempt)
        self._known[path] = _Known(manifest.sealed_at, files, manifest.inputs)
        stored.add(manifest, self._backend.paths, files)

    def _delete(self, deletions: Deletions, half_way: Callable[[], None]) -> None:
        steps = (deletions.manifests, (*deletions.records, *deletions.files))
        checked = 0
        for number, paths in enumerate(steps):
            for start in range(0, len(paths), _BULK):
                batch = paths[start : start + _BULK]
                if checked < len(batch):
                    # A newer generation may have fallen back or rolled back meanwhile, and may need
                    # what seems dead here. Checked again and again, because deleting many objects
                    # can take long.
                    self._backend.require_newest(self._generation)
                    checked = _BULK
                checked -= len(batch)
                self._backend.store.delete(batch)
            if number == 0 and deletions.paths:
                half_way()

    def _thin(
        self, alive: Mapping[Epoch, EpochObjects], epochs: Iterable[Epoch]
    ) -> tuple[Epoch, ...]:
        """Add the input of epochs to the history, and return these epochs. An epoch whose recorded
        input is unreadable is left unchanged.
        """
        if self._job is None:
            self._job, _ = self._backend.identity()
        found: dict[Epoch, ThinnedEpoch] = {}
        for epoch in epochs:
            objects = alive[epoch]
            known = self._known.get(_manifest(objects) or "")
            if known is not None and known.inputs is not None:
                found[epoch] = ThinnedEpoch(inputs=dict(known.inputs), attempt=objects.next_attempt)
                continue
            try:
                recorded = self._backend.recorded.of(objects, self._job)
            except NoValidCheckpoint:
                continue
            if recorded is not None:
                found[epoch] = ThinnedEpoch(inputs=recorded.inputs, attempt=recorded.attempt)
        self._backend.require_newest(self._generation)
        self._backend.recorded.history.add(self._job, found)
        return tuple(found)

    def _sealed_at(self, alive: Mapping[Epoch, EpochObjects]) -> dict[Epoch, datetime]:
        """Return when each standing checkpoint was sealed, except for unreadable ones."""
        return {
            epoch: found.sealed_at
            for epoch, objects in alive.items()
            if (path := _manifest(objects)) and (found := self._read(path)) is not None
        }

    def _read(self, manifest_path: str) -> _Known | None:
        if manifest_path not in self._known:
            records = read_checkpoint(self._backend.store, manifest_path)
            known = None
            if records.manifest is not None and not records.unusable:
                files = frozenset(file.path for file, _ in records.state_files())
                known = _Known(records.manifest.sealed_at, files)
            self._known[manifest_path] = known
        return self._known[manifest_path]


def _manifest(objects: EpochObjects) -> str | None:
    """Return the path of the standing manifest."""
    return None if objects.standing is None else objects.manifests[objects.standing]
