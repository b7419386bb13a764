"""Leases: which process runs a job, when that blocks others, and when it does not."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from resurgence.errors import JobHeld, Retired, TakenOver
from resurgence.ids import Generation, JobIdentity, JobName
from resurgence.state.backend import StateBackend
from resurgence.state.protocol.ownership import (
    LEASE,
    Free,
    HeldBy,
    Sighting,
    is_running,
    judge,
    owner_here,
)
from resurgence.state.records import LeaseRecord, Owner, OwnerKind
from resurgence.storage.object_store import ObjectStore

NOW = datetime(2030, 1, 1, tzinfo=UTC)
MOMENT = timedelta(seconds=1)
ELSEWHERE = Owner(
    id="other",
    kind=OwnerKind.SERVICE,
    host="far-away",
    pid=1,
    since=NOW,
    process_space="another boot",
    process_started="1",
)


def lease(renewed_at: datetime = NOW) -> LeaseRecord:
    return LeaseRecord(
        job=JobIdentity("job"), generation=Generation(1), owner=ELSEWHERE, renewed_at=renewed_at
    )


def backend(folder: Path) -> StateBackend:
    return StateBackend(ObjectStore(str(folder)), JobName("rides"))


def run_here(identity: str = "mine") -> Owner:
    return owner_here(OwnerKind.RUN, identity, NOW)


def of_process(pid: int) -> Owner:
    """An owner on this host, as it looks while the process lives."""
    started = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    return run_here("child").model_copy(update={"pid": pid, "process_started": started})


# ---------------------------------------------------------------- the decision


def test_a_job_without_a_lease_is_free() -> None:
    assert judge(None, "me", NOW, process_runs=None) == Free()


def test_an_owner_may_claim_its_own_job_again() -> None:
    assert judge(lease(), "other", NOW, process_runs=True) == Free()


def test_a_live_process_on_this_host_holds_the_job_however_old_its_lease_is() -> None:
    held = lease(NOW - 100 * LEASE)
    assert judge(held, "me", NOW, process_runs=True) == HeldBy(held, proven=True)


def test_a_dead_process_on_this_host_does_not_hold_the_job() -> None:
    assert judge(lease(NOW), "me", NOW, process_runs=False) == Free()


def test_an_expired_lease_of_another_host_is_free() -> None:
    assert judge(lease(NOW - LEASE), "me", NOW, process_runs=None) == Free()


def test_a_fresh_lease_elsewhere_proves_nothing_until_it_is_renewed() -> None:
    first, renewed = lease(NOW), lease(NOW + MOMENT)
    before = Sighting(NOW, NOW)
    later = NOW + 2 * MOMENT
    assert judge(first, "me", NOW, process_runs=None) == HeldBy(first, proven=False)
    unchanged = judge(first, "me", later, process_runs=None, before=before)
    assert unchanged == HeldBy(first, proven=False)
    seen_renewed = judge(renewed, "me", later, process_runs=None, before=before)
    assert seen_renewed == HeldBy(renewed, proven=True)


def test_a_lease_of_a_host_whose_clock_is_ahead_expires_too() -> None:
    ahead = lease(NOW + timedelta(hours=1))
    before = Sighting(ahead.renewed_at, NOW)
    watching = judge(ahead, "me", NOW + LEASE - MOMENT, process_runs=None, before=before)
    assert isinstance(watching, HeldBy)
    assert judge(ahead, "me", NOW + LEASE, process_runs=None, before=before) == Free()


# ---------------------------------------------------------------- processes


def test_this_process_is_running() -> None:
    assert is_running(run_here()) is True


def test_a_process_that_was_killed_is_not_running_even_before_it_is_reaped() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = of_process(child.pid)
    assert is_running(owner) is True
    child.kill()
    with pytest.raises(subprocess.TimeoutExpired):
        # Long enough to be killed, and not reaped: `communicate` would do that.
        subprocess.run(["sleep", "5"], timeout=0.3)
    assert is_running(owner) is False
    child.communicate()
    assert is_running(owner) is False


def test_another_process_with_the_number_of_the_owner_is_not_the_owner() -> None:
    assert is_running(run_here().model_copy(update={"process_started": "1"})) is False


def test_a_process_on_another_host_cannot_be_seen() -> None:
    assert is_running(ELSEWHERE) is None


# ---------------------------------------------------------------- claims


def test_a_claim_names_the_live_owner_and_writes_nothing(tmp_path: Path) -> None:
    job = backend(tmp_path)
    job.claim_generation(NOW, owner=run_here("first"))
    before = job.store.list("")
    second = run_here("second")
    with pytest.raises(JobHeld) as refused:
        job.claim_generation(
            NOW,
            owner=second,
            permit=lambda newest: job.leases.require_free(newest, second, NOW),
        )
    assert f"job 'rides' has been run by {run_here().description} since 2030-01-01" in str(
        refused.value
    )
    assert "--take-over" in refused.value.hint
    assert job.store.list("") == before


def test_a_released_lease_frees_the_job_although_its_owner_is_running(tmp_path: Path) -> None:
    job = backend(tmp_path)
    claim = job.claim_generation(NOW, owner=run_here("first"))
    job.leases.release(claim.generation)
    job.leases.require_free(claim.generation, run_here("second"), NOW)


def test_an_unreadable_lease_does_not_block_a_claim(tmp_path: Path) -> None:
    job = backend(tmp_path)
    claim = job.claim_generation(NOW, owner=run_here("first"))
    (tmp_path / job.paths.lease(claim.generation)).write_bytes(b"{")
    job.leases.require_free(claim.generation, run_here("second"), NOW)


def test_a_claim_leaves_one_lease_behind(tmp_path: Path) -> None:
    job = backend(tmp_path)
    first = job.claim_generation(NOW, owner=run_here("first"))
    job.claim_generation(NOW, owner=ELSEWHERE)
    # The loser has not heard of it yet, and renews.
    job.leases.renew(first.job, first.generation, run_here("first"), NOW)
    third = job.claim_generation(NOW, owner=run_here("third"))
    assert [each.path for each in job.store.list(job.paths.leases)] == [
        job.paths.lease(third.generation)
    ]


def test_the_fenced_owner_is_told_who_took_the_job_over(tmp_path: Path) -> None:
    job = backend(tmp_path)
    mine = job.claim_generation(NOW, owner=run_here())
    job.claim_generation(NOW, owner=ELSEWHERE)
    with pytest.raises(
        TakenOver, match=r"a service on far-away \(pid 1\) took over the job at 2030"
    ):
        job.require_newest(mine.generation)


def test_a_generation_that_its_own_controller_replaced_was_not_taken_over(tmp_path: Path) -> None:
    job = backend(tmp_path)
    mine = job.claim_generation(NOW, owner=run_here())
    job.claim_generation(NOW, owner=run_here())
    with pytest.raises(Retired) as retired:
        job.require_newest(mine.generation)
    assert not isinstance(retired.value, TakenOver)
