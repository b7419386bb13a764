"""Retention: which checkpoints are retained, and the deletion of everything else.

Retained are the newest `keep` standing checkpoints, and older ones by time: for each rule, the
first checkpoint of every interval within its span. All records before the oldest retained
checkpoint are deleted. Epochs between retained checkpoints are thinned: their state is deleted, but
their input is moved to the input history, because a restore of an older checkpoint replays them.
The sinks' commit records must reach back as far.

First everything is classified, from durable manifests only. Then the input of thinned epochs is
added to the history, then records are deleted, oldest first and each manifest before what it names,
then files. A crash in between leaves an epoch both in the history and with records of its own, or
debris without a manifest; the next round deletes it. Epochs are thinned in batches, so that one
object is written for many of them; until a batch is full, their checkpoints are left unchanged.

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
from resurgence.ids import NO_EPOCH, Epoch, Generation
from resurgence.state.backend import StateBackend
from resurgence.state.paths import state_file_epoch
from resurgence.state.protocol.checkpoint_records import read_checkpoint
from resurgence.state.protocol.decisions import EpochObjects, dead_ranges, living
from resurgence.state.records import ThinnedEpoch

_1970 = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Deletions:
    """The objects to delete, in the order of deletion."""

    epochs: tuple[tuple[str, ...], ...]
    """The records of each epoch."""
    files: tuple[str, ...]
    oldest: Epoch = NO_EPOCH
    """The oldest retained checkpoint: no epoch before it can be replayed or rolled back to."""

    @property
    def records(self) -> tuple[str, ...]:
        return tuple(path for epoch in self.epochs for path in epoch)


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
        return Deletions((), ())
    newest, oldest = kept[0], kept[-1]
    records = [epochs[each].paths() for each in sorted(epochs) if each < oldest or each in gone]
    files = [
        (epoch, path)
        for path in stored_files
        if path not in named
        and (epoch := state_file_epoch(path)) is not None
        and unreadable < epoch <= newest
        and (in_flight is None or epoch < in_flight)
    ]
    return Deletions(tuple(records), tuple(path for _, path in sorted(files)), oldest)


@dataclass(frozen=True)
class _Known:
    """The facts about a checkpoint that a round needs; they never change."""

    sealed_at: datetime
    files: frozenset[str]


class Retention:
    """Runs retention rounds, and caches the checkpoints that it has read."""

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
        self._known: dict[str, _Known] = {}
        self._has_history = True
        """False once a listing found no history: it is not listed again."""

    def run(
        self,
        half_way: Callable[[], None] = lambda: None,
        in_flight: Epoch | None = None,
        in_use: frozenset[str] = frozenset(),
    ) -> Deletions:
        """Run one round. `half_way` is called between deleting records and deleting files, if there
        is anything to delete. Files of the epoch `in_flight` and later ones may not be named yet,
        and files `in_use` are being read; the caller determined both before this call.
        """
        store = self._backend.store
        epochs = self._backend.epochs()
        alive = living(epochs, dead_ranges(self._backend.rollbacks()))
        sealed_at = self._sealed_at(alive) if self._keep_for else {}
        by_time = kept_by_time(sealed_at, self._keep_for, self._clock.now())
        kept = kept_epochs(alive, self._keep, by_time)
        waiting = thinnable(alive, kept)
        thinned = self._thin(alive, waiting) if len(waiting) >= self.batch else ()
        remaining = [each for each in (*kept, *waiting) if each not in thinned]
        known = {
            path: found
            for epoch in remaining
            if (path := _manifest(alive[epoch])) and (found := self._read(path)) is not None
        }
        unreadable = max(
            (epoch for epoch in kept if _manifest(alive[epoch]) not in known), default=NO_EPOCH
        )
        self._known = known
        # Files are listed after the manifests: a file that appears in between belongs to an epoch
        # in flight.
        deletions = classify(
            epochs,
            kept,
            self._backend.file_sizes(),
            in_use.union(*(each.files for each in known.values())),
            unreadable,
            in_flight,
            {*(epochs.keys() - alive.keys()), *thinned},
        )
        for records in deletions.epochs:
            # A newer generation may have fallen back or rolled back meanwhile, and may need what
            # seems dead here. Checked for each epoch, because deleting many can take long.
            self._backend.require_newest(self._generation)
            store.delete(records)
        self._backend.require_newest(self._generation)
        if deletions.records or deletions.files:
            half_way()
        store.delete(deletions.files)
        if self._has_history or self._keep_for:
            self._has_history = self._backend.recorded.history.prune(deletions.oldest)
        return deletions

    def _thin(
        self, alive: Mapping[Epoch, EpochObjects], epochs: Iterable[Epoch]
    ) -> tuple[Epoch, ...]:
        """Add the input of epochs to the history, and return these epochs. An epoch whose recorded
        input is unreadable is left unchanged.
        """
        job, _ = self._backend.identity()
        found: dict[Epoch, ThinnedEpoch] = {}
        for epoch in epochs:
            try:
                recorded = self._backend.recorded.of(alive[epoch], job)
            except NoValidCheckpoint:
                continue
            if recorded is not None:
                found[epoch] = ThinnedEpoch(inputs=recorded.inputs, attempt=recorded.attempt)
        self._backend.require_newest(self._generation)
        self._backend.recorded.history.add(job, found)
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
            if records.manifest is None or records.unusable:
                return None
            files = frozenset(file.path for file, _ in records.state_files())
            self._known[manifest_path] = _Known(records.manifest.sealed_at, files)
        return self._known[manifest_path]


def _manifest(objects: EpochObjects) -> str | None:
    """Return the path of the standing manifest."""
    return None if objects.standing is None else objects.manifests[objects.standing]
