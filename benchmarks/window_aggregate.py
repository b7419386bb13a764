"""A tumbling aggregate: Resurgence compared with Structured Streaming in one run.

The query computes count, sum and max by key in windows of ten seconds. Rows are generated inside
Spark; the output is Parquet; checkpoints are on. Both systems process the same rows in the same
epochs with the same cores, memory and shuffle partitions, each in its own process. Only the second
half of the epochs is measured, when the JVM is warm. Structured Streaming runs on an unmodified
Spark with each of its two state stores, and the faster one is compared. One that is slower under all
loads runs in the first round only.

A round runs all of them once, in new processes. A figure of large epochs is the median of a round;
where several epochs form a window, one window counts, so that the epoch that closes it is included.
Small epochs have two figures, p50 and p99. The ratio is that of the medians of all rounds. Memory is
the peak of all processes of a system. The checkpoint share is the part of an epoch that docs/performance.md
defines. Only the ratios are comparable between machines.

    python benchmarks/window_aggregate.py [--large-epochs N] [--small-epochs N] [--rounds N]
                                          [--json FILE] [--plot FILE]
    python benchmarks/window_aggregate.py --profile [--large-epochs N] [--small-epochs N]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.processes import MemoryPeak, Usage
from benchmarks.report import (
    Goal,
    Report,
    add_arguments,
    add_profile_argument,
    at_least,
    at_most,
    percentile,
)
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from resurgence.cli.output.profile_tables import profile_lines
from resurgence.config import settings_from
from resurgence.connectors.registry import CONNECTORS
from resurgence.engine.epochs.in_process import open_engine
from resurgence.engine.epochs.profile import EpochProfile
from resurgence.engine.epochs.timeline import CHECKPOINT_WORK
from resurgence.engine.spark.session import start_session
from resurgence.ids import JobName
from resurgence.sql import compile_pipeline
from resurgence.storage.object_store import ObjectStore

KEYS = 570_000
"""A million rows over this number of keys form about 430,000 groups."""
START_MICROS = 1_704_067_200_000_000
STATE_STORES = {
    "RocksDB": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "HDFS-backed": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
PARALLELISM = 2
MEMORY = "4g"
RESURGENCE, STREAMING = "Resurgence", "Structured Streaming"
CHECKPOINT_GOAL = at_most(0.1)
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Load:
    """The rows of an epoch, and how far event time advances in it."""

    name: str
    rows: int
    epochs: int
    epochs_per_window: int
    goal: Goal
    """Large epochs: of the ratio of rows per second. Small ones: of the ratio of their seconds."""

    @property
    def is_large(self) -> bool:
        return self.rows > 10_000

    @property
    def interval_micros(self) -> int:
        """Event time between two rows, so that a window of ten seconds spans whole epochs."""
        return 10_000_000 // (self.rows * self.epochs_per_window)


def key(counter: str) -> str:
    """Return the expression of a pseudo-random but deterministic key."""
    return f"pmod(hash({counter}), {KEYS})"


@dataclass(frozen=True)
class Measured:
    """The seconds of each epoch of a load."""

    seconds: list[float]
    checkpoint: list[float]
    """Those of them that its checkpoint took. Empty if that is not known."""
    profile: list[str]
    """The lines of its profile, if it was profiled."""


def resurgence_epochs(spark: SparkSession, load: Load, folder: Path, *, profile: bool) -> Measured:
    """Run the query in Resurgence."""
    sql = f"""
        CREATE TABLE numbers WITH (
            connector = 'impulse', message_count = '{load.rows * load.epochs}',
            event_time_interval = '{load.interval_micros * 1000}', start_time = '2024-01-01T00:00:00');
        CREATE TABLE totals (start TIMESTAMP, k INT, n BIGINT, total BIGINT, highest BIGINT)
        WITH (connector = 'filesystem', path = '{folder}/out', format = 'parquet');
        INSERT INTO totals SELECT window.start, k, n, total, highest FROM (
            SELECT tumble(INTERVAL '10 seconds') AS window, {key("counter")} AS k,
                   count(*) AS n, sum(counter) AS total, max(counter) AS highest
            FROM numbers GROUP BY window, k)"""
    engine = open_engine(
        spark,
        compile_pipeline(sql, CONNECTORS),
        ObjectStore(f"{folder}/state"),
        JobName("bench"),
        settings_from(
            {
                "pipeline.epoch_rows": str(load.rows),
                "pipeline.parallelism": str(PARALLELISM),
                "pipeline.profile": str(profile).lower(),
            }
        ),
    )
    seconds, checkpoint = [], []
    profiles: list[EpochProfile] = []
    while not engine.finished:
        began = time.perf_counter()
        report = engine.run_epoch(profiled=profiles.append)
        seconds.append(time.perf_counter() - began)
        assert report is not None
        checkpoint.append(report.timeline.seconds(*CHECKPOINT_WORK))
    # Without the last epoch, which closes everything.
    return Measured(seconds, checkpoint, [*profile_lines(profiles[:-1])])


def streaming_epochs(spark: SparkSession, load: Load, folder: Path, store: str) -> list[float]:
    """Run the query in Structured Streaming. Return the seconds of each micro-batch."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STATE_STORES[store])
    numbers = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", load.rows)
        .option("numPartitions", PARALLELISM if load.is_large else 1)
        .load()
    )
    checkpoint = folder / f"checkpoint-{store}"
    query = (
        totals(numbers.selectExpr("value AS counter"), load)
        .writeStream.format("parquet")
        .option("path", f"{folder}/out-{store}")
        .option("checkpointLocation", str(checkpoint))
        .outputMode("append")
        .trigger(processingTime="0 seconds")
        .start()
    )
    return run_batches(query, checkpoint, load.epochs)


