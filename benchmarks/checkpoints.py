"""Cost of checkpoints as a job grows: publishing an epoch, and planning a restore.

Runs without Spark: the state backend writes small real objects to local disk. The number of
requests to the object store is the same on every machine; the seconds are not.

    python benchmarks/checkpoints.py [--most-files N] [--most-epochs N]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from resurgence.ids import Epoch, JobName, OperatorId
from resurgence.state.backend import StateBackend
from resurgence.state.key_groups import owned_groups
from resurgence.state.records import (
    CommittedRecord,
    EpochCounts,
    GenerationRecord,
    InputRange,
    Manifest,
    OperatorCheckpointMetadata,
    StateFile,
    TableCheckpoint,
    TableKind,
    Totals,
)
from resurgence.storage.object_store import ObjectStore, StoredObject

SOURCE, WINDOW, SINK = (OperatorId(each) for each in ("source-1", "window-1", "sink-1"))
PARALLELISM = 8
PAGE = 1000
"""Objects that an object store lists in one request."""
REPEATS = 5
GOAL_SECONDS = 2.0
"""Goal for planning a restore with ten thousand files."""


class CountingStore(ObjectStore):
    """An object store that counts its requests."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.requests: Counter[str] = Counter()
        self.bytes_written = 0

    def create(self, path: str, data: bytes) -> bool:
        self.requests["create"] += 1
        self.bytes_written += len(data)
        return super().create(path, data)

    def read(self, path: str) -> bytes:
        self.requests["read"] += 1
        return super().read(path)

    def size(self, path: str) -> int | None:
        self.requests["size"] += 1
        return super().size(path)

    def list(self, prefix: str, after: str | None = None) -> tuple[StoredObject, ...]:
        found = super().list(prefix, after)
        self.requests["list"] += max(1, -(-len(found) // PAGE))
        return found


@dataclass
class Job:
    """A job with one source, one window aggregate and one sink."""

    store: CountingStore
    backend: StateBackend
    claim: GenerationRecord
    epoch: int = 0
    files: list[StateFile] = field(default_factory=list)

    def add_files(self, count: int) -> None:
        """Add state files that remain live."""
        folder = self.backend.paths.table(WINDOW, "partials")
        for number in range(len(self.files), len(self.files) + count):
            subtask = number % PARALLELISM
            path = f"{folder}/{self.epoch}-1-{subtask}-{number:012x}.parquet"
            assert self.store.create(path, b"rows")
            self.files.append(
                StateFile(
                    path=path,
                    subtask=subtask,
                    epoch=Epoch(self.epoch),
                    rows=1,
                    bytes=4,
                    key_groups=owned_groups(subtask, PARALLELISM),
                    time_start=number,
                    time_end=number,
                    digest="",
                )
            )

    def run_epoch(self) -> None:
        """Publish and commit the next epoch, as the engine does."""
        self.epoch += 1
        now = datetime.now(UTC)
        read = InputRange(start={"row": self.epoch - 1}, end={"row": self.epoch}, rows=1)
        tables = {
            SOURCE: {"offsets": TableCheckpoint(kind=TableKind.GLOBAL, values=read.end)},
            WINDOW: {"partials": TableCheckpoint(kind=TableKind.TIME, files=tuple(self.files))},
            SINK: {"staged": TableCheckpoint(kind=TableKind.GLOBAL, values={"rows": 1})},
        }
        digests = self.backend.write_metadata(
            OperatorCheckpointMetadata(
                job=self.claim.job,
                operator=operator,
                epoch=Epoch(self.epoch),
                generation=self.claim.generation,
                parallelism=PARALLELISM,
                tables=held,
                input=read if operator == SOURCE else None,
            )
            for operator, held in tables.items()
        )
        self.backend.publish(
            Manifest(
                job=self.claim.job,
                epoch=Epoch(self.epoch),
                attempt=0,
                generation=self.claim.generation,
                parent=Epoch(self.epoch - 1),
                operators=digests,
                inputs={SOURCE: read},
                totals=Totals(since=Epoch(1), counts=EpochCounts()),
                began_at=now,
                sealed_at=now,
            )
        )
        self.backend.record_committed(
            CommittedRecord(
                job=self.claim.job,
                epoch=Epoch(self.epoch),
                generation=self.claim.generation,
                inputs={SOURCE: read},
                committed_at=now,
            )
        )

    def plan_restore(self) -> None:
        """Claim the next generation and plan its load."""
        self.claim = self.backend.claim_generation(datetime.now(UTC))
        plan = self.backend.prepare_checkpoint_load(self.claim, PARALLELISM)
        assert plan.epoch == self.epoch
        held = sum(len(each) for each in plan.operators[WINDOW].subtasks["partials"])
        assert held == len(self.files)


def new_job(folder: str) -> Job:
    store = CountingStore(folder)
    backend = StateBackend(store, JobName("bench"))
    return Job(store, backend, backend.claim_generation(datetime.now(UTC)))


@dataclass(frozen=True)
class Cost:
    """The cost of one operation; `seconds` is the median of several repeats."""

    requests: Counter[str]
    bytes_written: int
    seconds: float

    def __str__(self) -> str:
        by_verb = ", ".join(f"{count} {verb}" for verb, count in sorted(self.requests.items()))
        return (
            f"{self.requests.total():>9} {self.bytes_written:>13,} {self.seconds:>9.4f}  {by_verb}"
        )


def measure(store: CountingStore, act: Callable[[], None]) -> Cost:
    costs = []
    for _ in range(REPEATS):
        store.requests, store.bytes_written = Counter(), 0
        began = time.perf_counter()
        act()
        seconds = time.perf_counter() - began
        costs.append(Cost(store.requests, store.bytes_written, seconds))
    return Cost(
        costs[-1].requests,
        costs[-1].bytes_written,
        statistics.median(each.seconds for each in costs),
    )


HEADER = f"{'requests':>9} {'bytes written':>13} {'seconds':>9}"


def steps(most: int) -> list[int]:
    """Return the powers of ten from 10 up to a maximum."""
    return [10, *(10**power for power in range(2, 10) if 10**power <= most)]


def publishing(most_epochs: int, most_files: int) -> None:
    print(f"publish and commit one epoch: 3 operators, {REPEATS} repeats\n")
    print(f"{'earlier epochs':>15} {'live files':>11} {HEADER}")
    requests = set()
    with tempfile.TemporaryDirectory() as folder:
        job = new_job(folder)
        job.add_files(10)
        for epochs in steps(most_epochs):
            while job.epoch < epochs:
                job.run_epoch()
            cost = measure(job.store, job.run_epoch)
            requests.add(cost.requests.total())
            print(f"{epochs:>15,} {len(job.files):>11,} {cost}")
    with tempfile.TemporaryDirectory() as folder:
        job = new_job(folder)
        while job.epoch < 10:
            job.run_epoch()
        for files in steps(most_files):
            job.add_files(files - len(job.files))
            cost = measure(job.store, job.run_epoch)
            requests.add(cost.requests.total())
            print(f"{10:>15,} {files:>11,} {cost}")
    verdict = "constant" if len(requests) == 1 else f"NOT constant: {sorted(requests)}"
    print(f"\nrequests: {verdict}\n")


def restoring(most_files: int) -> None:
    print(f"claim a generation and plan a restore: {PARALLELISM} subtasks, 10 checkpoints\n")
    print(f"{'state files':>15} {HEADER}")
    for files in steps(most_files):
        with tempfile.TemporaryDirectory() as folder:
            job = new_job(folder)
            job.add_files(files)
            while job.epoch < 10:
                job.run_epoch()
            cost = measure(job.store, job.plan_restore)
        print(f"{files:>15,} {cost}")
    verdict = "met" if cost.seconds < GOAL_SECONDS else "MISSED"
    print(f"\ngoal of {GOAL_SECONDS:g} s for {files:,} files: {verdict}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=Path(__file__).name)
    parser.add_argument("--most-files", type=int, default=10_000)
    parser.add_argument("--most-epochs", type=int, default=1_000)
    arguments = parser.parse_args()
    publishing(arguments.most_epochs, arguments.most_files)
    restoring(arguments.most_files)


if __name__ == "__main__":
    main()
