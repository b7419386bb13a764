"""The owners of jobs, on a real Postgres: one lease per controller, judged by the server's clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from resurgence.control.fleet.assignment import Dead
from resurgence.control.jobs.job_record import (
    DesiredConfig,
    JobRecord,
    JobStatus,
    PipelineRecord,
    rescaled,
)
from resurgence.control.jobs.transitions import StateName
from resurgence.control.store.job_owners import JobOwners
from resurgence.control.store.metadata import MetadataStore
from resurgence.control.telemetry.events import Event
from resurgence.errors import JobLost
from resurgence.ids import ControllerId, JobName
from resurgence.state.protocol.ownership import owner_here
from resurgence.state.records import OwnerKind

A, B = ControllerId("a"), ControllerId("b")
JOBS = tuple(JobName(f"job{n}") for n in range(4))
NOW = datetime(2030, 1, 1, tzinfo=UTC)
PROCESS = owner_here(OwnerKind.SERVICE, "service", NOW)


@pytest.fixture
def store(postgres_url: str) -> Iterator[MetadataStore]:
    with closing(MetadataStore(postgres_url)) as opened:
        for name in JOBS:
            opened.create_job(
                JobRecord(name, PipelineRecord("", "state"), DesiredConfig(2), JobStatus(), NOW)
            )
        yield opened


@pytest.fixture
def owners(store: MetadataStore) -> JobOwners:
    """Two controllers without jobs."""
    opened = store.owners(timedelta(seconds=30))
    for each in (A, B):
        opened.join(each, PROCESS, f"http://{each}")
    return opened


def end_lease(url: str, who: ControllerId) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(
            "UPDATE controllers SET lease_until = now() - interval '1 ms' WHERE id = %s", [who]
        )


def owned_by(owners: JobOwners, who: ControllerId) -> list[JobName]:
    return [each for each in JOBS if owners.owns(who, each)]


def test_of_many_claims_of_one_job_one_succeeds(owners: JobOwners) -> None:
    together = threading.Barrier(6)

    def claim(who: ControllerId) -> set[JobName]:
        together.wait(10)
        return set(owners.claim(who, JOBS))

    with ThreadPoolExecutor(6) as pool:
        claimed = [each for each in pool.map(claim, [A, B] * 3) if each]
    assert sorted(name for each in claimed for name in each) == list(JOBS)
    assert sorted([*owned_by(owners, A), *owned_by(owners, B)]) == list(JOBS)


def test_all_controllers_and_jobs_are_read(owners: JobOwners, postgres_url: str) -> None:
    owners.claim(A, JOBS[:1])
    end_lease(postgres_url, B)
    assert owners.renew(A, leaving=True, reaches_storage=False)
    fleet = owners.fleet()
    a, b = sorted(fleet.peers, key=lambda each: each.id)
    assert (a.id, a.url, a.process) == (A, "http://a", PROCESS)
    assert (a.is_expired, a.is_fresh, a.is_leaving) == (False, True, True)
    assert (b.is_expired, b.is_fresh, b.is_leaving) == (True, False, False)
    assert (a.reaches_storage, b.reaches_storage) == (False, True)
    facts = {each.name: each for each in fleet.jobs}
    assert [facts[each].owner for each in JOBS] == [A, None, None, None]
    assert all(each.is_active and not each.is_running for each in fleet.jobs)


def test_a_controller_whose_lease_has_ended_loses_all_its_jobs(
    owners: JobOwners, postgres_url: str
) -> None:
    owners.claim(A, JOBS)
    end_lease(postgres_url, A)
    owners.declare_dead([Dead(A, is_proven=False)])
    assert not owners.renew(A, leaving=False)
    assert owners.claim(A, JOBS) == {}
    assert owners.claim(B, JOBS) == dict.fromkeys(JOBS, False)


def test_a_controller_that_renewed_in_the_meantime_is_spared(
    owners: JobOwners, postgres_url: str
) -> None:
    owners.claim(A, JOBS)
    end_lease(postgres_url, A)
    owners.renew(A, leaving=False)
    owners.declare_dead([Dead(A, is_proven=False)])
    assert owned_by(owners, A) == list(JOBS)


def test_the_workers_of_a_process_that_has_ended_wait_to_be_adopted(owners: JobOwners) -> None:
    owners.claim(A, JOBS[:2])
    owners.declare_dead([Dead(A, is_proven=True)])
    assert owners.claim(B, JOBS) == {JOBS[0]: True, JOBS[1]: True, JOBS[2]: False, JOBS[3]: False}
    owners.release(B, JOBS[0])
    owners.join(A, PROCESS, "")
    assert owners.claim(A, JOBS) == {JOBS[0]: False}


def test_only_the_owner_writes_about_a_job(store: MetadataStore, owners: JobOwners) -> None:
    owners.claim(A, JOBS[:1])
    running = JobStatus(state=StateName.RUNNING)
    for job in JOBS[:2]:
        with pytest.raises(JobLost):
            store.record_status(job, running, B)
    with pytest.raises(JobLost):
        store.delete_job(JOBS[0], B)
    event: Event = {"event": "state", "at": "2030-01-01T00:00:00Z"}
    store.record_events([(JOBS[0], event), (JOBS[1], event)], B)
    assert store.events(JOBS[0]) == store.events(JOBS[1]) == []
    owners.put_progress(B, {JOBS[0]: {"epoch": 7}})
    assert store.progress() == {}

    store.record_status(JOBS[0], running, A)
    store.record_events([(JOBS[0], event)], A)
    owners.put_progress(A, {JOBS[0]: {"epoch": 1}, JOBS[1]: {"epoch": 1}})
    owners.put_progress(A, {JOBS[0]: {"epoch": 2}})
    record = store.job(JOBS[0])
    assert record is not None
    assert record.status.state is StateName.RUNNING
    assert len(store.events(JOBS[0])) == 1
    assert store.progress() == {JOBS[0]: {"epoch": 2}}


def test_one_that_leaves_frees_what_it_still_has(owners: JobOwners) -> None:
    owners.claim(A, JOBS)
    owners.leave(A)
    assert not owners.renew(A, leaving=True)
    assert set(owners.claim(B, JOBS)) == set(JOBS)


def test_a_request_notifies_every_listener(store: MetadataStore, postgres_url: str) -> None:
    heard, ended = threading.Semaphore(0), threading.Event()
    with closing(MetadataStore(postgres_url)) as other:
        listening = threading.Thread(target=other.listen, args=(heard.release, ended))
        listening.start()
        assert heard.acquire(timeout=10)  # it listens
        store.change_desired(JOBS[0], lambda record: rescaled(record.desired, 3), NOW)
        assert heard.acquire(timeout=10)
        ended.set()
        store.change_desired(JOBS[0], lambda record: rescaled(record.desired, 4), NOW)
        listening.join(10)
        assert not listening.is_alive()


def test_a_change_counts_as_a_revision(store: MetadataStore) -> None:
    changed = store.change_desired(JOBS[0], lambda record: rescaled(record.desired, 3), NOW)
    assert changed.revision == 1
    (found,) = store.jobs([JOBS[0]])
    assert found == changed


def test_a_frozen_holder_of_the_turn_for_files_excludes_others_only_for_a_while(
    store: MetadataStore, postgres_url: str
) -> None:
    order: list[str] = []
    entered = threading.Event()

    def hold() -> None:
        with store.files_turn():
            entered.set()
            time.sleep(0.3)
            order.append("first")

    with ThreadPoolExecutor(1) as pool, closing(MetadataStore(postgres_url)) as other:
        held = pool.submit(hold)
        assert entered.wait(10)
        with other.files_turn():
            order.append("second")
        held.result(10)
    assert order == ["first", "second"]