def run_batches(query: StreamingQuery, checkpoint: Path, count: int) -> list[float]:
    """Stop a query after so many micro-batches. Return their seconds.

    Their progress is read at the end, because that takes the time of many calls to the JVM.
    """
    before = batches_committed(checkpoint)
    try:
        while batches_committed(checkpoint) < before + count:
            failure = query.exception()
            if failure is not None:
                raise SystemExit(str(failure))
            time.sleep(POLL_SECONDS)
    finally:
        query.stop()
    seconds = {
        each["batchId"]: each["durationMs"]["triggerExecution"] / 1000
        for each in query.recentProgress
        if each["numInputRows"] > 0
    }
    return [seconds[batch] for batch in sorted(seconds)][:count]


def batches_committed(checkpoint: Path) -> int:
    return max((int(each.name) + 1 for each in (checkpoint / "commits").glob("[0-9]*")), default=0)


def totals(numbers: DataFrame, load: Load) -> DataFrame:
    """Return the equivalent Structured Streaming query."""
    stamped = numbers.selectExpr(
        "counter",
        f"{key('counter')} AS k",
        f"timestamp_micros({START_MICROS} + counter * {load.interval_micros}) AS at",
    )
    return (
        stamped.withWatermark("at", "1 second")
        .groupBy(F.window("at", "10 seconds"), "k")
        .agg(
            F.count("*").alias("n"),
            F.sum("counter").alias("total"),
            F.max("counter").alias("highest"),
        )
    )


def warm(seconds: list[float], load: Load) -> list[float]:
    """Return the epochs of whole windows in the second half, without the last epoch, which flushes
    everything.
    """
    usable = seconds[len(seconds) // 2 : -1]
    return usable[: len(usable) - len(usable) % load.epochs_per_window]


def by_window(seconds: list[float], load: Load) -> list[float]:
    """Return the mean seconds of an epoch in each window."""
    step = load.epochs_per_window
    return [statistics.mean(seconds[at : at + step]) for at in range(0, len(seconds), step)]


def measure(spark: SparkSession, loads: tuple[Load, ...], engine: str, *, profile: bool) -> None:
    """Print a line with what was measured of the warm epochs of each load."""
    for load in loads:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            if engine == RESURGENCE:
                found = resurgence_epochs(spark, load, Path(folder), profile=profile)
            else:
                found = Measured(streaming_epochs(spark, load, Path(folder), engine), [], [])
        used = Measured(warm(found.seconds, load), warm(found.checkpoint, load), found.profile)
        print(json.dumps(used.__dict__), flush=True)


def stock_session() -> SparkSession:
    """Start an unmodified Spark, as a user of Structured Streaming would."""
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", MEMORY)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", PARALLELISM)
        .config("spark.log.level", "ERROR")
        .config("spark.sql.streaming.numRecentProgressUpdates", 10_000)
        .getOrCreate()
    )


@dataclass(frozen=True)
class Found:
    """The seconds of the warm epochs of a load in one round, and the peak of memory."""

    seconds: list[float]
    memory: Usage
    checkpoint: list[float]
    profile: list[str]


def child(engine: str, loads: tuple[Load, ...], *, profile: bool = False) -> dict[Load, Found]:
    """Measure one engine in its own process, with a fresh JVM that it warms up itself."""
    command = [sys.executable, __file__, "--engine", engine]
    command += ["--large-epochs", str(loads[0].epochs), "--small-epochs", str(loads[-1].epochs)]
    command += ["--profile"] if profile else []
    found = {}
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        ) as process,
        MemoryPeak(process.pid) as peak,
    ):
        assert process.stdout is not None
        lines = (line for line in process.stdout if line.startswith("{"))
        for load, line in zip(loads, lines, strict=False):
            found[load] = Found(memory=peak.take(), **json.loads(line))
        if process.wait() != 0:
            errors.seek(0)
            raise SystemExit(errors.read()[-3000:])
    return found


