"""Real controllers on a real Postgres, with stand-ins for their workers, and what they cost.

`running_fleet` starts them; `Fleet.measure` makes workers fail at a steady rate and measures what
that takes. A failure is timed from the moment at which the stand-in fails, by the events that the
controllers store: detected at `failure`, running again at the next `state` that leads to Running.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import httpx
import psycopg

from tests.stand_ins.host_scheduler import HOST, SOCKET_VARIABLE
from tests.stand_ins.worker_host import Fault, InjectedFault, WorkerHost

ROOT = Path(__file__).parents[2]
TICKS = """CREATE TABLE ticks WITH (connector = 'impulse', event_rate = '100');
CREATE TABLE nowhere WITH (connector = 'blackhole');
INSERT INTO nowhere SELECT counter FROM ticks"""
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_SAMPLE_SECONDS = 0.25
_POLL_SECONDS = 0.25
_CREATED_AT_ONCE = 6
_SILENT_EVERY = 4
"""One failure of so many is a silent worker; the others are exits."""
_START_SECONDS = 60.0


# ---------------------------------------------------------------- samples


@dataclass(frozen=True)
class ProcessSample:
    """What a process has used so far, and uses now."""

    at: float
    cpu_seconds: float
    rss_bytes: int
    threads: int


@dataclass(frozen=True)
class DatabaseSample:
    """What a database has done so far."""

    at: float
    commits: int
    """Transactions, the read-only ones included."""
    written: int
    """Rows inserted, updated and deleted."""


@dataclass(frozen=True)
class ControllerCost:
    """One controller over a period."""

    cores: float
    rss_bytes: int
    threads: int
    peak_threads: int


@dataclass(frozen=True)
class Recovery:
    """An injected failure, and how long each step took; None: not within the deadline."""

    fault: InjectedFault
    detected_after: float | None
    running_after: float | None


@dataclass(frozen=True)
class Measurement:
    """A fleet over a period."""

    jobs: int
    seconds: float
    controllers: tuple[ControllerCost, ...]
    postgres_cores: float
    stand_in_cores: float
    commits_per_second: float
    written_per_second: float
    recoveries: tuple[Recovery, ...]


def sample_process(pid: int) -> ProcessSample:
    stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return ProcessSample(
        at=time.monotonic(),
        cpu_seconds=(int(stat[11]) + int(stat[12])) / _TICKS_PER_SECOND,
        rss_bytes=int(fields["VmRSS"].split()[0]) * 1024,
        threads=int(fields["Threads"]),
    )


def _postgres_cpu_seconds(socket_folder: str) -> float:
    """Return the CPU time of a server and its backends, those that have ended included."""
    postmaster = int((Path(socket_folder) / "data" / "postmaster.pid").read_text().split()[0])
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            stat = (process / "stat").read_text().rsplit(")", 1)[1].split()
            if int(process.name) == postmaster:
                total += sum(map(int, stat[11:15]))
            elif int(stat[1]) == postmaster:
                total += int(stat[11]) + int(stat[12])
    return total / _TICKS_PER_SECOND


# ---------------------------------------------------------------- controllers


@dataclass
class ControllerProcess:
    """One `resurgence serve`."""

    folder: Path
    database: str
    host: Path
    settings: Sequence[str]
    port: int = field(default_factory=lambda: _free_port())
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def log(self) -> Path:
        return self.folder / f"serve-{self.port}.log"

    def start(self) -> None:
        settings = [
            word
            for each in (f"controller.scheduler={HOST.name}", *self.settings)
            for word in ("--set", each)
        ]
        environment = {
            **os.environ,
            "RESURGENCE_DATABASE": self.database,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
            SOCKET_VARIABLE: str(self.host),
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.stand_ins.service", "serve"),
                    *("--port", str(self.port), *settings),
                ],
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# ---------------------------------------------------------------- the fleet


class Fleet:
    """Controllers, their database, and the host of all their workers."""

    def __init__(
        self, database: str, host: WorkerHost, controllers: Sequence[ControllerProcess]
    ) -> None:
        self.database = database
        self.host = host
        self.controllers = tuple(controllers)
        self.jobs = 0
        self._connection = psycopg.connect(database, autocommit=True)
        self._choice = random.Random(1)

    def close(self) -> None:
        self._connection.close()

    def sample_database(self) -> DatabaseSample:
        found = self._connection.execute(
            "SELECT xact_commit, (SELECT sum(n_tup_ins + n_tup_upd + n_tup_del)::bigint"
            " FROM pg_stat_user_tables) FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
        assert found is not None
        return DatabaseSample(time.monotonic(), found[0], found[1] or 0)

    def states(self) -> dict[str, int]:
        """Return how many jobs are in each state, as stored."""
        found = self._connection.execute("SELECT state, count(*) FROM statuses GROUP BY state")
        return dict(found.fetchall())

    async def create_jobs(self, count: int, settings: dict[str, str] | None = None) -> float:
        """Create jobs, at all controllers in turn. Return the seconds until all of them run."""
        began = time.monotonic()
        names = [f"job{number:04}" for number in range(self.jobs, self.jobs + count)]
        slots = asyncio.Semaphore(_CREATED_AT_ONCE)
        # The server closes idle connections after five seconds.
        limits = httpx.Limits(keepalive_expiry=2)
        async with httpx.AsyncClient(timeout=120, limits=limits) as client:

            async def create(number: int, name: str) -> None:
                at = self.controllers[number % len(self.controllers)].url
                async with slots:
                    request = {"name": name, "sql": TICKS, "settings": settings or {}}
                    response = await client.post(f"{at}/v1/jobs", json=request)
                    response.raise_for_status()

            await asyncio.gather(*(create(*each) for each in enumerate(names)))
        self.jobs += count
        await self.until_running(_START_SECONDS + count)
        return time.monotonic() - began

    async def until_running(self, seconds: float) -> None:
        """Wait until all jobs run."""

        def all_run() -> bool:
            return self.states() == {"Running": self.jobs} and len(self.host.running()) == self.jobs

        await until(all_run, seconds, lambda: f"all jobs run: {self.states()}")

    async def measure(self, seconds: float, failures_per_minute: float) -> Measurement:
        """Measure the fleet for so long while workers fail at a steady rate; then wait until all
        jobs run again.
        """
        before = [sample_process(each.pid) for each in self.controllers]
        own, database, server = sample_process(os.getpid()), self.sample_database(), self._server()
        samples: list[list[ProcessSample]] = [[] for _ in self.controllers]
        faults: list[InjectedFault] = []
        interval = 60 / failures_per_minute if failures_per_minute else float("inf")
        began = time.monotonic()
        while (elapsed := time.monotonic() - began) < seconds:
            if elapsed >= (len(faults) + 0.5) * interval:
                faults.append(self._fail_one(len(faults)))
            for each, found in zip(self.controllers, samples, strict=True):
                if not found or time.monotonic() - found[-1].at >= _SAMPLE_SECONDS:
                    found.append(sample_process(each.pid))
            await asyncio.sleep(min(_SAMPLE_SECONDS / 2, interval / 4))
        after = [sample_process(each.pid) for each in self.controllers]
        spent = sample_process(os.getpid())
        done, served = self.sample_database(), self._server()
        wall = time.monotonic() - began
        if faults:
            with contextlib.suppress(TimeoutError):
                await self.until_running(_START_SECONDS)
            await asyncio.sleep(1)  # events are stored in the background
        return Measurement(
            jobs=self.jobs,
            seconds=wall,
            controllers=tuple(
                ControllerCost(
                    cores=(last.cpu_seconds - first.cpu_seconds) / wall,
                    rss_bytes=last.rss_bytes,
                    threads=sorted(one.threads for one in found)[len(found) // 2],
                    peak_threads=max(one.threads for one in found),
                )
                for first, last, found in zip(before, after, samples, strict=True)
            ),
            postgres_cores=(served - server) / wall,
            stand_in_cores=(spent.cpu_seconds - own.cpu_seconds) / wall,
            commits_per_second=(done.commits - database.commits) / wall,
            written_per_second=(done.written - database.written) / wall,
            recoveries=tuple(self._recovery(each) for each in faults),
        )

    def _fail_one(self, number: int) -> InjectedFault:
        fault = Fault.SILENCE if number % _SILENT_EVERY == _SILENT_EVERY - 1 else Fault.EXIT
        return self.host.fail(self._choice.choice(self.host.running()), fault)

    def _recovery(self, fault: InjectedFault) -> Recovery:
        found = self._connection.execute(
            "SELECT event, facts FROM events WHERE job = %s ORDER BY id", (fault.job,)
        )
        detected = running = None
        for event, text in found:
            facts = json.loads(text)
            after = datetime.fromisoformat(facts["at"]).timestamp() - fault.at
            if after < 0:
                continue
            if event == "failure" and detected is None:
                detected = after
            if event == "state" and facts["to"] == "Running" and detected is not None:
                running = after
                break
        return Recovery(fault, detected, running)

    def _server(self) -> float:
        return _postgres_cpu_seconds(self.database.partition("host=")[2])


@contextlib.asynccontextmanager
async def running_fleet(
    folder: Path, database: str, controllers: int, settings: Sequence[str] = ()
) -> AsyncIterator[Fleet]:
    """Start controllers on a database, with a host for their workers, and end them all."""
    async with WorkerHost(folder / "host.sock") as host:
        processes = [
            ControllerProcess(folder, database, host.socket, settings) for _ in range(controllers)
        ]
        fleet = None
        try:
            for each in processes:
                each.start()
            async with httpx.AsyncClient(timeout=5) as client:
                for each in processes:
                    await _until_ready(client, each)
            fleet = Fleet(database, host, processes)
            yield fleet
        finally:
            if fleet is not None:
                fleet.close()
            for each in processes:
                each.kill()


async def _until_ready(client: httpx.AsyncClient, controller: ControllerProcess) -> None:
    give_up_at = time.monotonic() + _START_SECONDS
    while time.monotonic() < give_up_at:
        with contextlib.suppress(httpx.TransportError):
            if (await client.get(f"{controller.url}/v1/jobs")).is_success:
                return
        await asyncio.sleep(_POLL_SECONDS)
    raise TimeoutError(f"a controller does not start: {controller.log.read_text()[-2000:]}")


async def until(condition: Callable[[], bool], seconds: float, what: Callable[[], str]) -> None:
    """Wait for a condition; raise TimeoutError with what was waited for."""
    give_up_at = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"waited {seconds:.0f} s until {what()}")
        await asyncio.sleep(_POLL_SECONDS)


def percentile(values: Sequence[float], part: float) -> float:
    """Return the smallest value that at least this part of the values does not exceed."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(part * len(ranked)))]
