"""A tumbling aggregate: Resurgence compared with Structured Streaming in one run.

The query computes count, sum and max by key in windows of ten seconds. Rows are generated inside
Spark; the output is Parquet; checkpoints are on. Both systems process the same rows in the same
epochs with the same cores, memory and shuffle partitions, each in its own process. Only the second
half of the epochs is measured, when the JVM is warm. Structured Streaming runs on an unmodified
Spark with each of its two state stores, and the faster one is compared. Only the ratios are
comparable between machines.

    python benchmarks/window_aggregate.py [--large-epochs N] [--small-epochs N]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from resurgence.config import settings_from
from resurgence.connectors.registry import CONNECTORS
from resurgence.engine.epochs.in_process import open_engine
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
RESURGENCE = "Resurgence"


@dataclass(frozen=True)
class Load:
    """The rows of an epoch, and how far event time advances in it."""

    name: str
    rows: int
    epochs: int
    epochs_per_window: int

    @property
    def interval_micros(self) -> int:
        """Event time between two rows, so that a window of ten seconds spans whole epochs."""
        return 10_000_000 // (self.rows * self.epochs_per_window)


def key(counter: str) -> str:
    """Return the expression of a pseudo-random but deterministic key."""
    return f"pmod(hash({counter}), {KEYS})"


def resurgence_epochs(spark: SparkSession, load: Load, folder: Path) -> list[float]:
    """Run the query in Resurgence. Return the seconds of each epoch."""
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
            {"pipeline.epoch_rows": str(load.rows), "pipeline.parallelism": str(PARALLELISM)}
        ),
    )
    seconds = []
    while not engine.finished:
        began = time.perf_counter()
        engine.run_epoch()
        seconds.append(time.perf_counter() - began)
    return seconds


def streaming_epochs(spark: SparkSession, load: Load, folder: Path, store: str) -> list[float]:
    """Run the query in Structured Streaming. Return the seconds of each micro-batch."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STATE_STORES[store])
    numbers = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", load.rows)
        .option("numPartitions", PARALLELISM if load.rows > 10_000 else 1)
        .load()
    )
    query = (
        totals(numbers.selectExpr("value AS counter"), load)
        .writeStream.format("parquet")
        .option("path", f"{folder}/out-{store}")
        .option("checkpointLocation", f"{folder}/checkpoint-{store}")
        .outputMode("append")
        .trigger(processingTime="0 seconds")
        .start()
    )
    seconds: dict[int, float] = {}
    try:
        while len(seconds) < load.epochs:
            failure = query.exception()
            if failure is not None:
                raise SystemExit(str(failure))
            for each in query.recentProgress:
                if each["numInputRows"] > 0:
                    seconds[each["batchId"]] = each["durationMs"]["triggerExecution"] / 1000
            time.sleep(0.05)
    finally:
        query.stop()
    return [seconds[batch] for batch in sorted(seconds)][: load.epochs]


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


def measure(spark: SparkSession, loads: tuple[Load, ...], engine: str) -> dict[Load, float]:
    """Return the mean seconds of a warm epoch under each load."""
    means = {}
    for load in loads:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            if engine == RESURGENCE:
                seconds = resurgence_epochs(spark, load, Path(folder))
            else:
                seconds = streaming_epochs(spark, load, Path(folder), engine)
        means[load] = statistics.mean(warm(seconds, load))
    return means


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
        .getOrCreate()
    )


def child(engine: str, loads: tuple[Load, ...]) -> dict[Load, float]:
    """Measure one engine in its own process, with a fresh JVM that it warms up itself."""
    command = [sys.executable, __file__, "--engine", engine]
    command += ["--large-epochs", str(loads[0].epochs), "--small-epochs", str(loads[-1].epochs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return dict(zip(loads, json.loads(done.stdout.splitlines()[-1]), strict=True))


def loads_of(large_epochs: int, small_epochs: int) -> tuple[Load, ...]:
    """Return the loads, the larger ones first, because they warm up the JVM for the smaller one."""
    return (
        Load("large epochs, one per window", 1_000_000, large_epochs, 1),
        Load("large epochs, four per window", 1_000_000, large_epochs, 4),
        Load("small epochs, ten per window", 1000, small_epochs, 10),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large-epochs", type=int, default=25)
    parser.add_argument("--small-epochs", type=int, default=121)
    parser.add_argument("--engine", choices=[RESURGENCE, *STATE_STORES], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    loads = loads_of(arguments.large_epochs, arguments.small_epochs)
    if arguments.engine is not None:
        print(json.dumps(list(run_engine(arguments.engine, loads).values())))
        return
    results = {engine: child(engine, loads) for engine in (RESURGENCE, *STATE_STORES)}
    for load in loads:
        print(f"{load.name}: {load.rows:,} rows per epoch, second half of {load.epochs} epochs")
        for engine, means in results.items():
            name = engine if engine == RESURGENCE else f"Structured Streaming, {engine}"
            print(
                f"  {name:34}{means[load] * 1000:6.0f} ms/epoch {load.rows / means[load]:12,.0f} rows/s"
            )
        ours = results[RESURGENCE][load]
        best = min(results[store][load] for store in STATE_STORES)
        print(
            f"  compared with the faster one: {best / ours:.2f} times its rows/s, {ours / best:.2f} of its time"
        )


def run_engine(engine: str, loads: tuple[Load, ...]) -> dict[Load, float]:
    if engine != RESURGENCE:
        spark = stock_session()
        try:
            return measure(spark, loads, engine)
        finally:
            spark.stop()
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
            return measure(spark, loads, engine)
        finally:
            spark.stop()
            jvm.close()


if __name__ == "__main__":
    main()
