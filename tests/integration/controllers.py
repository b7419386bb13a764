"""Three controllers on one Postgres, as processes that a test kills, freezes, restarts and cuts off.
Their workers are processes without Spark that write real checkpoints.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from resurgence.ids import Epoch, JobName
from resurgence.state.backend import StateBackend
from resurgence.state.paths import epoch_object
from resurgence.state.records import CommittedRecord, Manifest, decode
from resurgence.storage.object_store import ObjectStore
from tests.integration.test_service import TICKS, free_port

ROOT = Path(__file__).parents[2]
DEADLINE_SECONDS = 90.0
LEASE_SECONDS = 6
BUSY_SECONDS = 15
"""How much longer than a lease a take-over may take on a busy machine."""
SETTINGS = (
    f"controller.lease={LEASE_SECONDS}s",
    "controller.adopt_timeout=30s",
    "pipeline.epoch_interval=200ms",
    "pipeline.heartbeat_interval=200ms",
    "pipeline.heartbeat_timeout=5s",
    "pipeline.initial_backoff=50ms",
    "pipeline.maximal_backoff=200ms",
)
JOBS = tuple(f"job{n}" for n in range(3))


@dataclass
class Process:
    """One `serve` process."""

    folder: Path
    database: str
    state_url: str
    port: int = field(default_factory=free_port)
    prefix: Sequence[str] = ()
    """A command that runs the rest of its words."""
    variables: Mapping[str, str] = field(default_factory=dict)
    reached_at: int = 0
    """The port at which this process reaches its API; 0: the same."""
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.integration.stand_in_service", "serve"]
        settings = [word for each in SETTINGS for word in ("--set", each)]
        options = ["--port", str(self.port), "--state-dir", self.state_url]
        path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        common = {"RESURGENCE_DATABASE": self.database, "PYTHONPATH": path}
        with (self.folder / f"serve-{self.port}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, *command, *options, *settings],
                cwd=self.folder,
                env={**os.environ, **common, **self.variables},
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

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        url = f"http://127.0.0.1:{self.reached_at or self.port}{path}"
        return httpx.request(method, url, timeout=30, **options).raise_for_status()

    def call(self, method: str, path: str, **options: Any) -> Any:
        return self.request(method, path, **options).json()

    def cli(self, *words: str) -> str:
        """What a command prints."""
        server = f"http://127.0.0.1:{self.reached_at or self.port}"
        done = subprocess.run(
            [sys.executable, "-m", "resurgence", *words, "--server", server],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def is_ready(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            self.request("GET", "/ready")
            return True
        return False


@dataclass
class Stage:
    """Three controllers, their database and their storage."""

    folder: Path
    database: str
    state_url: str
    processes: list[Process]

    def until(self, condition: Callable[[], bool], what: str) -> float:
        """Wait; return how many seconds it took."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() > began + DEADLINE_SECONDS:
                logs = "\n".join(
                    f"{each}\n{each.read_text()[-3000:]}"
                    for each in self.folder.rglob("serve-*.log")
                )
                pytest.fail(f"not reached: {what}\n{self.owners()}\n{self.statuses()}\n{logs}")
            time.sleep(0.1)
        return time.monotonic() - began

    def rows(self, query: str) -> list[Any]:
        with psycopg.connect(self.database) as connection:
            return connection.execute(query.encode()).fetchall()

    def owners(self) -> dict[str, str]:
        """The controller that owns each job, by the port of its API."""
        return {
            name: url.rpartition(":")[2]
            for name, url in self.rows(
                "SELECT name, url FROM jobs JOIN controllers ON controllers.id = jobs.owner"
            )
        }

    def owned_by(self, process: Process) -> list[str]:
        return [name for name, port in self.owners().items() if port == str(process.port)]

    def is_spread(self, controllers: int) -> bool:
        """Whether so many controllers share all jobs evenly."""
        loads = Counter(self.owners().values()).values()
        is_even = max(loads, default=0) - min(loads, default=0) <= 1
        return len(loads) == controllers and sum(loads) == len(JOBS) and is_even

    def is_settled(self, controllers: int) -> bool:
        return self.is_spread(controllers) and self.all_run()

    def statuses(self) -> dict[str, tuple[str, int]]:
        """State and generation of each job."""
        rows = self.rows("SELECT job, state, generation FROM statuses")
        return {job: (state, generation) for job, state, generation in rows}

    def all_run(self) -> bool:
        return all(state == "Running" for state, _ in self.statuses().values())

    def run_anew(self, jobs: list[str], before: dict[str, tuple[str, int]]) -> bool:
        """Whether these jobs run in later generations."""
        now = self.statuses()
        return all(now[job][0] == "Running" and now[job][1] > before[job][1] for job in jobs)

    def events(self, kind: str) -> list[Any]:
        return [
            facts
            for (facts,) in self.rows(f"SELECT facts::json FROM events WHERE event = '{kind}'")
        ]

    def workers(self) -> dict[str, int]:
        rows = self.rows("SELECT job, (worker::json ->> 'pid')::int FROM statuses")
        return dict(rows)

    def _backend(self, job: str) -> StateBackend:
        return StateBackend(ObjectStore(self.state_url), JobName(job))

    def progress(self) -> dict[str, int]:
        return {job: len(self._backend(job).epochs()) for job in JOBS}

    def advance(self, what: str) -> None:
        """Wait until every job has sealed more epochs."""
        before = self.progress()
        self.until(
            lambda: all(epoch > before[job] + 1 for job, epoch in self.progress().items()), what
        )

    def end(self) -> None:
        """Kill all processes."""
        for each in self.processes:
            each.close()
        for arguments in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = arguments.read_bytes().split(b"\0")
                folder = (arguments.parent / "cwd").readlink()
                is_worker = b"tests.integration.stand_in_worker" in words
                if is_worker and self.folder in (folder, *folder.parents):
                    os.kill(int(arguments.parent.name), signal.SIGKILL)

    def require_one_owner_per_epoch(self) -> None:
        """End everything. Then no epoch is sealed or committed twice, or skipped, and no generation
        has sealed or committed after a newer one.
        """
        self.end()
        for job in JOBS:
            backend = self._backend(job)
            sealed: list[tuple[Epoch, int]] = []
            committed: list[tuple[Epoch, int]] = []
            for each in backend.store.list(backend.paths.epochs):
                if (found := epoch_object(each.path)) is None:
                    continue
                epoch, kind, _ = found
                data = backend.store.read(each.path)
                if kind == "manifest":
                    sealed.append((epoch, decode(Manifest, data, each.path).generation))
                elif kind == "committed":
                    committed.append((epoch, decode(CommittedRecord, data, each.path).generation))
            assert [epoch for epoch, _ in sealed] == list(range(1, len(sealed) + 1)), job
            # The worker may be about to commit the last one.
            assert len(sealed) - len(committed) in (0, 1), (job, sealed, committed)
            assert [epoch for epoch, _ in committed] == list(range(1, len(committed) + 1)), job
            for epochs in (sealed, committed):
                assert all(one[1] <= other[1] for one, other in pairwise(epochs)), (job, epochs)
            sealer = dict(sealed)
            # A successor completes a pending commit. No one else commits what another has sealed.
            assert all(generation >= sealer[epoch] for epoch, generation in committed), job


@contextmanager
def staged(stage: Stage) -> Iterator[Stage]:
    """Running jobs, one on each controller."""
    try:
        for each in stage.processes:
            each.start()
        stage.until(lambda: all(each.is_ready() for each in stage.processes), "they are ready")
        for n, job in enumerate(JOBS):
            new = {"name": job, "sql": TICKS, "state_url": stage.state_url}
            stage.processes[n % 3].call("POST", "/v1/jobs", json=new)
        stage.until(lambda: stage.is_settled(3), "each runs a job")
        stage.advance("all jobs seal epochs")
        yield stage
    finally:
        stage.end()
