"""Retention: objects that a retained checkpoint or an epoch in flight needs are never deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from resurgence.errors import InjectedFault
from resurgence.ids import Epoch, Generation, JobName, OperatorId
from resurgence.state.paths import JobPaths
from resurgence.state.protocol.decisions import EpochObjects, epochs_seen
from resurgence.state.retention import Deletions, Retention, classify, kept_epochs

if TYPE_CHECKING:
    from tests.unit.state.conftest import Job

PATHS = JobPaths(JobName("rides"))


def sealed(*epochs: int) -> dict[Epoch, EpochObjects]:
    return epochs_seen(
        path
        for epoch in map(Epoch, epochs)
        for path in (
            PATHS.manifest(epoch, 0),
            PATHS.operator(epoch, OperatorId("w"), Generation(1)),
            PATHS.committed(epoch),
        )
    )


def file_of(epoch: int, unique: str = "aa") -> str:
    return f"rides/tables/w/t/{epoch}-1-0-{unique}.parquet"


def inject() -> None:
    raise InjectedFault("half way")


# ---------------------------------------------------------------- what is kept


@pytest.mark.parametrize(
    ("keep", "kept"), [(1, (5,)), (2, (5, 4)), (5, (5, 4, 3, 2, 1)), (99, (5, 4, 3, 2, 1))]
)
def test_the_newest_checkpoints_are_kept(keep: int, kept: tuple[int, ...]) -> None:
    assert kept_epochs(sealed(1, 2, 3, 4, 5), keep) == kept


def test_condemned_and_unsealed_epochs_are_not_counted() -> None:
    epochs = sealed(1, 2, 3, 4)
    epochs[Epoch(4)].condemned[0] = "x"
    epochs[Epoch(5)] = EpochObjects(Epoch(5), operators=["o"])
    assert kept_epochs(epochs, 2) == (3, 2)


# ---------------------------------------------------------------- classify


def test_files_that_a_retained_checkpoint_names_are_kept_however_old_they_are() -> None:
    epochs = sealed(8, 9, 10)
    named = frozenset({file_of(1), file_of(10)})
    stored = [file_of(1), file_of(2), file_of(10)]
    deletions = classify(epochs, (Epoch(10), Epoch(9)), stored, named)
    assert deletions.files == (file_of(2),)


def test_files_of_an_epoch_in_flight_are_kept() -> None:
    stored = [file_of(10, "debris"), file_of(11), file_of(12)]
    deletions = classify(sealed(10), (Epoch(10),), stored, frozenset())
    assert deletions.files == (file_of(10, "debris"),)


def test_everything_is_deleted_oldest_first_and_manifests_before_what_they_name() -> None:
    deletions = classify(
        sealed(10, 2, 3), (Epoch(10),), [file_of(9), file_of(10, "bb"), file_of(2)], frozenset()
    )
    assert deletions.manifests == (PATHS.manifest(Epoch(2), 0), PATHS.manifest(Epoch(3), 0))
    assert deletions.records == tuple(
        path
        for epoch in map(Epoch, (2, 3))
        for path in (
            PATHS.operator(epoch, OperatorId("w"), Generation(1)),
            PATHS.committed(epoch),
        )
    )
    assert deletions.files == (file_of(2), file_of(9), file_of(10, "bb"))


def test_without_any_checkpoint_nothing_is_deleted() -> None:
    assert classify({}, (), [file_of(1)], frozenset()) == Deletions()


def test_foreign_files_are_not_deleted() -> None:
    deletions = classify(sealed(10), (Epoch(10),), ["rides/tables/w/t/notes.txt"], frozenset())
    assert deletions.files == ()


def test_files_that_an_unreadable_checkpoint_might_name_are_kept() -> None:
    stored = [file_of(3), file_of(8), file_of(9)]
    deletions = classify(
        sealed(8, 9, 10), (Epoch(10), Epoch(9), Epoch(8)), stored, frozenset(), Epoch(8)
    )
    assert deletions.files == (file_of(9),)


# ---------------------------------------------------------------- rounds


def epochs_left(job: Job) -> list[int]:
    return sorted({int(path.split("/")[2]) for path in job.stored() if "/epochs/" in path})


def test_a_round_leaves_the_last_checkpoints_valid(job: Job) -> None:
    job.run(1, 2, 3, 4)
    del job.files[:2]
    job.run(5)
    Retention(job.backend, 2, job.claim.generation).run()
    assert epochs_left(job) == [4, 5]
    plan = job.plan()
    assert (plan.epoch, plan.fallbacks) == (5, ())
    job.path("rides/epochs/0000000005/manifest-0.json").write_bytes(b"")
    assert job.plan().epoch == 4


def test_a_round_deletes_files_that_only_deleted_checkpoints_named(job: Job) -> None:
    job.run(1, 2)
    first = job.files.pop(0)
    job.run(3, 4)
    retention = Retention(job.backend, 2, job.claim.generation)
    assert retention.run().files == (first.path,)
    assert retention.run() == Deletions(oldest=Epoch(3))


def test_a_file_written_after_the_last_seal_survives_a_round(job: Job) -> None:
    job.run(1, 2)
    upload = job.write_file(3)
    Retention(job.backend, 1, job.claim.generation).run()
    assert upload.path in job.stored()


def test_a_file_that_a_later_checkpoint_names_again_survives_a_round(job: Job) -> None:
    """The durable manifests decide, not what an earlier round remembered."""
    job.run(1)
    retention = Retention(job.backend, 1, job.claim.generation)
    retention.run()
    first = job.files.pop()
    job.run(2)
    job.files.append(first)
    job.run(3)
    retention.run()
    assert first.path in job.stored()
    assert job.plan().epoch == 3


def test_a_crash_in_a_round_leaves_objects_that_the_next_round_deletes(job: Job) -> None:
    job.run(1, 2)
    orphan = job.files.pop(0)
    job.run(3, 4)
    with pytest.raises(InjectedFault):
        Retention(job.backend, 1, job.claim.generation).run(inject)
    assert orphan.path in job.stored()
    assert job.plan().epoch == 4
    Retention(job.backend, 1, job.claim.generation).run()
    assert orphan.path not in job.stored()
    assert job.plan().epoch == 4


def test_without_deletions_the_fault_point_is_not_reached(job: Job) -> None:
    job.run(1)
    Retention(job.backend, 1, job.claim.generation).run(inject)


def test_an_unreadable_retained_checkpoint_does_not_stop_the_job(job: Job) -> None:
    job.run(1)
    orphan = job.files.pop()
    job.run(2, 3, 4)
    job.path("rides/epochs/0000000003/manifest-0.json").write_bytes(b"")
    retention = Retention(job.backend, 2, job.claim.generation)
    deletions = retention.run()
    assert deletions.files == ()
    assert epochs_left(job) == [3, 4]
    job.run(5)
    assert retention.run().files == (orphan.path,)
    assert job.plan().epoch == 5
