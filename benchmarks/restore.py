"""Restore: from opening a job to its first committed epoch, as its state grows.

The query is `count, sum GROUP BY key`, its output is dropped, checkpoints are on. A process loads the
keys of one size and ends. Then each repetition is a new process with an empty local disk cache: it
starts Spark, warms up with another job of the same query, and only then opens the job and runs one
epoch of 1,000 rows of random keys. So the start of Spark is not in the figures (recovery.py has it).
Structured Streaming does the same with RocksDB, which by default stores a snapshot with every
commit, so it has no changelog to replay.

    python benchmarks/restore.py [--keys N,N] [--repetitions N] [--json FILE] [--plot FILE]

Only ratios within one run are comparable.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.report import Report, add_arguments, at_most, spread_of
from benchmarks.window_aggregate import (
    MEMORY,
    PARALLELISM,
    RESURGENCE,
    STATE_STORES,
    STREAMING,
    batches_committed,
    stock_session,
)
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from resurgence.config import settings_from
from resurgence.connectors.registry import CONNECTORS
from resurgence.engine.epochs.engine import Engine
from resurgence.engine.epochs.in_process import open_engine
from resurgence.engine.spark.session import start_session
from resurgence.ids import JobName
from resurgence.sql import compile_pipeline
from resurgence.storage.object_store import ObjectStore

LARGEST_EPOCH = 1_000_000
"""Rows of an epoch that loads keys, at most."""
EPOCH_ROWS = 1_000
WARM_UP_EPOCHS = 5
TIME_GOAL, GROWTH_GOAL = at_most(0.25), at_most(2)
POLL_SECONDS = 0.005


@dataclass(frozen=True)
class Plan:
    """The rows of a job: for each size those that load new keys, then those of the repetitions."""

    sizes: tuple[int, ...]
    repetitions: int

    def key(self) -> str:
        """Return the key of a row."""
        cases, row, loaded = [], 0, 0
        for size in self.sizes:
            # The row that follows has the first key that is not loaded yet.
            cases.append(f"WHEN counter < {row + size - loaded} THEN counter - {row - loaded}")
            row += size - loaded + self.repetitions * EPOCH_ROWS
            cases.append(f"WHEN counter < {row} THEN pmod(xxhash64(counter), {size})")
            loaded = size
        return f"CASE {' '.join(cases)} END"

    def loading_epochs(self, size: int) -> list[int]:
        """Return the rows of each epoch that loads the keys up to this size."""
        at = self.sizes.index(size)
        rows = size - (self.sizes[at - 1] if at else 0)
        full, rest = divmod(rows, LARGEST_EPOCH)
        return [LARGEST_EPOCH] * full + [rest] * (rest > 0)


# -------------------------------------------------------------------- the engines


class Resurgence:
    """The job in Resurgence."""

    def __init__(self, spark: SparkSession, plan: Plan, folder: Path) -> None:
        self._spark = spark
        self._plan = plan
        self._folder = folder

    def run(self, rows: int) -> tuple[float, float]:
        """Open the job and run an epoch. Return the seconds of the restore, and of both."""
        began = time.perf_counter()
        engine = self._open(rows)
        restored = time.perf_counter()
        engine.run_epoch()
        return restored - began, time.perf_counter() - began

    def _open(self, rows: int) -> Engine:
        sql = f"""
            CREATE TABLE numbers WITH (connector = 'impulse', event_time_interval = '1000');
            CREATE TABLE totals (k BIGINT, n BIGINT, total BIGINT)
            WITH (connector = 'blackhole', format = 'debezium_json');
            INSERT INTO totals SELECT k, count(*), sum(counter) FROM (
                SELECT {self._plan.key()} AS k, counter FROM numbers) GROUP BY k"""
        settings = {
            "pipeline.epoch_rows": str(rows),
            "pipeline.parallelism": str(PARALLELISM),
            "pipeline.epoch_interval": "0s",
        }
        return open_engine(
            self._spark,
            compile_pipeline(sql, CONNECTORS),
            ObjectStore(f"{self._folder}/state"),
            JobName("restore"),
            settings_from(settings),
        )


class Streaming:
    """The job in Structured Streaming."""

    def __init__(self, spark: SparkSession, plan: Plan, folder: Path) -> None:
        self._spark = spark
        self._plan = plan
        self._checkpoint = folder / "checkpoint"
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", STATE_STORES["RocksDB"])

    def run(self, rows: int) -> tuple[float, float]:
        """Start the query and run a micro-batch. Return its seconds, twice: a restore is a part of
        the batch.
        """
        enough = batches_committed(self._checkpoint) + 1
        began = time.perf_counter()
        numbers = (
            self._spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", rows)
            .option("numPartitions", PARALLELISM)
            .load()
        )
        query = (
            numbers.selectExpr("value AS counter")
            .selectExpr(f"{self._plan.key()} AS k", "counter")
            .groupBy("k")
            .agg(F.count("*").alias("n"), F.sum("counter").alias("total"))
            .writeStream.format("noop")
            .option("checkpointLocation", str(self._checkpoint))
            .outputMode("update")
            # Of this source, one micro-batch.
            .trigger(availableNow=True)
            .start()
        )
        while batches_committed(self._checkpoint) < enough and query.isActive:
            time.sleep(POLL_SECONDS)
        seconds = time.perf_counter() - began
        query.awaitTermination()
        return seconds, seconds


def run_engine(name: str, plan: Plan, folder: Path, epochs: Sequence[int]) -> None:
    """Run epochs with so many rows, each in a job that is opened for it. Print the seconds of the
    first one.
    """
    system: type[Resurgence | Streaming] = Streaming if name == STREAMING else Resurgence
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch, session(name) as spark:
        warm_up = system(spark, Plan((EPOCH_ROWS,), WARM_UP_EPOCHS), Path(scratch))
        for _ in range(WARM_UP_EPOCHS):
            warm_up.run(EPOCH_ROWS)
        job = system(spark, plan, folder)
        seconds = [job.run(rows) for rows in epochs]
    print(json.dumps(seconds[0]), flush=True)


@contextlib.contextmanager
def session(name: str) -> Iterator[SparkSession]:
    if name == STREAMING:
        spark = stock_session()
        yield spark
        spark.stop()
        return
    with tempfile.TemporaryDirectory() as folder:
        spark, jvm = start_session(
            app_name="restore",
            master="local[2]",
            memory=MEMORY,
            shuffle_partitions=PARALLELISM,
            conf={},
            log_file=Path(folder) / "spark.log",
        )
        yield spark
        spark.stop()
        jvm.close()


# -------------------------------------------------------------------- the measurement


def child(name: str, plan: Plan, folder: Path, epochs: Sequence[int]) -> tuple[float, float]:
    """Run epochs in a new process. Return the seconds of the first one."""
    command = [sys.executable, __file__, "--engine", name, "--folder", str(folder)]
    command += ["--keys", ",".join(map(str, plan.sizes)), "--repetitions", str(plan.repetitions)]
    command += ["--epochs", ",".join(map(str, epochs))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr[-3000:])
    restore, total = json.loads(done.stdout.splitlines()[-1])
    return restore, total


def measure(report: Report, name: str, plan: Plan) -> dict[int, list[float]]:
    """Return the seconds of each repetition, by the number of keys."""
    seconds: dict[int, list[float]] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        child(name, plan, Path(folder), plan.loading_epochs(plan.sizes[0]))
        for size, following in zip(plan.sizes, (*plan.sizes[1:], None), strict=True):
            found = []
            for number in range(plan.repetitions):
                epochs = [EPOCH_ROWS]
                if following is not None and number == plan.repetitions - 1:
                    # Another process would start and warm up only to load these keys.
                    epochs += plan.loading_epochs(following)
                found.append(child(name, plan, Path(folder), epochs))
            seconds[size] = [total for _, total in found]
            report.add("seconds to the first epoch", f"{size:,} keys", name, seconds[size])
            print(f"{name:21} {size:>12,} keys  {spread_of(seconds[size]).median:6.2f} s", end="")
            if name == RESURGENCE:
                restores = [restore for restore, _ in found]
                report.add("seconds of the restore", f"{size:,} keys", name, restores)
                print(f"  of which {spread_of(restores).median:.2f} s until the epoch", end="")
            print(flush=True)
    return seconds


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(","))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=numbers, default=(10_000, 100_000, 1_000_000, 10_000_000))
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--engine", choices=[RESURGENCE, STREAMING], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--epochs", type=numbers, help=argparse.SUPPRESS)
    add_arguments(parser)
    options = parser.parse_args()
    plan = Plan(options.keys, options.repetitions)
    if options.engine is not None:
        run_engine(options.engine, plan, options.folder, options.epochs)
        return
    report = Report("restore", options)
    ours, theirs = (measure(report, name, plan) for name in (RESURGENCE, STREAMING))
    for size in plan.sizes:
        report.compare(f"{size:,} keys: time", ours[size], theirs[size], TIME_GOAL)
    smallest, largest = plan.sizes[0], plan.sizes[-1]
    name = f"Resurgence, from {smallest:,} to {largest:,} keys"
    report.compare(name, ours[largest], ours[smallest], GROWTH_GOAL)
    report.save()


if __name__ == "__main__":
    main()
