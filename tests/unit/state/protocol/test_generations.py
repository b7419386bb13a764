"""Generations: claimed once each, carrying the job's identity, and fencing out older ones."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from resurgence.errors import IdentityMissing, NewerFormat, Retired
from resurgence.ids import Generation, JobName
from resurgence.state.backend import StateBackend
from resurgence.state.records import FORMAT_VERSION, GenerationRecord
from resurgence.storage.object_store import ObjectStore

if TYPE_CHECKING:
    from tests.unit.state.conftest import Job

NOW = datetime(2030, 1, 1, tzinfo=UTC)
WRITTEN = f'"version":{FORMAT_VERSION}'.encode()


def test_generations_count_from_one_and_keep_the_identity(job: Job) -> None:
    second = job.backend.claim_generation(NOW)
    third = StateBackend(job.backend.store, JobName("rides")).claim_generation(NOW)
    assert [job.claim.generation, second.generation, third.generation] == [1, 2, 3]
    assert job.claim.job == second.job == third.job


def test_jobs_of_different_names_have_different_identities(job: Job) -> None:
    other = StateBackend(job.backend.store, JobName("other")).claim_generation(NOW)
    assert other.generation == 1
    assert other.job != job.claim.job


def test_concurrent_claims_get_distinct_generations_and_one_identity(tmp_path: Path) -> None:
    claims = 24

    def claim(_number: int) -> GenerationRecord:
        backend = StateBackend(ObjectStore(str(tmp_path)), JobName("rides"))
        return backend.claim_generation(NOW)

    with ThreadPoolExecutor(8) as threads:
        records = list(threads.map(claim, range(claims)))
    assert sorted(each.generation for each in records) == list(range(1, claims + 1))
    assert len({each.job for each in records}) == 1


def test_a_missing_identity_is_an_error_and_never_a_new_identity(job: Job) -> None:
    job.run(1)
    job.path("rides/generations/0000000001.json").unlink()
    before = job.stored()
    with pytest.raises(IdentityMissing, match="no record of the job that they belong to"):
        job.backend.claim_generation(NOW)
    assert job.stored() == before


def test_a_damaged_identity_is_an_error_and_never_a_new_identity(job: Job) -> None:
    job.run(1)
    job.path("rides/generations/0000000001.json").write_bytes(b"")
    with pytest.raises(IdentityMissing):
        job.backend.claim_generation(NOW)


def test_the_identity_is_taken_from_any_generation_that_can_be_read(job: Job) -> None:
    job.run(1)
    identity = job.claim.job
    job.claim_again()
    job.path("rides/generations/0000000002.json").write_bytes(b"{")
    claim = job.backend.claim_generation(NOW)
    assert (claim.generation, claim.job) == (3, identity)


def test_an_identity_of_a_newer_format_is_refused(job: Job) -> None:
    newer = job.claim.model_copy(
        update={"version": FORMAT_VERSION + 1, "generation": Generation(2)}
    )
    job.backend.store.create("rides/generations/0000000002.json", newer.encode())
    with pytest.raises(NewerFormat):
        job.backend.claim_generation(NOW)


def test_a_damaged_generation_that_only_looks_newer_is_ignored(job: Job) -> None:
    identity = job.claim.job
    job.claim_again()
    path = job.path("rides/generations/0000000002.json")
    path.write_bytes(path.read_bytes().replace(WRITTEN, b'"version":99'))
    claim = job.backend.claim_generation(NOW)
    assert (claim.generation, claim.job) == (3, identity)


def test_a_job_whose_only_generation_looks_newer_is_refused(job: Job) -> None:
    path = job.path("rides/generations/0000000001.json")
    path.write_bytes(path.read_bytes().replace(WRITTEN, b'"version":99'))
    with pytest.raises(NewerFormat):
        job.backend.claim_generation(NOW)


def test_only_the_newest_generation_passes_the_fence(job: Job) -> None:
    job.backend.require_newest(job.claim.generation)
    newer = job.backend.claim_generation(NOW)
    job.backend.require_newest(newer.generation)
    with pytest.raises(Retired, match="generation 1 was fenced out by generation 2"):
        job.backend.require_newest(job.claim.generation)
