"""Several controllers on one Postgres: real processes that are killed, frozen, restarted and cut off.
Workers are processes without Spark that write real checkpoints.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from resurgence.ids import JobName
from resurgence.state.backend import StateBackend
from resurgence.state.records import Manifest, decode
from resurgence.storage.object_store import ObjectStore
from tests.integration.test_service import TICKS, free_port
from tests.postgres import PostgresServer

ROOT = Path(__file__).parents[2]
DEADLINE_SECONDS = 120.0
LEASE_SECONDS = 4
SETTINGS = (
    f"controller.lease={LEASE_SECONDS}s",
    "controller.adopt_timeout=30s",
    "pipeline.epoch_interval=200ms",
    "pipeline.heartbeat_interval=200ms",
    "pipeline.initial_backoff=50ms",
    "pipeline.maximal_backoff=200ms",
)
JOBS = tuple(f"job{n}" for n in range(6))


@dataclass
class Process:
    """One `serve` process."""

    folder: Path
    database: str
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.integration.stand_in_service", "serve"]
        settings = [word for each in SETTINGS for word in ("--set", each)]
        path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        with (self.folder / f"serve-{self.port}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--port", str(self.port), *settings],
                cwd=self.folder,
                env={**os.environ, "RESURGENCE_DATABASE": self.database, "PYTHONPATH": path},
                stdout=log,
                stderr=log,
            )

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(60)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)

    def call(self, method: str, path: str, **options: Any) -> Any:
        url = f"http://127.0.0.1:{self.port}{path}"
        return httpx.request(method, url, timeout=30, **options).raise_for_status().json()

    def is_ready(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            self.call("GET", "/ready")
            return True
        return False


@dataclass
class Stage:
    """Three controllers, their database and their storage."""

    folder: Path
    database: str
    processes: list[Process]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        give_up_at = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            if time.monotonic() > give_up_at:
                logs = "\n".join(
                    f"{each}\n{each.read_text()[-3000:]}"
                    for each in self.folder.glob("serve-*.log")
                )
                pytest.fail(f"it did not come to this: {what}\n{self.owners()}\n{logs}")
            time.sleep(0.1)

    def rows(self, query: str) -> list[Any]:
        with psycopg.connect(self.database) as connection:
            return connection.execute(query.encode()).fetchall()

    def owners(self) -> dict[str, str]:
        """The process that owns each job, by the port of its API."""
        return {
            name: url.rpartition(":")[2]
            for name, url in self.rows(
                "SELECT name, url FROM jobs JOIN controllers ON controllers.id = jobs.owner"
            )
        }

    def owned_by(self, process: Process) -> list[str]:
        return [name for name, port in self.owners().items() if port == str(process.port)]

    def is_spread(self, controllers: int) -> bool:
        loads = Counter(self.owners().values())
        return sorted(loads.values()) == [len(JOBS) // controllers] * controllers

    def statuses(self) -> dict[str, tuple[str, int]]:
        """State and generation of each job."""
        rows = self.rows("SELECT job, state, generation FROM statuses")
        return {job: (state, generation) for job, state, generation in rows}

    def all_run(self) -> bool:
        return all(state == "Running" for state, _ in self.statuses().values())

    def sealed(self, job: str) -> list[tuple[int, int]]:
        """Each sealed epoch and its generation, in order."""
        backend = StateBackend(ObjectStore(str(self.folder / "state")), JobName(job))
        found: list[tuple[int, int]] = []
        for epoch in sorted(backend.epochs()):
            for path in (self.folder / "state" / job).glob(f"epochs/*{epoch}/manifest*"):
                record = decode(Manifest, path.read_bytes(), str(path))
                if record.epoch == epoch:
                    found.append((record.epoch, record.generation))
        return found

    def progress(self) -> dict[str, int]:
        return {job: len(self.sealed(job)) for job in JOBS}

    def advance(self, what: str) -> None:
        """Wait until every job has sealed more epochs."""
        before = self.progress()
        self.until(
            lambda: all(epoch > before[job] + 1 for job, epoch in self.progress().items()), what
        )

    def require_one_owner_per_epoch(self) -> None:
        """No epoch is sealed twice or skipped, and no generation seals after a newer one."""
        for job in JOBS:
            epochs = self.sealed(job)
            assert [epoch for epoch, _ in epochs] == list(range(1, len(epochs) + 1)), job
            assert all(one[1] <= other[1] for one, other in pairwise(epochs)), epochs

    def events(self, kind: str) -> list[str]:
        return [job for (job,) in self.rows(f"SELECT job FROM events WHERE event = '{kind}'")]

    def workers(self) -> dict[str, int]:
        rows = self.rows("SELECT job, (worker::json ->> 'pid')::int FROM statuses")
        return dict(rows)


@pytest.fixture
def stage(tmp_path: Path, postgres_url: str) -> Iterator[Stage]:
    """Six running jobs, two on each controller."""
    with ExitStack() as ending:
        processes = [Process(tmp_path, postgres_url) for _ in range(3)]
        stage = Stage(tmp_path, postgres_url, processes)
        ending.callback(end_workers, stage)
        for each in processes:
            ending.callback(each.close)
            each.start()
        stage.until(lambda: all(each.is_ready() for each in processes), "they are ready")
        stage.until(
            lambda: stage.rows("SELECT count(*) FROM controllers") == [(3,)], "they have joined"
        )
        for n, job in enumerate(JOBS):
            new = {"name": job, "sql": TICKS, "state_url": str(tmp_path / "state")}
            processes[n % 3].call("POST", "/v1/jobs", json=new)
        stage.until(lambda: stage.is_spread(3), "each has two jobs")
        stage.until(stage.all_run, "all jobs run")
        stage.advance("all jobs seal epochs")
        yield stage


def end_workers(stage: Stage) -> None:
    """End what is left of the workers, however the test ended."""
    for arguments in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = arguments.read_bytes().split(b"\0")
            folder = (arguments.parent / "cwd").readlink()
            if b"tests.integration.stand_in_worker" in words and folder == stage.folder:
                os.kill(int(arguments.parent.name), signal.SIGKILL)


def test_every_controller_answers_requests_for_every_job(stage: Stage) -> None:
    for process in stage.processes:
        listed = process.call("GET", "/v1/jobs")["jobs"]
        assert [each["name"] for each in listed] == list(JOBS)
        for job in JOBS:
            found = process.call("GET", f"/v1/jobs/{job}")
            assert found["status"]["state"] == "Running"
            assert process.call("GET", f"/v1/jobs/{job}/events")["events"]
    first, second, _ = stage.processes
    (job, *_) = stage.owned_by(second)
    stage.until(
        lambda: first.call("GET", f"/v1/jobs/{job}")["progress"].get("committed_epoch", 0) > 2,
        "progress of a job elsewhere is shown",
    )
    first.call("POST", f"/v1/jobs/{job}/rescale", json={"parallelism": 3})
    stage.until(
        lambda: first.call("GET", f"/v1/jobs/{job}")["status"]["parallelism"] == 3, "it is rescaled"
    )
    first.call("POST", f"/v1/jobs/{job}/stop", json={})
    stage.until(lambda: stage.statuses()[job][0] == "Stopped", "it is stopped")
    first.call("POST", f"/v1/jobs/{job}/start")
    stage.until(lambda: stage.statuses()[job][0] == "Running", "it is started")
    first.call("DELETE", f"/v1/jobs/{job}")
    stage.until(lambda: job not in stage.statuses(), "it is deleted")
    with pytest.raises(httpx.HTTPStatusError, match="404"):
        first.call("GET", f"/v1/jobs/{job}")


def test_the_jobs_of_a_killed_controller_are_adopted_by_the_others(stage: Stage) -> None:
    victim = stage.processes[1]
    workers, generations = stage.workers(), stage.statuses()
    victim.signal(signal.SIGKILL)
    stage.until(lambda: stage.is_spread(2), "the others have its jobs")
    stage.until(lambda: stage.statuses() == generations, "they have adopted its workers")
    stage.advance("all jobs go on")
    assert stage.workers() == workers
    assert stage.events("failure") == []
    victim.wait()
    victim.start()
    stage.until(lambda: stage.is_spread(3) and stage.all_run(), "it has its share again")
    stage.advance("all jobs go on")
    assert stage.events("failure") == []
    stage.require_one_owner_per_epoch()


def test_the_jobs_of_a_frozen_controller_are_taken_over_and_it_lets_go_of_them(
    stage: Stage,
) -> None:
    victim = stage.processes[0]
    its_jobs, before = stage.owned_by(victim), stage.statuses()
    victim.signal(signal.SIGSTOP)
    stage.until(lambda: stage.is_spread(2) and stage.all_run(), "the others have its jobs")
    stage.until(
        lambda: all(stage.statuses()[job][1] > before[job][1] for job in its_jobs),
        "its generations are fenced out",
    )
    stage.advance("all jobs go on")
    victim.signal(signal.SIGCONT)
    stage.until(lambda: stage.is_spread(3) and stage.all_run(), "it has a share again")
    stage.advance("all jobs go on")
    alive = [each["pid"] for each in victim.call("GET", "/v1/workers")["workers"]]
    assert len(alive) == 2
    stage.require_one_owner_per_epoch()


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


def test_a_rolling_restart_moves_jobs_at_a_checkpoint(stage: Stage) -> None:
    for process in stage.processes:
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
        stage.until(lambda: stage.is_spread(2) and stage.all_run(), "the others have its jobs")
        process.start()
        stage.until(lambda: stage.is_spread(3) and stage.all_run(), "it has its share again")
    stage.advance("all jobs go on")
    assert stage.events("failure") == stage.events("incident") == []
    stage.require_one_owner_per_epoch()
