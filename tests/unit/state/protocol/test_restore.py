"""Restore: the newest valid checkpoint, whatever happened to the newer ones."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from resurgence.errors import NewerFormat, NoValidCheckpoint, Retired
from resurgence.ids import Epoch, Generation, JobIdentity, OperatorId
from resurgence.state.records import (
    FORMAT_VERSION,
    CondemnedRecord,
    InputRange,
    Manifest,
    OperatorCheckpointMetadata,
    decode,
    object_digest,
)

if TYPE_CHECKING:
    from tests.unit.state.conftest import Job

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SOURCE, WINDOW = OperatorId("source-1"), OperatorId("window-1")


def ten_rows(epoch: int) -> InputRange:
    return InputRange(start={"row": 10 * (epoch - 1)}, end={"row": 10 * epoch}, rows=10)


def epoch_object(job: Job, epoch: int, name: str) -> Path:
    return job.path(f"rides/epochs/{epoch:010}/{name}.json")


def manifest_path(job: Job, epoch: int) -> Path:
    return epoch_object(job, epoch, "manifest-0")


# ---------------------------------------------------------------- nothing is wrong


def test_a_job_without_state_starts_from_scratch(job: Job) -> None:
    plan = job.plan()
    assert (plan.epoch, plan.manifest, plan.operators) == (0, None, {})
    assert (plan.commit_pending, plan.recorded, plan.fallbacks) == (False, {}, ())


def test_the_newest_valid_checkpoint_is_restored(job: Job) -> None:
    job.run(1, 2, 3)
    plan = job.plan()
    assert (plan.epoch, plan.generation, plan.job) == (3, 2, job.claim.job)
    assert plan.manifest is not None
    assert plan.manifest.epoch == 3
    assert set(plan.operators) == {SOURCE, WINDOW}
    assert (plan.commit_pending, plan.recorded, plan.fallbacks) == (False, {}, ())
    (slices,) = plan.operators[WINDOW].subtasks["partials"]
    assert [each.file.epoch for each in slices] == [1, 2, 3]


def test_an_unrecorded_commit_is_pending(job: Job) -> None:
    job.run(1)
    job.seal(2)
    assert job.plan().commit_pending
    job.commit(2)
    assert not job.plan().commit_pending


def test_debris_of_a_first_epoch_that_was_never_sealed_is_no_checkpoint(job: Job) -> None:
    job.write_file(1)
    job.backend.write_metadata(job.metadata(1))
    plan = job.plan()
    assert (plan.epoch, plan.fallbacks) == (0, ())
    assert plan.recorded[Epoch(1)].inputs == {SOURCE: ten_rows(1)}


def test_an_epoch_that_was_never_sealed_reads_what_it_recorded(job: Job) -> None:
    job.run(1, 2)
    job.backend.write_metadata(job.metadata(3))
    plan = job.plan()
    assert (plan.epoch, plan.fallbacks) == (2, ())
    recorded = plan.recorded[Epoch(3)]
    assert (recorded.inputs, recorded.committed, recorded.attempt) == (
        {SOURCE: ten_rows(3)},
        False,
        0,
    )


def test_foreign_objects_are_ignored(job: Job) -> None:
    job.run(1)
    for name in ("rides/epochs/README.md", "rides/epochs/0000000001/manifest-².json"):
        job.path(name).write_bytes(b"")
    assert job.plan().epoch == 1


# ---------------------------------------------------------------- damage

Damage = Callable[["Job"], object]


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(bytes(data))


def newest_state_file(job: Job) -> Path:
    return job.path(job.files[-1].path)


def rewrite_manifest(job: Job, /, **changes: object) -> None:
    """A manifest that is whole in itself, but says something else."""
    path = manifest_path(job, 3)
    manifest = decode(Manifest, path.read_bytes(), str(path))
    path.write_bytes(manifest.model_copy(update=changes).encode())


def swap_metadata_epoch(job: Job) -> None:
    """The manifest names, with the right digest, metadata of another epoch."""
    path = "rides/epochs/0000000003/operator-source-1-1.json"
    data = epoch_object(job, 2, "operator-source-1-1").read_bytes()
    job.path(path).write_bytes(data)
    manifest = decode(Manifest, manifest_path(job, 3).read_bytes(), path)
    rewrite_manifest(job, operators={**manifest.operators, SOURCE: object_digest(path, data)})


DAMAGE: dict[str, tuple[Damage, str]] = {
    "manifest missing": (
        lambda job: manifest_path(job, 3).unlink(),
        "its sinks are committed, but its manifest is missing",
    ),
    "manifest empty": (lambda job: manifest_path(job, 3).write_bytes(b""), "is not JSON (0 bytes)"),
    "manifest truncated": (
        lambda job: manifest_path(job, 3).write_bytes(manifest_path(job, 3).read_bytes()[:-5]),
        "is not JSON",
    ),
    "manifest with a flipped bit": (
        lambda job: flip(
            manifest_path(job, 3), manifest_path(job, 3).read_bytes().index(b'"row":20') + 6
        ),
        "does not match its checksum",
    ),
    "manifest of another job": (
        lambda job: rewrite_manifest(job, job=JobIdentity("stranger")),
        "manifest belongs to another job (stranger)",
    ),
    "manifest of another epoch": (
        lambda job: rewrite_manifest(job, epoch=Epoch(8)),
        "manifest belongs to epoch 8",
    ),
    "manifest that is another record": (
        lambda job: manifest_path(job, 3).write_bytes(
            epoch_object(job, 3, "committed").read_bytes()
        ),
        "is not a Manifest",
    ),
    "operator metadata missing": (
        lambda job: epoch_object(job, 3, "operator-window-1-1").unlink(),
        "metadata of window-1 is missing",
    ),
    "operator metadata empty": (
        lambda job: epoch_object(job, 3, "operator-window-1-1").write_bytes(b""),
        "metadata of window-1 does not match its digest",
    ),
    "operator metadata with a flipped bit": (
        lambda job: flip(epoch_object(job, 3, "operator-source-1-1"), 40),
        "metadata of source-1 does not match its digest",
    ),
    "operator metadata of another epoch": (
        swap_metadata_epoch,
        "metadata of source-1 belongs to job",
    ),
    "state file missing": (lambda job: newest_state_file(job).unlink(), "is missing"),
    "state file truncated": (
        lambda job: newest_state_file(job).write_bytes(b"row"),
        "has 3 bytes instead of 4",
    ),
    "state file empty": (
        lambda job: newest_state_file(job).write_bytes(b""),
        "has 0 bytes instead of 4",
    ),
}


@pytest.fixture(params=list(DAMAGE))
def damaged(request: pytest.FixtureRequest, job: Job) -> tuple[Job, str]:
    """Three epochs, of which the last is damaged, and what is to be said of it."""
    job.run(1, 2, 3)
    damage, said = DAMAGE[request.param]
    damage(job)
    return job, said


def test_a_damaged_checkpoint_is_skipped_for_the_next_older_one(
    damaged: tuple[Job, str],
) -> None:
    job, said = damaged
    plan = job.plan()
    assert plan.epoch == 2
    (fallback,) = plan.fallbacks
    assert fallback.epoch == 3
    assert said in " ".join(fallback.reasons)
    recorded = plan.recorded[Epoch(3)]
    assert (recorded.inputs, recorded.committed) == ({SOURCE: ten_rows(3)}, True)


def test_the_replay_of_a_condemned_epoch_is_sealed_as_the_next_attempt(
    damaged: tuple[Job, str],
) -> None:
    job, _ = damaged
    was_there = manifest_path(job, 3).exists()
    attempt = job.plan().recorded[Epoch(3)].attempt
    assert attempt == (1 if was_there else 0)
    assert epoch_object(job, 3, "condemned-0").exists() == was_there
    del job.files[2:]
    job.seal(3, attempt)
    plan = job.plan()
    assert (plan.epoch, plan.fallbacks) == (3, ())
    assert plan.manifest is not None
    assert plan.manifest.attempt == attempt


@pytest.mark.parametrize("position", range(0, 700, 13))
def test_any_flipped_bit_of_a_manifest_is_detected(job: Job, position: int) -> None:
    job.run(1, 2)
    flip(manifest_path(job, 2), position % manifest_path(job, 2).stat().st_size)
    assert job.plan().epoch == 1


def test_a_file_that_a_worker_found_unreadable_makes_its_checkpoints_unusable(job: Job) -> None:
    job.run(1, 2, 3)
    second = job.files[1].path
    plan = job.plan(frozenset({second}))
    assert plan.epoch == 1
    assert [each.epoch for each in plan.fallbacks] == [3, 2]
    assert all(
        f"{second} of window-1.partials failed its checksum" in each.reasons[0]
        for each in plan.fallbacks
    )


def test_a_condemned_manifest_is_not_restored_though_it_looks_valid(job: Job) -> None:
    job.run(1, 2, 3)
    path = newest_state_file(job)
    path.unlink()
    job.plan()
    path.write_bytes(b"rows")
    plan = job.plan()
    assert plan.epoch == 2
    assert [each.epoch for each in plan.fallbacks] == [3]
    assert "is missing" in plan.fallbacks[0].reasons[0]
    assert plan.recorded[Epoch(3)].attempt == 1


def test_a_condemnation_records_who_condemned_and_why(job: Job) -> None:
    job.run(1, 2)
    newest_state_file(job).unlink()
    job.plan()
    path = epoch_object(job, 2, "condemned-0")
    record = decode(CondemnedRecord, path.read_bytes(), str(path))
    assert (record.job, record.epoch, record.attempt, record.generation) == (
        job.claim.job,
        2,
        0,
        2,
    )
    assert "is missing" in record.reasons[0]


def test_several_damaged_checkpoints_are_skipped_and_all_replayed(job: Job) -> None:
    job.run(1, 2, 3, 4)
    job.path(job.files[1].path).unlink()
    plan = job.plan()
    assert plan.epoch == 1
    assert [each.epoch for each in plan.fallbacks] == [4, 3, 2]
    assert {epoch: each.inputs[SOURCE] for epoch, each in plan.recorded.items()} == {
        epoch: ten_rows(epoch) for epoch in (2, 3, 4)
    }


def test_a_fenced_generation_condemns_nothing(job: Job) -> None:
    job.run(1, 2)
    newest_state_file(job).unlink()
    stale = job.claim
    job.claim_again()
    before = job.stored()
    with pytest.raises(Retired):
        job.backend.prepare_checkpoint_load(stale, 1)
    assert job.stored() == before


# ---------------------------------------------------------------- recorded input

PLACES = ["committed", "manifest-0", "operator-source-1-1"]


@pytest.mark.parametrize("kept", PLACES)
@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_the_input_of_an_epoch_is_found_in_any_one_of_its_three_places(
    job: Job, kept: str, how: str
) -> None:
    job.run(1, 2)
    newest_state_file(job).unlink()
    for place in PLACES:
        path = epoch_object(job, 2, place)
        if place != kept and how == "missing":
            path.unlink()
        elif place != kept:
            flip(path, path.read_bytes().index(b'"row":10') + 6)
    assert job.plan().recorded[Epoch(2)].inputs == {SOURCE: ten_rows(2)}


@pytest.mark.parametrize("changes", [{"job": JobIdentity("stranger")}, {"epoch": Epoch(2)}])
def test_the_input_is_not_taken_from_a_record_of_another_job_or_epoch(
    job: Job, changes: dict[str, object]
) -> None:
    job.run(1, 2)
    job.seal(3)
    rewrite_manifest(job, inputs={SOURCE: ten_rows(77)}, **changes)
    plan = job.plan()
    assert plan.epoch == 2
    assert plan.recorded[Epoch(3)].inputs == {SOURCE: ten_rows(3)}


def test_an_epoch_whose_input_is_lost_in_all_places_is_not_replayed_over_other_input(
    job: Job,
) -> None:
    job.run(1, 2)
    for place in PLACES:
        epoch_object(job, 2, place).write_bytes(b"")
    with pytest.raises(NoValidCheckpoint, match="no record of its input is readable"):
        job.plan()


def test_the_input_of_the_newest_generation_counts(job: Job) -> None:
    """Generation 9 began epoch 2 over other input and died; generation 10 sealed it."""
    job.run(1)
    while job.claim.generation < 9:
        job.claim_again()
    abandoned = job.metadata(2)[0].model_copy(
        update={"input": InputRange(start={"row": 10}, end={"row": 99}, rows=89)}
    )
    job.backend.write_metadata([abandoned])
    job.claim_again()
    assert job.claim.generation == 10
    job.run(2)
    for place in ("manifest-0", "committed"):
        epoch_object(job, 2, place).write_bytes(b"")
    assert job.plan().recorded[Epoch(2)].inputs == {SOURCE: ten_rows(2)}


# ---------------------------------------------------------------- nothing can be used


def test_when_no_checkpoint_is_valid_all_reasons_are_given_and_nothing_is_touched(
    job: Job,
) -> None:
    job.run(1, 2, 3)
    job.path(job.files[0].path).unlink()
    manifest_path(job, 2).write_bytes(b"")
    manifest_path(job, 3).unlink()
    job.claim_again()
    before = job.stored()
    with pytest.raises(NoValidCheckpoint) as caught:
        job.backend.prepare_checkpoint_load(job.claim, 1)
    lines = caught.value.message.splitlines()
    assert lines[0] == "none of the checkpoints is usable:"
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["epoch 3", "epoch 2", "epoch 1"]
    assert "manifest is missing" in lines[1]
    assert "is not JSON" in lines[2]
    assert job.files[0].path in lines[3]
    assert job.stored() == before


def test_the_error_without_a_valid_checkpoint_is_repeatable(job: Job) -> None:
    job.run(1)
    newest_state_file(job).unlink()
    for _ in range(3):
        with pytest.raises(NoValidCheckpoint):
            job.plan()


@pytest.mark.parametrize("committed_too", [True, False])
def test_lost_manifests_never_cause_a_silent_restart_from_scratch(
    job: Job, committed_too: bool
) -> None:
    job.run(1, 2)
    for epoch in (1, 2):
        manifest_path(job, epoch).unlink()
        if committed_too:
            epoch_object(job, epoch, "committed").unlink()
    with pytest.raises(NoValidCheckpoint):
        job.plan()


@pytest.mark.parametrize("place", ["manifest-0", "operator-window-1-1"])
def test_a_record_of_a_newer_format_causes_a_fallback_and_is_named(job: Job, place: str) -> None:
    job.run(1)
    manifest = job.seal(2)
    path = epoch_object(job, 2, place)
    if place == "manifest-0":
        path.write_bytes(manifest.model_copy(update={"version": FORMAT_VERSION + 1}).encode())
    else:
        old = decode(OperatorCheckpointMetadata, path.read_bytes(), str(path))
        path.write_bytes(old.model_copy(update={"version": FORMAT_VERSION + 1}).encode())
        digest = object_digest(manifest.operators[WINDOW].path, path.read_bytes())
        changed = {**manifest.operators, WINDOW: digest}
        manifest_path(job, 2).write_bytes(
            manifest.model_copy(update={"operators": changed}).encode()
        )
    plan = job.plan()
    assert plan.epoch == 1
    assert f"format version {FORMAT_VERSION + 1}" in plan.fallbacks[0].reasons[0]


def test_a_job_whose_newest_generation_is_of_a_newer_format_is_refused(job: Job) -> None:
    job.run(1)
    record = job.claim.model_copy(update={"version": FORMAT_VERSION + 1, "generation": 7})
    job.backend.store.create(job.backend.paths.generation(Generation(7)), record.encode())
    before = job.stored()
    with pytest.raises(NewerFormat, match=f"format version {FORMAT_VERSION + 1}"):
        job.backend.claim_generation(NOW)
    assert job.stored() == before


def test_a_finished_job_is_known_to_be_finished(job: Job) -> None:
    manifest = job.seal(1)
    assert not job.plan().finished
    final = manifest.model_copy(update={"finished": True, "sealed_at": NOW + timedelta(seconds=1)})
    manifest_path(job, 1).write_bytes(final.encode())
    assert job.plan().finished