def loads_of(large_epochs: int, small_epochs: int) -> tuple[Load, ...]:
    """Return the loads, the larger ones first, because they warm up the JVM for the smaller one."""
    return (
        Load("large epochs, one per window", 1_000_000, large_epochs, 1, at_least(3.5)),
        Load("large epochs, four per window", 1_000_000, large_epochs, 4, at_least(4)),
        Load("small epochs, ten per window", 1000, small_epochs, 10, at_most(0.5)),
    )


def compare(report: Report, load: Load, rounds: dict[str, Sequence[Found]]) -> None:
    """Add the figures of one load to the report, and print them."""
    print(f"{load.name}: {load.rows:,} rows per epoch, second half of {load.epochs} epochs")
    if load.is_large:
        figures = {"rows/s": rates(load, rounds)}
    else:
        figures = {
            f"p{share:.0%} of seconds".replace("%", ""): {
                engine: [percentile(each.seconds, share) for each in found]
                for engine, found in rounds.items()
            }
            for share in (0.5, 0.99)
        }
    figures["memory, MiB"] = {
        engine: [each.memory.memory for each in found] for engine, found in rounds.items()
    }
    for measure_name, by_engine in figures.items():
        for engine, values in by_engine.items():
            system = engine if engine == RESURGENCE else f"{STREAMING}, {engine}"
            report.add(measure_name, load.name, system, values)
            print(
                f"  {system:34} {measure_name:16}"
                + " ".join(
                    f"{value:12,.3f}" if value < 100 else f"{value:12,.0f}" for value in values
                )
            )
    for measure_name, by_engine in figures.items():
        pick = max if measure_name == "rows/s" else min
        best = pick(STATE_STORES, key=lambda store: statistics.median(by_engine[store]))
        report.compare(
            f"{load.name}: {measure_name}, over {best}",
            by_engine[RESURGENCE],
            by_engine[best],
            at_most(1) if measure_name == "memory, MiB" else load.goal,
        )
    ours = rounds[RESURGENCE]
    spent = [statistics.mean(each.seconds) for each in ours]
    checkpoint = [statistics.mean(each.checkpoint) for each in ours]
    report.add("seconds of the checkpoint", load.name, RESURGENCE, checkpoint)
    report.compare(f"{load.name}: checkpoint share", checkpoint, spent, CHECKPOINT_GOAL)


def rates(load: Load, rounds: dict[str, Sequence[Found]]) -> dict[str, list[float]]:
    """Return the rows per second of each round, by engine."""
    return {
        engine: [load.rows / statistics.median(by_window(each.seconds, load)) for each in found]
        for engine, found in rounds.items()
    }


def fastest_stores(found: dict[str, list[dict[Load, Found]]], loads: Sequence[Load]) -> set[str]:
    """Return the state stores that were the fastest in the first round under some load."""
    return {
        min(STATE_STORES, key=lambda store: sum(found[store][0][load].seconds)) for load in loads
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--large-epochs", type=int, default=13)
    parser.add_argument("--small-epochs", type=int, default=201)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engine", choices=[RESURGENCE, *STATE_STORES], help=argparse.SUPPRESS)
    add_arguments(parser)
    add_profile_argument(parser)
    arguments = parser.parse_args()
    loads = loads_of(arguments.large_epochs, arguments.small_epochs)
    if arguments.engine is not None:
        run_engine(arguments.engine, loads, profile=arguments.profile)
        return
    if arguments.profile:
        for load, profiled in child(RESURGENCE, loads, profile=True).items():
            print(f"\n{load.name}: {load.rows:,} rows per epoch", *profiled.profile, sep="\n")
        return
    engines = [RESURGENCE, *STATE_STORES]
    found: dict[str, list[dict[Load, Found]]] = {engine: [] for engine in engines}
    for number in range(arguments.rounds):
        for engine in engines:
            found[engine].append(child(engine, loads))
            medians = [statistics.median(each.seconds) for each in found[engine][-1].values()]
            seconds = ", ".join(f"{each:.3f}" for each in medians)
            print(f"round {number + 1}, {engine}: medians of {seconds} s", flush=True)
        engines = [RESURGENCE, *sorted(fastest_stores(found, loads))]
    report = Report("window_aggregate", arguments)
    for load in loads:
        compare(report, load, {name: [each[load] for each in own] for name, own in found.items()})
    report.save()


def run_engine(engine: str, loads: tuple[Load, ...], *, profile: bool) -> None:
    if engine != RESURGENCE:
        spark = stock_session()
        try:
            measure(spark, loads, engine, profile=profile)
        finally:
            spark.stop()
        return
    with tempfile.TemporaryDirectory() as folder:
        spark, jvm = start_session(
            app_name="window aggregate",
            master="local[2]",
            memory=MEMORY,
            shuffle_partitions=PARALLELISM,
            conf={},
            log_file=Path(folder) / "spark.log",
        )
        try:
            measure(spark, loads, engine, profile=profile)
        finally:
            spark.stop()
            jvm.close()


if __name__ == "__main__":
    main()
