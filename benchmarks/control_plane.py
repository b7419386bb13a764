"""The control plane at scale: many jobs on a few controllers, under steady failures.

The controllers are `resurgence serve` processes on one Postgres server, which does not wait for its
disk (`fsync` is off). State is in a local directory. Workers are stand-ins without Spark, all in this process: they hold real control connections,
send heartbeats and the messages of epochs, and store a checkpoint in the first epoch of each
generation. Of four failures, three are exits and one is a worker that goes silent with its
connection open. So the figures are the cost of the control plane alone: a real worker needs a
machine for its epochs, and seconds to start Spark.

One fleet grows through the numbers of jobs, and is measured at each. Settings are the defaults but
for two: `pipeline.epoch_interval`, because most of what a controller does and stores is events of
epochs, and `pipeline.healthy_duration`, because a job that is hit often would back off for longer.

    jobs             how many
    start            from the first request that creates one of the new jobs until all run
    cores, RSS       of one controller: the mean
    threads          of one controller: the median, and the highest number seen
    writes/s         rows inserted, updated and deleted in the database, by all controllers
    commits/s        transactions, read-only ones included
    detect exit      from the exit of a worker to the event `failure`: p50 / p99
    detect silence   from the moment at which a worker goes silent to the event `failure`; the timeout
                     of 10 s began up to a second earlier, with its last heartbeat
    reschedule       from the exit of a worker to the state Running, without a backoff after a first failure

    python benchmarks/control_plane.py [--jobs N,N] [--controllers N] [--failures PER_MINUTE]
                                       [--minutes N] [--epoch-interval SECONDS] [--kill-controller]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import httpx
from tests.postgres import running_server
from tests.stand_ins.fleet import Fleet, Measurement, percentile, running_fleet, sample_process
from tests.stand_ins.worker_host import Fault

FOLLOWERS = 100
FOLLOWED_SECONDS = 10
LISTINGS = 10
NEVER = 2**53
"""No event has an id above it."""
COLUMNS = (
    "jobs",
    "start",
    "cores",
    "RSS",
    "threads",
    "writes/s",
    "commits/s",
    "detect exit",
    "detect silence",
    "reschedule",
    "Postgres cores",
)


def print_row(cells: Iterable[str]) -> None:
    print("  ".join(f"{cell:>14}" for cell in cells), flush=True)


def row(found: Measurement, start_seconds: float) -> list[str]:
    """Return the cells of one line of the table."""
    exits = [each for each in found.recoveries if each.fault.fault is Fault.EXIT]
    silent = [each for each in found.recoveries if each.fault.fault is Fault.SILENCE]
    threads = statistics.median(each.threads for each in found.controllers)
    return [
        str(found.jobs),
        f"{start_seconds:.0f} s",
        f"{statistics.mean(each.cores for each in found.controllers):.2f}",
        f"{statistics.mean(each.rss_bytes for each in found.controllers) / 2**20:.0f} MiB",
        f"{threads:.0f} / {max(each.peak_threads for each in found.controllers)}",
        f"{found.written_per_second:.0f}",
        f"{found.commits_per_second:.0f}",
        spread([each.detected_after for each in exits]),
        spread([each.detected_after for each in silent]),
        spread([each.running_after for each in exits]),
        f"{found.postgres_cores:.2f}",
    ]


def spread(seconds: Sequence[float | None]) -> str:
    known = [each for each in seconds if each is not None]
    if not known:
        return "-"
    missing = f" ({len(seconds) - len(known)} never)" if len(known) < len(seconds) else ""
    return f"{percentile(known, 0.5):.2f} / {percentile(known, 0.99):.2f} s{missing}"


async def listing_cost(fleet: Fleet) -> str:
    """Time `GET /v1/jobs`."""
    controller = fleet.controllers[0]
    async with httpx.AsyncClient(timeout=60) as client:
        took = []
        before = sample_process(controller.pid)
        for _ in range(LISTINGS):
            began = time.monotonic()
            response = await client.get(f"{controller.url}/v1/jobs")
            response.raise_for_status()
            took.append(time.monotonic() - began)
        spent = sample_process(controller.pid).cpu_seconds - before.cpu_seconds
    return (
        f"GET /v1/jobs of {fleet.jobs} jobs: {statistics.median(took) * 1000:.0f} ms, "
        f"{spent / LISTINGS * 1000:.0f} ms of CPU, {len(response.content) / 1024:.0f} KiB"
    )


async def following_cost(fleet: Fleet) -> str:
    """Compare the load with and without clients that wait for the next event of a job."""
    controller = fleet.controllers[0]
    alone = await fleet.measure(FOLLOWED_SECONDS, 0)
    limits = httpx.Limits(max_connections=None)
    wait = {"after": NEVER, "wait": FOLLOWED_SECONDS + 8}
    async with httpx.AsyncClient(timeout=60, limits=limits) as client:
        requests = [
            asyncio.create_task(
                client.get(f"{controller.url}/v1/jobs/job{number:04}/events", params=wait)
            )
            for number in range(min(FOLLOWERS, fleet.jobs))
        ]
        await asyncio.sleep(4)  # each looks at once; the statistics are late
        followed = await fleet.measure(FOLLOWED_SECONDS, 0)
        refused = sum(not each.is_success for each in await asyncio.gather(*requests))
    more = followed.commits_per_second - alone.commits_per_second
    cores = followed.controllers[0].cores - alone.controllers[0].cores
    return (
        f"{len(requests)} clients following events at one controller: {more:+.0f} transactions/s, "
        f"{cores:+.2f} cores, {followed.controllers[0].peak_threads} threads, {refused} refused"
    )


async def controller_loss(fleet: Fleet) -> str:
    """Kill a controller. Its stand-ins end with it, so that all its jobs need a new worker."""
    lost = fleet.controllers[0]
    fleet.controllers = fleet.controllers[1:]
    began = time.monotonic()
    lost.kill()
    owned = fleet.jobs - len(fleet.host.running())
    await asyncio.sleep(1)
    owned = max(owned, fleet.jobs - len(fleet.host.running()))
    peak = 0
    while len(fleet.host.running()) < fleet.jobs and time.monotonic() - began < 300:
        peak = max(peak, *(sample_process(each.pid).threads for each in fleet.controllers))
        await asyncio.sleep(0.1)
    return (
        f"a controller killed: its {owned} jobs ran again after {time.monotonic() - began:.0f} s; "
        f"at most {peak} threads in another controller"
    )


async def measure(options: argparse.Namespace, folder: Path, database: str) -> None:
    settings = (
        f"pipeline.epoch_interval={options.epoch_interval}s",
        "pipeline.healthy_duration=5s",
    )
    async with running_fleet(folder, database, options.controllers, settings) as fleet:
        print(
            f"{options.controllers} controllers, {options.failures:.0f} failures a minute for "
            f"{options.minutes * 60:.0f} s, an epoch every {options.epoch_interval:g} s per job\n"
        )
        print_row(COLUMNS)
        for jobs in options.jobs:
            took = await fleet.create_jobs(jobs - fleet.jobs)
            print_row(row(await fleet.measure(options.minutes * 60, options.failures), took))
        print()
        print(await listing_cost(fleet), flush=True)
        print(await following_cost(fleet), flush=True)
        if options.kill_controller:
            print(await controller_loss(fleet), flush=True)


def job_numbers(text: str) -> list[int]:
    return sorted({int(each) for each in text.split(",")})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jobs", type=job_numbers, default=[100, 300, 1000], metavar="N,N")
    parser.add_argument("--controllers", type=int, default=3)
    parser.add_argument("--failures", type=float, default=100.0, help="per minute, of all jobs")
    parser.add_argument("--minutes", type=float, default=0.75, help="per number of jobs")
    parser.add_argument("--epoch-interval", type=float, default=10.0, help="seconds")
    parser.add_argument("--kill-controller", action="store_true", help="at the end, kill one")
    options = parser.parse_args()
    with (
        running_server() as server,
        server.database() as database,
        tempfile.TemporaryDirectory(prefix="fleet-") as folder,
    ):
        asyncio.run(measure(options, Path(folder), database))


if __name__ == "__main__":
    main()
