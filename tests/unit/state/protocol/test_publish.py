"""Publishing: one manifest per epoch and attempt, by the newest generation only."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from resurgence.errors import DamagedState, ObjectMissing, Retired, RetryHint, SealLost
from resurgence.ids import Epoch
from resurgence.state.protocol.checkpoint_records import read_checkpoint
from resurgence.state.records import (
    EpochCounts,
    Manifest,
    Totals,
)

if TYPE_CHECKING:
    from tests.unit.state.conftest import Job

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def test_publish_stops_when_generation_is_stale(job: Job) -> None:
    job.run(1)
    digests = job.backend.write_metadata(job.metadata(2))
    job.backend.claim_generation(NOW)
    manifest = Manifest(
        job=job.claim.job,
        epoch=Epoch(2),
        attempt=0,
        generation=job.claim.generation,
        parent=Epoch(1),
        operators=digests,
        inputs={},
        totals=Totals(since=Epoch(1), counts=EpochCounts()),
        began_at=NOW,
        sealed_at=NOW,
    )
    with pytest.raises(Retired, match="fenced out"):
        job.backend.publish(manifest)
    assert not job.path("rides/epochs/0000000002/manifest-0.json").exists()


def test_a_manifest_is_created_only_once(job: Job) -> None:
    sealed = job.seal(1)
    other = sealed.model_copy(update={"sealed_at": NOW + timedelta(seconds=1)})
    with pytest.raises(Retired, match="epoch 1 was already sealed by another generation"):
        job.backend.publish(other)
    records = read_checkpoint(job.backend.store, "rides/epochs/0000000001/manifest-0.json")
    assert records.manifest == sealed


def test_an_older_generation_that_sealed_at_the_last_moment_is_recovered_from(job: Job) -> None:
    job.run(1)
    older = job.seal(2)
    job.claim_again()
    newer = older.model_copy(update={"generation": job.claim.generation})
    with pytest.raises(SealLost) as caught:
        job.backend.publish(newer)
    assert caught.value.retry_hint is RetryHint.WITH_BACKOFF
    plan = job.plan()
    assert (plan.epoch, plan.commit_pending) == (2, True)


def test_of_concurrent_publishes_of_an_epoch_one_wins(job: Job) -> None:
    sealed = job.seal(1)
    rivals = [
        sealed.model_copy(update={"epoch": Epoch(2), "sealed_at": NOW + timedelta(seconds=number)})
        for number in range(16)
    ]

    def publish(manifest: Manifest) -> bool:
        try:
            job.backend.publish(manifest)
        except Retired:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        won = list(threads.map(publish, rivals))
    assert won.count(True) == 1
    stored = job.path("rides/epochs/0000000002/manifest-0.json").read_bytes()
    assert stored == rivals[won.index(True)].encode()


def test_a_create_whose_response_was_lost_may_be_retried(job: Job) -> None:
    manifest = job.seal(1)
    job.backend.publish(manifest)


def test_metadata_is_never_overwritten(job: Job) -> None:
    metadata = job.metadata(1)
    first = job.backend.write_metadata(metadata)
    assert job.backend.write_metadata(metadata) == first
    changed = [each.model_copy(update={"parallelism": 7}) for each in metadata]
    with pytest.raises(Retired, match="was already written by another process"):
        job.backend.write_metadata(changed)


def test_a_checkpoint_reads_back_as_it_was_written(job: Job) -> None:
    manifest = job.seal(1)
    records = read_checkpoint(job.backend.store, "rides/epochs/0000000001/manifest-0.json")
    assert records.manifest == manifest
    assert list(records.operators.values()) == job.metadata(1)
    assert records.unusable == ()


def test_reading_a_damaged_checkpoint_reports_the_damage(job: Job) -> None:
    job.seal(1)
    path = job.path("rides/epochs/0000000001/operator-window-1-1.json")
    path.write_bytes(path.read_bytes().replace(b'"parallelism":1', b'"parallelism":2'))
    records = read_checkpoint(job.backend.store, "rides/epochs/0000000001/manifest-0.json")
    (damage,) = records.unusable
    assert isinstance(damage, DamagedState)
    assert "metadata of window-1 does not match its digest" in damage.message
    (missing,) = read_checkpoint(
        job.backend.store, "rides/epochs/0000000009/manifest-0.json"
    ).unusable
    assert isinstance(missing, ObjectMissing)


def test_committed_is_recorded_once_and_the_first_record_stays(job: Job) -> None:
    assert not job.backend.is_committed(Epoch(1))
    job.run(1)
    first = job.stored()
    job.claim_again()
    job.commit(1)
    assert job.backend.is_committed(Epoch(1))
    path = "rides/epochs/0000000001/committed.json"
    assert job.stored()[path] == first[path]
