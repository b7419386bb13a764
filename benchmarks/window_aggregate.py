"""A tumbling aggregate, side by side: Resurgence and Structured Streaming in one run, on one Spark session.

Count, sum and max by key in windows of ten seconds; rows are generated inside Spark; Parquet out; checkpoints on. Both
take the same rows in the same epochs, warm. Structured Streaming is run with each of its two state stores and the
better one counts. Printed are medians and ratios; only the ratios mean anything on another machine.

    python benchmarks/window_aggregate.py [--large-epochs N] [--small-epochs N]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from resurgence.config import settings_from
from resurgence.connectors.registry import CONNECTORS
from resurgence.engine.in_process import open_engine
from resurgence.engine.session import start_session
from resurgence.ids import JobName
from resurgence.sql import compile_pipeline
from resurgence.storage.object_store import ObjectStore

KEYS = 570_000
"""A million rows over so many keys fall into about 430,000 groups."""
START_MICROS = 1_704_067_200_000_000
STATE_STORES = {
    "RocksDB": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "HDFS-backed": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
PARALLELISM = 2
ONLY = ["HDFS-backed"]


@dataclass(frozen=True)
class Load:
    """How much an epoch holds, and how far event time goes in it."""

    name: str
    rows: int
    epochs: int
    epochs_per_window: int

    @property
    def interval_micros(self) -> int:
        """Event time between two rows, such that windows of ten seconds span whole epochs."""
        return 10_000_000 // (self.rows * self.epochs_per_window)


def key(counter: str) -> str:
    """A key that looks random and is the same everywhere."""
    return f"pmod(hash({counter}), {KEYS})"


def resurgence_epochs(spark: SparkSession, load: Load, folder: Path) -> list[float]:
    """Seconds of each epoch."""
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
    """Seconds of each micro-batch of a Structured Streaming query over the same rows."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STATE_STORES[store])
    spark.conf.set("spark.sql.shuffle.partitions", PARALLELISM)
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
    try:
        while query.lastProgress is None or query.lastProgress["batchId"] < load.epochs:
            if query.exception() is not None:
                raise SystemExit(str(query.exception()))
            time.sleep(0.05)
        progress = [each for each in query.recentProgress if each["numInputRows"] > 0]
    finally:
        query.stop()
    return [each["durationMs"]["triggerExecution"] / 1000 for each in progress[: load.epochs]]


def totals(numbers: DataFrame, load: Load) -> DataFrame:
    """The same query in Spark's own words."""
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
    """Whole windows of the second half, without the last epoch, which flushes everything."""
    usable = seconds[len(seconds) // 2 : -1]
    return usable[: len(usable) - len(usable) % load.epochs_per_window]


def compare(spark: SparkSession, load: Load) -> float:
    """Mean seconds per epoch, ours over theirs; printed on the way."""
    with tempfile.TemporaryDirectory() as folder:
        ours = statistics.mean(warm(resurgence_epochs(spark, load, Path(folder)), load))
    theirs = {}
    for store in ONLY or STATE_STORES:
        with tempfile.TemporaryDirectory() as folder:
            theirs[store] = statistics.mean(
                warm(streaming_epochs(spark, load, Path(folder), store), load)
            )
    best = min(theirs, key=lambda store: theirs[store])
    print(
        f"{load.name}: {load.rows:,} rows per epoch, {load.epochs_per_window} epochs per window, "
        f"{load.epochs} epochs, the second half counts"
    )
    print(
        f"  Resurgence                        {ours * 1000:7.0f} ms an epoch, {load.rows / ours:12,.0f} rows/s"
    )
    for store, seconds in theirs.items():
        name = f"Structured Streaming, {store}"
        print(f"  {name:33} {seconds * 1000:7.0f} ms an epoch, {load.rows / seconds:12,.0f} rows/s")
    print(
        f"  ratio of rows/s {theirs[best] / ours:.2f}, of time {ours / theirs[best]:.2f} (against {best})"
    )
    return ours / theirs[best]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large-epochs", type=int, default=21)
    parser.add_argument("--small-epochs", type=int, default=161)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spark, jvm = start_session(
            app_name="window aggregate",
            master="local[2]",
            memory="4g",
            shuffle_partitions=PARALLELISM,
            conf={},
            log_file=Path(folder) / "spark.log",
        )
        try:
            ratios = {
                load: compare(spark, load)
                for load in (
                    Load("large", 1_000_000, arguments.large_epochs, 1),
                    Load("large", 1_000_000, arguments.large_epochs, 4),
                    Load("small", 1000, arguments.small_epochs, 10),
                )
            }
        finally:
            spark.stop()
            jvm.close()


if __name__ == "__main__":
    main()
