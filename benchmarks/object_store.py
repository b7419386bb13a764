"""Requests to an object store: how many an epoch takes, how many of them one after the other, how
long they take, and what they cost.

The job counts rows by key in windows, each epoch closes one window, and both state and output are
on a real S3 server on this machine. A proxy before the server counts requests, and delays each by
the time that a request to an object store takes. Epochs run as in a worker, with one difference:
an epoch waits for the retention round of the previous epoch, so that each request can be attributed
to its part.
The counts are the same on every machine; the seconds are not.

    python benchmarks/object_store.py [--epochs N] [--delay SECONDS]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.servers.faulty_proxy import FaultyProxy, SeenRequest, faulty_proxy
from tests.servers.s3 import running_server

from resurgence.config import settings_from
from resurgence.connectors.registry import CONNECTORS
from resurgence.engine.epochs.engine import Engine
from resurgence.engine.epochs.in_process import open_engine
from resurgence.engine.epochs.timeline import Work
from resurgence.engine.spark.session import start_session
from resurgence.faults import FaultInjector
from resurgence.ids import Generation, JobName
from resurgence.sql import compile_pipeline
from resurgence.state.backend import StateBackend
from resurgence.storage.object_store import ObjectStore
from resurgence.worker.upkeep import Upkeep

JOB = JobName("bench")
ROWS = 1000
PARALLELISM = 2
WARM_UP = 15
"""More epochs than checkpoints are retained, so that every later round deletes one."""
EPOCHS_PER_MONTH = int(timedelta(days=30) / timedelta(seconds=1))
PRICES = {
    "LIST": 0.005,
    "CREATE": 0.005,
    "PUT": 0.005,
    "COPY": 0.005,
    "GET": 0.0004,
    "HEAD": 0.0004,
}
"""List prices in dollars per 1,000 requests of S3 Standard in us-east-1. Deletions are free."""
PROTOCOL, SINK, DATA, RETENTION = "protocol", "sink", "state and output", "retention"


def pipeline(folder: str) -> str:
    """Return the SQL of the job. Event time advances by one window per epoch."""
    return f"""
        CREATE TABLE numbers WITH (connector = 'impulse', message_count = '1000000000',
            event_time_interval = '{10_000_000_000 // ROWS}', start_time = '2024-01-01T00:00:00');
        CREATE TABLE totals (start TIMESTAMP, k BIGINT, n BIGINT)
        WITH (connector = 'filesystem', path = '{folder}/out', format = 'parquet');
        INSERT INTO totals SELECT window.start, k, n FROM (
            SELECT tumble(INTERVAL '10 seconds') AS window, counter % 100 AS k, count(*) AS n
            FROM numbers GROUP BY window, k)"""


@dataclass(frozen=True)
class Epoch:
    """The requests of one epoch and of the retention round after it."""

    requests: dict[str, list[SeenRequest]]
    seconds: float
    storage_seconds: float
    """Publishing and committing."""

    def counts(self) -> dict[tuple[str, str], int]:
        """Return the number of requests by (part, kind)."""
        return Counter((part, each.kind) for part in self.requests for each in self.requests[part])


def part_of(request: SeenRequest) -> str:
    """Return which part of an epoch a request belongs to."""
    if "/tables/" in request.path or "/staged/" in request.path:
        return DATA
    return SINK if "/out/" in request.path or request.kind == "BULK_DELETE" else PROTOCOL


def round_trips(requests: Iterable[SeenRequest]) -> int:
    """Return the length of the longest chain of requests, each of which began after the one before
    had ended.
    """
    steps, ended_at = 0, 0.0
    for each in sorted(requests, key=lambda each: each.ended_at):
        if each.started_at >= ended_at:
            steps, ended_at = steps + 1, each.ended_at
    return steps


class Worker:
    """Runs epochs and retention rounds, as a worker does."""

    def __init__(self, engine: Engine, backend: StateBackend, proxy: FaultyProxy) -> None:
        self._engine = engine
        self._proxy = proxy
        settings = settings_from({}).checkpoint
        faults = FaultInjector((), backend.store, JOB)
        generation = Generation(backend.newest_generation())
        self._upkeep = Upkeep(backend, engine, settings, generation, faults, lambda _: None)

    def run_epoch(self) -> Epoch:
        self._take_requests()
        began = time.perf_counter()
        report = self._engine.run_epoch()
        seconds = time.perf_counter() - began
        assert report is not None
        requests: dict[str, list[SeenRequest]] = {PROTOCOL: [], SINK: [], DATA: []}
        for each in self._take_requests():
            requests[part_of(each)].append(each)
        self._upkeep.after(report.epoch, report.checkpoint)
        self._upkeep.finish()
        requests[RETENTION] = self._take_requests()
        return Epoch(requests, seconds, report.timeline.seconds(Work.STORAGE, Work.SINKS))

    def _take_requests(self) -> list[SeenRequest]:
        """Return the requests since the last call. A client may receive a response just before the
        proxy has noted the request.
        """
        deadline = time.monotonic() + 10
        while self._proxy.open_requests and time.monotonic() < deadline:
            time.sleep(0.001)
        taken = list(self._proxy.seen)
        self._proxy.seen.clear()
        return taken

    def run(self, epochs: int) -> list[Epoch]:
        return [self.run_epoch() for _ in range(epochs)]


def typical(epochs: Sequence[Epoch]) -> Epoch:
    """Return the epoch with the most common requests: some rounds also list what is stored."""
    common = Counter(str(sorted(each.counts().items())) for each in epochs).most_common(1)[0][0]
    return next(each for each in epochs if str(sorted(each.counts().items())) == common)


def monthly_cost(requests: Iterable[SeenRequest]) -> float:
    """Return the dollars per month at one epoch per second."""
    each_epoch = sum(PRICES.get(each.kind, 0.0) for each in requests) / 1000
    return each_epoch * EPOCHS_PER_MONTH


def show(epoch: Epoch) -> None:
    print("requests of an epoch: 1 source, 1 window, 1 sink, 2 subtasks\n")
    print(f"{'part':<18} {'requests':>8} {'round trips':>12} {'$ per month':>12}  by kind")
    for part, requests in epoch.requests.items():
        kinds = Counter(each.kind for each in requests)
        by_kind = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        cost = monthly_cost(requests)
        print(f"{part:<18} {len(requests):>8} {round_trips(requests):>12} {cost:>12.2f}  {by_kind}")
    total = [each for requests in epoch.requests.values() for each in requests]
    print(f"{'total':<18} {len(total):>8} {'':>12} {monthly_cost(total):>12.2f}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--delay", type=float, default=0.03)
    arguments = parser.parse_args()
    with running_server() as server, faulty_proxy(server.port) as proxy:
        os.environ.update(server.variables(proxy.port))
        folder = server.new_url()
        spark, jvm = start_session(
            app_name="bench",
            master=f"local[{PARALLELISM}]",
            memory="1g",
            shuffle_partitions=PARALLELISM,
            conf={},
            log_file=Path(os.devnull),
        )
        store = ObjectStore(f"{folder}/state")
        settings = settings_from(
            {"pipeline.epoch_rows": str(ROWS), "pipeline.parallelism": str(PARALLELISM)}
        )
        engine = open_engine(
            spark, compile_pipeline(pipeline(folder), CONNECTORS), store, JOB, settings
        )
        worker = Worker(engine, StateBackend(store, JOB), proxy)
        worker.run(WARM_UP)
        undelayed = worker.run(arguments.epochs)
        proxy.delay = arguments.delay
        delayed = worker.run(arguments.epochs)
        proxy.delay = 0.0
        spark.stop()
        jvm.close()
    show(typical(delayed))
    print(f"{'delay per request':>18} {'seconds per epoch':>18} {'publish and commit':>19}")
    for delay, epochs in ((0.0, undelayed), (arguments.delay, delayed)):
        seconds = statistics.median(each.seconds for each in epochs)
        storage = statistics.median(each.storage_seconds for each in epochs)
        print(f"{delay * 1000:>15.0f} ms {seconds:>18.3f} {storage:>19.3f}")
    first, last = typical(undelayed).counts(), typical(delayed).counts()
    after = WARM_UP + arguments.epochs
    print(f"\nrequests around epochs {after} and {after + arguments.epochs}: ", end="")
    print("the same" if first == last else "NOT the same")
    for part, kind in sorted(first.keys() | last.keys()):
        before, now = first.get((part, kind), 0), last.get((part, kind), 0)
        if before != now:
            print(f"  {part}: {before} {kind} before, {now} after")


if __name__ == "__main__":
    main()
