"""Checkpoints retained by time: the state between them is deleted, and the recorded input stays for
a replay.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.unit.state.conftest import NOW, SOURCE, input_of

from resurgence.config import KeepRule
from resurgence.errors import NoValidCheckpoint, StorageError
from resurgence.ids import Epoch
from resurgence.state.backend import StateBackend
from resurgence.state.protocol.epoch_runs import RUN
from resurgence.state.protocol.input_history import InputHistory
from resurgence.state.records import ThinnedEpoch
from resurgence.state.retention import Deletions, Retention
from resurgence.storage.object_store import ObjectStore

if TYPE_CHECKING:
    from tests.unit.state.conftest import Job

EVER = (KeepRule(timedelta(days=1), timedelta(days=1)),)
"""Everything is sealed in the same instant, so the first checkpoint is kept by time."""


class FixedClock:
    def __init__(self, at: datetime = NOW) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at


class Thinning(Retention):
    batch = 3


def thinning(job: Job, backend: StateBackend | None = None, **options: object) -> Retention:
    at = options.get("at", NOW)
    assert isinstance(at, datetime)
    return Thinning(backend or job.backend, 2, job.claim.generation, EVER, FixedClock(at))


def epochs_left(job: Job) -> list[int]:
    return sorted({int(path.split("/")[2]) for path in job.stored() if "/epochs/" in path})


def damage(job: Job, *epochs: int) -> None:
    for epoch in epochs:
        manifest = job.path(f"rides/epochs/{epoch:010}/manifest-0.json")
        if manifest.exists():
            manifest.write_bytes(b"")


def test_the_first_checkpoint_of_an_interval_and_the_newest_are_retained_and_the_others_thinned(
    job: Job,
) -> None:
    job.run(*range(1, 8))
    thinning(job).run()
    assert epochs_left(job) == [1, 6, 7]
    assert job.plan().epoch == 7


def test_thinning_waits_for_a_batch_and_keeps_the_files_until_then(job: Job) -> None:
    job.run(1, 2)
    second = job.files[1]
    del job.files[1:]
    job.run(3, 4)
    thinning(job).run()
    assert epochs_left(job) == [1, 2, 3, 4]
    assert second.path in job.stored()
    job.run(5, 6)
    thinning(job).run()
    assert epochs_left(job) == [1, 5, 6]
    assert second.path not in job.stored(), "no checkpoint that is left names it"


def test_a_fallback_over_thinned_epochs_replays_what_they_read(job: Job) -> None:
    job.run(*range(1, 8))
    thinning(job).run()
    damage(job, 6, 7)
    job.claim_again()
    plan = job.plan()
    assert plan.epoch == 1
    assert list(plan.recorded) == [2, 3, 4, 5, 6, 7]
    for epoch, recorded in plan.recorded.items():
        assert recorded.inputs == {SOURCE: input_of(epoch)}
        assert (recorded.sealed, recorded.committed, recorded.attempt) == (True, True, 1)


def test_the_history_takes_precedence_over_the_metadata_of_an_interrupted_replay(job: Job) -> None:
    job.run(*range(1, 8))
    thinning(job).run()
    damage(job, 6, 7)
    job.claim_again()
    job.backend.write_metadata(job.metadata(2))
    job.claim_again()
    recorded = job.plan().recorded[Epoch(2)]
    assert (recorded.sealed, recorded.committed, recorded.attempt) == (True, True, 1)


def test_a_lost_history_is_an_error_and_not_other_input(job: Job) -> None:
    job.run(*range(1, 8))
    thinning(job).run()
    damage(job, 6, 7)
    (path,) = [each for each in job.stored() if "/inputs/" in each]
    job.path(path).write_bytes(b"{}")
    job.claim_again()
    with pytest.raises(NoValidCheckpoint, match="epoch 2 must be replayed") as raised:
        job.plan()
    assert "rides/inputs/" in raised.value.hint


def test_the_history_of_a_day_is_a_few_objects(job: Job) -> None:
    history = InputHistory(job.backend.store, job.backend.paths)
    for first in range(1, 2_500, 20):
        batch = {
            Epoch(each): ThinnedEpoch(inputs={SOURCE: input_of(each)}, attempt=1)
            for each in range(first, first + 20)
        }
        history.add(job.claim.job, batch)
    names = [path.rsplit("/", 1)[1] for path in job.stored() if "/inputs/" in path]
    spans = [tuple(map(int, name.split("-")[:2])) for name in sorted(names)]
    assert spans == [(1, RUN - 1), (RUN, 2 * RUN - 1), (2 * RUN, 2_500)]
    assert list(history.after(Epoch(1_990), job.claim.job)) == [*range(1_991, 2_501)]


def test_history_before_the_oldest_checkpoint_is_deleted(job: Job) -> None:
    history = job.backend.recorded.history
    old = {Epoch(3): ThinnedEpoch(inputs={}, attempt=1)}
    history.add(job.claim.job, old)
    assert history.prune(Epoch(2))
    assert list(history.after(Epoch(0), job.claim.job)) == [3]
    assert not history.prune(Epoch(3))
    assert not history.after(Epoch(0), job.claim.job)


def test_a_checkpoint_is_deleted_when_its_rule_expires(job: Job) -> None:
    job.run(*range(1, 8))
    thinning(job).run()
    deletions = thinning(job, at=NOW + timedelta(days=2)).run()
    assert epochs_left(job) == [6, 7]
    assert deletions.oldest == 6
    assert not [each for each in job.stored() if "/inputs/" in each]


def test_dead_epochs_are_not_thinned_but_deleted(job: Job) -> None:
    job.run(*range(1, 6))
    job.claim_again()
    job.backend.record_rollback(job.claim, Epoch(1), NOW)
    job.claim_again()
    del job.files[1:]
    job.run(6, 7)
    thinning(job).run()
    assert epochs_left(job) == [1, 6, 7]
    assert not [each for each in job.stored() if "/inputs/" in each]


class FailingAfter(ObjectStore):
    """Some changes pass, then nothing does."""

    def __init__(self, url: str, changes: int) -> None:
        super().__init__(url)
        self._left = changes

    def _spend(self) -> None:
        if not self._left:
            raise StorageError("gone")
        self._left -= 1

    def create(self, path: str, data: bytes) -> bool:
        self._spend()
        return super().create(path, data)

    def delete(self, paths: Iterable[str]) -> None:
        for path in list(paths):
            self._spend()
            super().delete([path])


@pytest.mark.parametrize("changes", range(0, 24))
def test_a_round_that_crashes_anywhere_leaves_every_replay_possible(job: Job, changes: int) -> None:
    job.run(*range(1, 8))
    store = FailingAfter(str(job.folder), changes)
    dying = thinning(job, StateBackend(store, job.backend.paths.job))
    try:
        dying.run()
    except StorageError:
        pass
    else:
        assert changes > 15, "the round has more changes than that"
    job.claim_again()
    Thinning(job.backend, 2, job.claim.generation, EVER, FixedClock()).run()
    assert {1, 6, 7} <= set(epochs_left(job))
    damage(job, *(each for each in epochs_left(job) if each > 1))
    plan = job.plan()
    assert (plan.epoch, list(plan.recorded)) == (1, [2, 3, 4, 5, 6, 7])
    assert all(
        each.inputs == {SOURCE: input_of(epoch)} and each.committed
        for epoch, each in plan.recorded.items()
    )


def test_without_rules_nothing_is_thinned_and_the_history_is_listed_once(job: Job) -> None:
    asked: list[str] = []

    class Listening(ObjectStore):
        def list(self, prefix: str, after: str | None = None):  # type: ignore[no-untyped-def]
            asked.append(prefix)
            return super().list(prefix, after)

    job.run(1, 2, 3)
    backend = StateBackend(Listening(str(job.folder)), job.backend.paths.job)
    retention = Retention(backend, 2, job.claim.generation)
    assert isinstance(retention.run(), Deletions)
    retention.run()
    assert asked.count("rides/inputs") == 1
