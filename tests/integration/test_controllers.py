"""Several controllers on one Postgres: real processes that are killed, frozen and restarted, and a
database that is away. Workers are processes without Spark that write real checkpoints;
`test_service.py` kills a controller of real ones.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.integration.controllers import (
    BUSY_SECONDS,
    JOBS,
    LEASE_SECONDS,
    Process,
    Stage,
    staged,
)
from tests.postgres import PostgresServer


@pytest.fixture
def stage(tmp_path: Path, postgres_url: str) -> Iterator[Stage]:
    state = str(tmp_path / "state")
    processes = [Process(tmp_path, postgres_url, state) for _ in range(3)]
    with staged(Stage(tmp_path, postgres_url, state, processes)) as opened:
        yield opened


@pytest.mark.long
def test_every_controller_answers_requests_for_every_job(stage: Stage) -> None:
    for process in stage.processes:
        listed = process.call("GET", "/v1/jobs")["jobs"]
        assert [each["name"] for each in listed] == list(JOBS)
        answer = process.call("GET", "/v1/workers")
        assert sorted(each["job"] for each in answer["workers"]) == list(JOBS)
        assert answer["unreachable"] == []
        for job in JOBS:
            assert process.call("GET", f"/v1/jobs/{job}")["status"]["state"] == "Running"
            assert process.call("GET", f"/v1/jobs/{job}/events")["events"]
            assert "this is" in process.request("GET", f"/v1/jobs/{job}/logs").text
    first, second, third = stage.processes
    (job, *_) = stage.owned_by(second)
    stage.until(
        lambda: first.call("GET", f"/v1/jobs/{job}")["progress"].get("committed_epoch", 0) > 2,
        "progress of a job elsewhere is shown",
    )
    log = first.request("GET", f"/v1/jobs/{job}/logs")
    assert log.headers["X-Log-Worker"] == log.headers["X-Log-Newest"]
    params = {"worker": log.headers["X-Log-Worker"], "after": 5}
    assert first.request("GET", f"/v1/jobs/{job}/logs", params=params).text == log.text[5:]
    with pytest.raises(httpx.HTTPStatusError, match="404"):
        first.call("GET", f"/v1/jobs/{job}/logs", params={"worker": "unknown"})

    first.cli("rescale", job, "3")
    stage.until(
        lambda: first.call("GET", f"/v1/jobs/{job}")["status"]["parallelism"] == 3, "it is rescaled"
    )
    third.cli("stop", job, "--mode", "checkpoint")
    stage.until(lambda: stage.statuses()[job][0] == "Stopped", "it is stopped")
    first.cli("start", job)
    stage.until(lambda: stage.statuses()[job][0] == "Running", "it is started")
    first.cli("delete", job, "--yes")
    stage.until(lambda: job not in stage.statuses(), "it is deleted")
    with pytest.raises(httpx.HTTPStatusError, match="404"):
        first.call("GET", f"/v1/jobs/{job}")
    listed = json.loads(third.cli("workers", "--json"))
    assert sorted({each["job"] for each in listed}) == sorted(set(JOBS) - {job})


def test_the_jobs_of_a_killed_controller_are_adopted_and_those_of_a_frozen_one_taken_over(
    stage: Stage,
) -> None:
    killed, frozen, _ = stage.processes
    workers, before = stage.workers(), stage.statuses()
    killed.signal(signal.SIGKILL)
    stage.until(lambda: stage.is_spread(2), "the others have its jobs")
    stage.until(lambda: stage.statuses() == before, "they have adopted its workers")
    stage.advance("all jobs go on")
    assert stage.workers() == workers
    assert stage.events("failure") == []
    killed.wait()
    killed.start()
    stage.until(lambda: stage.is_settled(3), "it has its share again")
    stage.advance("all jobs go on")
    assert stage.events("failure") == []

    its_jobs, before = stage.owned_by(frozen), stage.statuses()
    frozen.signal(signal.SIGSTOP)
    took = stage.until(lambda: stage.is_spread(2), "the others have its jobs")
    assert took < LEASE_SECONDS + BUSY_SECONDS
    stage.until(lambda: stage.run_anew(its_jobs, before), "they run them")
    stage.advance("all jobs go on")
    frozen.signal(signal.SIGCONT)
    stage.until(lambda: stage.is_settled(3), "it has a share again")
    stage.advance("all jobs go on")
    held = [each["job"] for each in frozen.call("GET", "/v1/workers")["workers"]]
    assert sorted(held) == list(JOBS)
    stage.require_one_owner_per_epoch()


@pytest.mark.long
def test_nothing_moves_while_the_database_is_away_and_when_it_is_back(
    stage: Stage, postgres_server: PostgresServer
) -> None:
    owners, statuses, workers = stage.owners(), stage.statuses(), stage.workers()
    postgres_server.kill()
    gone_at = time.monotonic()
    while time.monotonic() < gone_at + 2 * LEASE_SECONDS:
        stage.advance("jobs go on without the database")
    postgres_server.start()
    stage.until(lambda: all(each.is_ready() for each in stage.processes), "it is back")
    back_at = time.monotonic()
    while time.monotonic() < back_at + 2 * LEASE_SECONDS:
        stage.advance("all jobs go on")
        assert stage.owners() == owners
    assert (stage.statuses(), stage.workers()) == (statuses, workers)
    stage.require_one_owner_per_epoch()


@pytest.mark.long
def test_a_worker_lost_while_the_database_is_away_is_replaced_by_the_owner(
    stage: Stage, postgres_server: PostgresServer
) -> None:
    before, workers = stage.progress(), stage.workers()
    postgres_server.kill()
    time.sleep(1.5 * LEASE_SECONDS)
    (job, pid), *_ = workers.items()
    os.kill(pid, signal.SIGKILL)
    seen = stage.progress()[job]
    stage.until(lambda: stage.progress()[job] > seen + 3, "it goes on without the database")
    postgres_server.start()
    stage.until(lambda: stage.statuses()[job] == ("Running", 2), "its status is stored")
    assert stage.progress()[job] > before[job]
    stage.require_one_owner_per_epoch()


@pytest.mark.long
def test_a_rolling_restart_moves_jobs_at_a_checkpoint(stage: Stage) -> None:
    for process in stage.processes:
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
        stage.until(lambda: stage.is_settled(2), "the others have its jobs")
        process.start()
        stage.until(lambda: stage.is_settled(3), "it has its share again")
    stage.advance("all jobs go on")
    assert stage.events("failure") == stage.events("incident") == []
    stage.require_one_owner_per_epoch()
