"""Rollback: the epochs after a checkpoint are dead, and stay dead."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from resurgence.errors import NewerFormat, NoValidCheckpoint, Retired, UserError
from resurgence.ids import Epoch, Generation
from resurgence.state.load_plan import LoadPlan
from resurgence.state.records import FORMAT_VERSION, RollbackRecord

if TYPE_CHECKING:
    from tests.unit.state.conftest import Job

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def roll_back(job: Job, to_epoch: int) -> RollbackRecord:
    """As a user would: nothing runs, a generation is claimed for it."""
    job.claim_again()
    return job.backend.record_rollback(job.claim, Epoch(to_epoch), NOW)


def go_on(job: Job, plan: LoadPlan, *epochs: int) -> None:
    """Run epochs from a plan: the files of dead epochs are no longer live."""
    job.files[:] = [each for each in job.files if each.epoch <= plan.epoch]
    job.run(*epochs)


# ---------------------------------------------------------------- what a rollback does


def test_a_job_resumes_from_the_target_of_its_rollback(job: Job) -> None:
    job.run(1, 2, 3, 4)
    record = roll_back(job, 2)
    assert (record.number, record.to_epoch, record.highest_epoch) == (1, 2, 4)
    plan = job.plan()
    assert (plan.epoch, plan.next_epoch, plan.dead) == (2, 5, ((3, 4),))
    assert (plan.recorded, plan.fallbacks, plan.commit_pending) == ({}, (), False)


def test_a_rollback_to_scratch_restarts_with_new_epoch_numbers(job: Job) -> None:
    job.run(1, 2)
    roll_back(job, 0)
    plan = job.plan()
    assert (plan.epoch, plan.manifest, plan.next_epoch, plan.dead) == (0, None, 3, ((1, 2),))
    job.files.clear()
    job.run(3)
    plan = job.plan()
    assert (plan.epoch, plan.next_epoch) == (3, 4)


def test_epochs_that_were_only_begun_are_dead_too(job: Job) -> None:
    job.run(1, 2)
    job.backend.write_metadata(job.metadata(3))
    job.write_file(4)
    assert roll_back(job, 2).highest_epoch == 4
    plan = job.plan()
    assert (plan.epoch, plan.next_epoch, plan.recorded) == (2, 5, {})


def test_a_pending_commit_is_replayed_only_for_a_live_epoch(job: Job) -> None:
    job.seal(1)
    job.seal(2)
    roll_back(job, 1)
    plan = job.plan()
    assert (plan.epoch, plan.commit_pending) == (1, True)


def test_damage_to_dead_epochs_is_ignored(job: Job) -> None:
    job.run(1, 2, 3)
    roll_back(job, 1)
    for epoch, name in ((2, "manifest-0"), (3, "manifest-0"), (3, "committed")):
        job.path(f"rides/epochs/{epoch:010}/{name}.json").write_bytes(b"")
    plan = job.plan()
    assert (plan.epoch, plan.fallbacks) == (1, ())
    assert not job.path("rides/epochs/0000000003/condemned-0.json").exists()


def test_a_later_epoch_is_restored_and_numbering_continues(job: Job) -> None:
    job.run(1, 2, 3)
    roll_back(job, 1)
    plan = job.plan()
    go_on(job, plan, 4, 5)
    plan = job.plan()
    assert (plan.epoch, plan.next_epoch, plan.dead) == (5, 6, ((2, 3),))


def test_a_fallback_across_a_rollback_replays_the_live_epochs_only(job: Job) -> None:
    job.run(1, 2, 3, 4)
    roll_back(job, 2)
    go_on(job, job.plan(), 5, 6)
    job.path(job.files[1].path).unlink()
    plan = job.plan()
    assert plan.epoch == 1
    assert [each.epoch for each in plan.fallbacks] == [6, 5, 2]
    assert list(plan.recorded) == [2, 5, 6]
    assert plan.next_epoch == 2
    assert [plan.after(Epoch(each)) for each in (2, 5, 6)] == [5, 6, 7]


def test_the_plan_is_handed_over_whole(job: Job) -> None:
    job.run(1, 2)
    roll_back(job, 1)
    plan = job.plan()
    assert LoadPlan.model_validate_json(plan.model_dump_json()) == plan


# ---------------------------------------------------------------- several in a row


def test_rollbacks_compose(job: Job) -> None:
    job.run(1, 2, 3)
    roll_back(job, 2)
    go_on(job, job.plan(), 4, 5)
    assert roll_back(job, 4).highest_epoch == 5
    plan = job.plan()
    assert (plan.epoch, plan.next_epoch, plan.dead) == (4, 6, ((3, 3), (5, 5)))
    go_on(job, plan, 6)
    assert roll_back(job, 1).number == 3
    plan = job.plan()
    assert (plan.epoch, plan.next_epoch, plan.dead) == (1, 7, ((2, 6),))


def test_two_rollbacks_without_an_epoch_in_between_do_not_use_a_number_twice(job: Job) -> None:
    job.run(1, 2, 3)
    roll_back(job, 2)
    for path in job.stored():
        if "/0000000003/" in path or "/3-1-" in path:
            job.path(path).unlink()
    assert roll_back(job, 1).highest_epoch == 3
    assert job.plan().next_epoch == 4


@pytest.mark.parametrize(
    ("to_epoch", "said"),
    [(3, "it was itself rolled back"), (9, "no usable checkpoint"), (-1, "no usable checkpoint")],
)
def test_a_rollback_to_a_missing_checkpoint_is_refused(job: Job, to_epoch: int, said: str) -> None:
    job.run(1, 2, 3)
    roll_back(job, 2)
    job.claim_again()
    before = job.stored()
    with pytest.raises(UserError, match=said) as caught:
        job.backend.record_rollback(job.claim, Epoch(to_epoch), NOW)
    assert caught.value.hint == "Choose one of 1, 2, or 0 for the beginning."
    assert job.stored() == before


def test_a_rollback_to_a_damaged_checkpoint_is_refused(job: Job) -> None:
    job.run(1, 2, 3)
    job.path(job.files[1].path).unlink()
    with pytest.raises(UserError, match="epoch 2: it has no usable checkpoint") as caught:
        roll_back(job, 2)
    assert caught.value.hint == "Choose one of 1, or 0 for the beginning."


# ---------------------------------------------------------------- who may roll back


def test_only_the_newest_generation_rolls_back(job: Job) -> None:
    job.run(1, 2)
    stale = job.claim
    job.claim_again()
    before = job.stored()
    with pytest.raises(Retired, match="fenced out"):
        job.backend.record_rollback(stale, Epoch(1), NOW)
    assert job.stored() == before


def test_a_rollback_spends_its_claim(job: Job) -> None:
    job.run(1, 2)
    record = roll_back(job, 1)
    assert record.generation == job.claim.generation + 1
    with pytest.raises(Retired):
        job.backend.prepare_checkpoint_load(job.claim, 1)
    job.claim_again()
    assert job.claim.generation == record.generation + 1


def test_a_rollback_whose_generation_someone_else_claimed_does_not_count(job: Job) -> None:
    """It was recorded at the last moment, by one who had been overtaken: the job went on without
    it.
    """
    job.run(1, 2)
    record = RollbackRecord(
        job=job.claim.job,
        number=1,
        to_epoch=Epoch(1),
        highest_epoch=Epoch(2),
        generation=Generation(2),
        recorded_at=NOW,
    )
    job.claim_again()
    job.backend.store.create(job.backend.paths.rollback(1), record.encode())
    plan = job.plan()
    assert (plan.epoch, plan.next_epoch, plan.dead) == (2, 3, ())
    assert roll_back(job, 1).number == 2
    assert job.plan().dead == ((2, 2),)


def test_an_interrupted_rollback_does_not_count(job: Job) -> None:
    job.run(1, 2)
    roll_back(job, 1)
    job.path("rides/generations/0000000003.json").unlink()
    assert job.backend.rollbacks() == ()
    assert job.plan().epoch == 2


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize("lost", ["rollbacks/000001", "rollbacks/000002", "generations/0000000003"])
@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_damaged_rollback_record_never_revives_dead_epochs(job: Job, lost: str, how: str) -> None:
    job.run(1, 2, 3)
    roll_back(job, 2)
    roll_back(job, 1)
    job.claim_again()
    path = job.path(f"rides/{lost}.json")
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-9])
    before = job.stored()
    with pytest.raises(NoValidCheckpoint, match=lost) as caught:
        job.backend.prepare_checkpoint_load(job.claim, 1)
    assert "from a backup" in caught.value.hint
    with pytest.raises(NoValidCheckpoint):
        job.backend.record_rollback(job.claim, Epoch(1), NOW)
    assert job.stored() == before


def test_a_rollback_of_a_newer_format_is_refused(job: Job) -> None:
    job.run(1, 2)
    record = roll_back(job, 1)
    newer = record.model_copy(update={"version": FORMAT_VERSION + 1})
    job.path("rides/rollbacks/000001.json").write_bytes(newer.encode())
    with pytest.raises(NewerFormat):
        job.plan()


def test_foreign_names_are_no_rollbacks(job: Job) -> None:
    job.run(1)
    folder = job.path("rides/rollbacks")
    folder.mkdir()
    (folder / "notes.json").write_bytes(b"")
    assert job.plan().dead == ()
