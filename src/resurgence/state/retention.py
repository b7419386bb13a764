"""Retention: the last checkpoints are kept, everything no one can need any more is deleted.

First everything is classified, from durable manifests only; then it is deleted, oldest first, each
manifest before what it names. A crash in between leaves debris without a manifest, which the next
round collects.

What is needed: the newest `keep` checkpoints that stand, and every state file that one of them
names. Epochs that were rolled back are not needed. Files written for an epoch above the newest sealed one belong to an epoch in flight and are
never touched; nor are those of a compaction that is still under way, which bear the number of the
epoch that was next when it began. A kept checkpoint that cannot be read might name any file up to its epoch, so these
stay until it is no longer kept; it is no reason to stop a job that does not need it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from resurgence.ids import NO_EPOCH, Epoch, Generation
from resurgence.state.backend import StateBackend
from resurgence.state.paths import state_file_epoch
from resurgence.state.protocol import EpochObjects, dead_ranges, epochs_seen, living
from resurgence.state.records import UNUSABLE


@dataclass(frozen=True)
class Deletions:
    """What can go, in the order in which it goes."""

    epochs: tuple[tuple[str, ...], ...]
    """The records of each epoch."""
    files: tuple[str, ...]
    oldest: Epoch = NO_EPOCH
    """The oldest checkpoint that is kept: no epoch before it can be replayed or rolled back to."""

    @property
    def records(self) -> tuple[str, ...]:
        return tuple(path for epoch in self.epochs for path in epoch)


def kept_checkpoints(epochs: Mapping[Epoch, EpochObjects], keep: int) -> tuple[Epoch, ...]:
    """The newest checkpoints that stand, newest first."""
    standing = [epoch for epoch, objects in epochs.items() if objects.standing is not None]
    return tuple(sorted(standing, reverse=True)[:keep])


def classify(
    epochs: Mapping[Epoch, EpochObjects],
    kept: tuple[Epoch, ...],
    stored_files: Iterable[str],
    named: frozenset[str],
    unreadable: Epoch = NO_EPOCH,
    in_flight: Epoch | None = None,
    dead: Collection[Epoch] = (),
) -> Deletions:
    """What can be deleted, given what is stored, which files the kept checkpoints name, the newest
    kept checkpoint of which that is not known, the epoch from which on files may not be named yet,
    and the epochs that were rolled back.
    """
    if not kept:
        return Deletions((), ())
    newest, oldest = kept[0], kept[-1]
    records = [epochs[each].paths() for each in sorted(epochs) if each < oldest or each in dead]
    files = [
        (epoch, path)
        for path in stored_files
        if path not in named
        and (epoch := state_file_epoch(path)) is not None
        and unreadable < epoch <= newest
        and (in_flight is None or epoch < in_flight)
    ]
    return Deletions(tuple(records), tuple(path for _, path in sorted(files)), oldest)


class Retention:
    """Runs a round when asked; remembers the files of checkpoints it has read, for they never
    change.
    """

    def __init__(self, backend: StateBackend, keep: int, generation: Generation) -> None:
        self._backend = backend
        self._generation = generation
        self._keep = keep
        self._named: dict[str, frozenset[str]] = {}

    def run(
        self,
        half_way: Callable[[], None] = lambda: None,
        in_flight: Epoch | None = None,
        in_use: frozenset[str] = frozenset(),
    ) -> Deletions:
        """One round. `half_way` is called between deleting records and deleting files, if there
        is anything. Files of the epoch `in_flight` and later ones may not be named yet, and those
        `in_use` are being read; both were asked for before.
        """
        store, paths = self._backend.store, self._backend.paths
        epochs = epochs_seen(each.path for each in store.list(paths.epochs))
        alive = living(epochs, dead_ranges(self._backend.rollbacks()))
        kept = kept_checkpoints(alive, self._keep)
        known: dict[str, frozenset[str]] = {}
        unreadable = NO_EPOCH
        for epoch in kept:
            attempt = epochs[epoch].standing
            assert attempt is not None
            path = epochs[epoch].manifests[attempt]
            try:
                known[path] = self._named.get(path) or self._files_of(path)
            except UNUSABLE:
                unreadable = max(unreadable, epoch)
        self._named = known
        # The files are listed after the manifests: one that appears in between belongs to an epoch
        # in flight.
        deletions = classify(
            epochs,
            kept,
            [each.path for each in store.list(paths.tables)],
            in_use.union(*known.values()),
            unreadable,
            in_flight,
            epochs.keys() - alive.keys(),
        )
        for records in deletions.epochs:
            # A newer generation may have fallen or rolled back meanwhile, and may need what looks
            # dead from here. Looked at for each: deleting many can take long.
            self._backend.require_newest(self._generation)
            store.delete(records)
        self._backend.require_newest(self._generation)
        if deletions.records or deletions.files:
            half_way()
        store.delete(deletions.files)
        return deletions

    def _files_of(self, manifest_path: str) -> frozenset[str]:
        _, operators = self._backend.read_checkpoint(manifest_path)
        tables = [table for metadata in operators.values() for table in metadata.tables.values()]
        return frozenset(file.path for table in tables for file in table.files)
