"""The control plane under failures, with stand-ins for workers: the harness of
`benchmarks/control_plane.py` with few jobs.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from tests.stand_ins.fleet import Fleet, Measurement, running_fleet
from tests.stand_ins.worker_host import Fault

HEARTBEATS_PER_SECOND = 10
QUIET = (
    f"pipeline.heartbeat_interval={1000 // HEARTBEATS_PER_SECOND}ms",
    "pipeline.heartbeat_timeout=5s",
    "pipeline.epoch_interval=1h",
    "pipeline.initial_backoff=50ms",
    "controller.lease=5s",
)
"""After its first epoch a job sends only heartbeats."""
FEW, MANY = 4, 40


def test_jobs_recover_and_neither_threads_nor_writes_grow_with_them(postgres_url: str) -> None:
    async def scenario() -> None:
        # Short: so must be the path of a socket.
        with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
            await in_folder(Path(folder))

    async def in_folder(folder: Path) -> None:
        async with running_fleet(folder, postgres_url, 2, QUIET) as fleet:
            await fleet.create_jobs(FEW)
            few = await _quiet_cost(fleet)
            await fleet.create_jobs(MANY - FEW)
            many = await _quiet_cost(fleet)
            assert _is_quiet(many, fleet.jobs), many
            most = [max(each.threads for each in found.controllers) for found in (few, many)]
            assert most[1] <= most[0] + 12, "of 18 more jobs per controller"

            failed = await fleet.measure(2.5, 240)
            assert {each.fault.fault for each in failed.recoveries} == set(Fault)
            assert all(each.running_after is not None for each in failed.recoveries)
            exits = [each for each in failed.recoveries if each.fault.fault is Fault.EXIT]
            assert min(each.detected_after or 99 for each in exits) < 3
            assert fleet.states() == {"Running": MANY}

    asyncio.run(asyncio.wait_for(scenario(), 100))


async def _quiet_cost(fleet: Fleet) -> Measurement:
    """Measure the fleet until no other work shows, at the longest for 18 seconds.

    A connection that falls idle reports to Postgres' statistics up to ten seconds late.
    """
    for _ in range(12):
        found = await fleet.measure(1.5, 0)
        if _is_quiet(found, fleet.jobs):
            break
    return found


def _is_quiet(found: Measurement, jobs: int) -> bool:
    """Each controller renews its lease once a second; a write per heartbeat would be 10 per job."""
    heartbeats = jobs * HEARTBEATS_PER_SECOND
    return (
        found.written_per_second < 0.1 * heartbeats and found.commits_per_second < 0.2 * heartbeats
    )
