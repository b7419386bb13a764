"""Runs in Resurgence, in Structured Streaming and in a batch of Spark, inside their own process."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.nexmark_systems.events import KINDS, flat_columns, view_sql
from benchmarks.nexmark_systems.queries import Query, System, read_query
from benchmarks.nexmark_systems.runs import CORES, MEMORY, Repetition, Run
from benchmarks.processes import cpu_seconds
from benchmarks.window_aggregate import STATE_STORES, stock_session
from pyspark.sql import DataFrame, SparkSession

from resurgence.config import settings_from
from resurgence.connectors.registry import CONNECTORS
from resurgence.engine.epochs.in_process import open_engine
from resurgence.engine.spark.session import start_session
from resurgence.ids import JobName
from resurgence.sql import compile_pipeline
from resurgence.storage.object_store import ObjectStore

WATERMARK_SECONDS = 4

Once = Callable[[SparkSession, Run, Query, Path], None]
"""Runs the query once, into an output folder."""


def run_in_this_process(run: Run) -> None:
    """Run the query as often as the run says, after it has warmed up. Print each repetition."""
    query = read_query(run.query)
    if run.system is not System.RESURGENCE:
        spark = stock_session()
        once = stream_once if run.system is System.STREAMING else batch_once
        repeat(spark, run, query, once)
        spark.stop()
        return
    with tempfile.TemporaryDirectory() as folder:
        spark, jvm = start_session(
            app_name="nexmark",
            master=f"local[{CORES}]",
            memory=MEMORY,
            shuffle_partitions=CORES,
            conf={},
            log_file=Path(folder) / "spark.log",
        )
        repeat(spark, run, query, resurgence_once)
        spark.stop()
        jvm.close()


def repeat(spark: SparkSession, run: Run, query: Query, once: Once) -> None:
    """Structured Streaming warms up with each of its state stores, and continues with the faster
    one.
    """
    has_state = run.system is System.STREAMING and not query.is_stateless
    stores: list[str] = [*STATE_STORES] if has_state else [""]
    warm_up = {}
    for number, store in enumerate(stores):
        warm_up[store] = _measured(spark, run, query, once, f"warm-up-{number}", store)
    fastest = min(warm_up, key=lambda each: warm_up[each])
    for number in range(run.repetitions):
        _measured(spark, run, query, once, str(number), fastest)


def _measured(
    spark: SparkSession, run: Run, query: Query, once: Once, name: str, store: str
) -> float:
    if store:
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", STATE_STORES[store])
    folder = run.folder / name
    folder.mkdir(parents=True)
    used, began = cpu_seconds(os.getpid()), time.perf_counter()
    once(spark, run, query, folder)
    seconds, cpu = time.perf_counter() - began, cpu_seconds(os.getpid()) - used
    is_warm = not name.startswith("warm-up")
    Repetition(seconds, cpu, str(folder / "out"), is_warm, store).print()
    return seconds


# -------------------------------------------------------------------- Resurgence


def resurgence_once(spark: SparkSession, run: Run, query: Query, folder: Path) -> None:
    engine = open_engine(
        spark,
        compile_pipeline(pipeline(run, query, folder), CONNECTORS),
        ObjectStore(f"{folder}/state"),
        JobName("nexmark"),
        settings_from(
            {
                "pipeline.epoch_rows": str(run.events.epoch_rows),
                "pipeline.parallelism": str(CORES),
                "pipeline.epoch_interval": "0s",
            }
        ),
    )
    while not engine.finished:
        engine.run_epoch()


def pipeline(run: Run, query: Query, folder: Path) -> str:
    columns = ", ".join(f"{name} {sql}" for name, sql in flat_columns().items())
    views = "".join(f"CREATE VIEW {each} AS {view_sql(each)};\n" for each in KINDS)
    is_changelog = System.RESURGENCE in query.changelogs
    sink = (
        "format = 'debezium_json'"
        if is_changelog
        else ("format = 'parquet', 'parquet.compression' = 'snappy'")
    )
    return f"""
        CREATE TABLE nexmark ({columns} NOT NULL,
            WATERMARK FOR timestamp AS timestamp - INTERVAL '{WATERMARK_SECONDS} seconds')
        WITH (connector = 'filesystem', type = 'source', format = 'parquet',
            path = '{run.events.epochs}', 'source.stop_at' = 'latest');
        CREATE TEMPORARY TABLE side (key BIGINT PRIMARY KEY, value TEXT)
        WITH (connector = 'filesystem', path = '{run.events.side}', format = 'parquet', type = 'lookup');
        CREATE TABLE {query.name} WITH (connector = 'filesystem', type = 'sink', path = '{folder}/out', {sink});
        {views}
        INSERT INTO {query.name} {query.texts[System.RESURGENCE]};"""


# -------------------------------------------------------------------- Spark


def stream_once(spark: SparkSession, run: Run, query: Query, folder: Path) -> None:
    schema = ", ".join(f"{name} {sql}" for name, sql in flat_columns().items())
    events = (
        spark.readStream.schema(schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(run.events.epochs))
        .withWatermark("timestamp", f"{WATERMARK_SECONDS} seconds")
    )
    _create_views(spark, run, events)
    result = spark.sql(query.texts[System.STREAMING])
    writer = result.writeStream.option("checkpointLocation", f"{folder}/checkpoint").trigger(
        availableNow=True
    )
    if System.STREAMING in query.changelogs:

        def write(rows: DataFrame, batch: int) -> None:
            rows.write.mode("overwrite").json(f"{folder}/out/batch={batch}")

        started = writer.outputMode("update").foreachBatch(write).start()
    else:
        started = writer.outputMode("append").format("parquet").start(f"{folder}/out")
    started.awaitTermination()


def batch_once(spark: SparkSession, run: Run, query: Query, folder: Path) -> None:
    _create_views(spark, run, spark.read.parquet(str(run.events.epochs)))
    spark.sql(query.texts[System.BATCH]).write.parquet(f"{folder}/out")


def _create_views(spark: SparkSession, run: Run, events: DataFrame) -> None:
    events.createOrReplaceTempView("nexmark")
    for each in KINDS:
        spark.sql(view_sql(each)).createOrReplaceTempView(each)
    spark.read.parquet(str(run.events.side)).createOrReplaceTempView("side")
