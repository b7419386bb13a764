"""Keyed rows: how an epoch of a join and of a Top-N grows with the rows that are stored.

- The join is an inner join of two streams by key, within a bound of event time. The bound holds as
  many rows of each side as there are keys, so a new row finds about one match. Structured Streaming
  joins the same rows in the same batches, with RocksDB and changelog checkpointing.
- The Top-N is `row_number() ... <= 10` by key, over rows without end. Structured Streaming cannot
  express it, so it is measured beside itself with fewer keys.

For each size the state is loaded first, in epochs of a million rows. Then the job is restored, and
runs epochs of 1,000 and of 100,000 rows of each input, and some of 1,000 rows with skewed keys: half
of the rows have one of a thousand. Output is dropped, checkpoints are on. Medians and worst epochs
are those after the first quarter of the epochs, in which the JVM warms up.

    python benchmarks/keyed_rows.py [--keys 100000,1000000] [--epochs N] [--no-streaming]
                                    [--json FILE] [--plot FILE]

Only ratios within one run are comparable. The exit status is 1 if epochs of 1,000 rows take more
than twice as long with the most keys as with the fewest, or with skewed keys as with uniform ones.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.keyed_state import LOADED, MEMORY, RESURGENCE, STREAMING, Load, warm
from benchmarks.report import Report, add_arguments, at_most
from benchmarks.window_aggregate import PARALLELISM, STATE_STORES, run_batches, stock_session
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from resurgence.config import settings_from
from resurgence.connectors.registry import CONNECTORS
from resurgence.engine.epochs.engine import Engine
from resurgence.engine.epochs.in_process import open_engine
from resurgence.engine.spark.session import start_session
from resurgence.ids import JobName
from resurgence.sql import compile_pipeline
from resurgence.storage.object_store import ObjectStore

JOIN, TOP = "join", "Top-N"
LOADS = (
    Load("1,000 rows, uniform", 1_000, skewed=False),
    Load("1,000 rows, skewed", 1_000, skewed=True),
    Load("100,000 rows, uniform", 100_000, skewed=False),
)
"""The rows of an epoch, of each input."""
FREQUENT_KEYS = 1_000
"""Fewer of them would have so many matches in the join that their output would be measured."""
KEPT_ROWS = 10
GROWTH = 2.0


@dataclass(frozen=True)
class Plan:
    """The rows of a run: those that load the state, then the epochs of each load."""

    query: str
    keys: int
    epochs: int

    @property
    def loaded(self) -> int:
        """How many epochs load the state."""
        return -(-2 * self.keys // LOADED)

    def ends(self) -> list[int]:
        """Return the number of rows before each load, and in total."""
        sizes = (each.rows * self.epochs for each in LOADS)
        return [*itertools.accumulate(sizes, initial=self.loaded * LOADED)]

    @property
    def name(self) -> str:
        return f"{self.query}, {self.keys:,} keys"

    def key(self, salt: int) -> str:
        hashed = f"xxhash64(counter + {salt})"
        spans = [
            f"counter >= {start} AND counter < {end}"
            for load, (start, end) in zip(LOADS, itertools.pairwise(self.ends()), strict=True)
            if load.skewed
        ]
        is_frequent = f"counter % 2 = 0 AND ({' OR '.join(spans)})"
        return f"pmod({hashed}, IF({is_frequent}, {FREQUENT_KEYS}, {self.keys}))"


# -------------------------------------------------------------------- ours


def sources(plan: Plan, *names: str) -> str:
    """Return tables with a row in each millisecond."""
    options = f"message_count = '{plan.ends()[-1]}', event_time_interval = '1 millisecond'"
    start = "start_time = '2024-01-01T00:00:00'"
    return "".join(
        f"CREATE TABLE {each} WITH (connector = 'impulse', {options}, {start});" for each in names
    )


def pipeline(plan: Plan) -> str:
    if plan.query == JOIN:
        return f"""{sources(plan, "lefts", "rights")}
        CREATE TABLE out (k BIGINT, x BIGINT, y BIGINT) WITH (connector = 'blackhole');
        INSERT INTO out SELECT l.k, x, y
        FROM (SELECT {plan.key(0)} AS k, counter AS x, timestamp AS at FROM lefts) l
        JOIN (SELECT {plan.key(7)} AS k, counter AS y, timestamp AS at FROM rights) r
        ON l.k = r.k AND r.at >= l.at - INTERVAL '{plan.keys} milliseconds'
            AND r.at <= l.at + INTERVAL '{plan.keys} milliseconds'"""
    return f"""{sources(plan, "numbers")}
        CREATE TABLE out (k BIGINT, v BIGINT, counter BIGINT, n BIGINT)
            WITH (connector = 'blackhole', format = 'debezium_json');
        INSERT INTO out SELECT k, v, counter, n FROM (
            SELECT *, row_number() OVER (PARTITION BY k ORDER BY v DESC, counter) AS n
            FROM (SELECT {plan.key(0)} AS k, xxhash64(counter + 1) AS v, counter FROM numbers))
        WHERE n <= {KEPT_ROWS}"""


def resurgence_seconds(spark: SparkSession, plan: Plan, folder: Path) -> Iterator[list[float]]:
    graph = compile_pipeline(pipeline(plan), CONNECTORS)

    def opened(rows: int) -> Engine:
        settings = {
            "pipeline.epoch_rows": str(rows),
            "pipeline.parallelism": str(PARALLELISM),
            "pipeline.epoch_interval": "0s",
        }
        store, name = ObjectStore(f"{folder}/state"), JobName("bench")
        return open_engine(spark, graph, store, name, settings_from(settings))

    engine = opened(LOADED)
    for _ in range(plan.loaded):
        engine.run_epoch()
    for load in LOADS:
        engine = opened(load.rows)
        seconds = []
        for _ in range(plan.epochs):
            began = time.perf_counter()
            engine.run_epoch()
            seconds.append(time.perf_counter() - began)
        yield seconds


# -------------------------------------------------------------------- Structured Streaming


def streaming_seconds(spark: SparkSession, plan: Plan, folder: Path) -> Iterator[list[float]]:
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STATE_STORES["RocksDB"])
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    checkpoint = f"{folder}/checkpoint"

    def stream(rows: int, salt: int, names: tuple[str, str, str]) -> DataFrame:
        k, value, at = names
        numbers = (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", rows)
            .option("numPartitions", PARALLELISM)
            .load()
            .selectExpr("value AS counter")
        )
        times = f"timestamp_micros(1704067200000000 + counter * 1000) AS {at}"
        keyed = numbers.selectExpr(f"{plan.key(salt)} AS {k}", f"counter AS {value}", times)
        return keyed.withWatermark(at, "1 second")

    def batches(rows: int, count: int) -> list[float]:
        lefts = stream(rows, 0, ("k", "x", "at"))
        rights = stream(rows, 7, ("r_k", "y", "r_at"))
        bound = f"INTERVAL '{plan.keys} milliseconds'"
        joined = f"k = r_k AND r_at >= at - {bound} AND r_at <= at + {bound}"
        query = (
            lefts.join(rights, F.expr(joined))
            .selectExpr("k", "x", "y")
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .outputMode("append")
            .trigger(processingTime="0 seconds")
            .start()
        )
        return run_batches(query, Path(checkpoint), count)

    batches(LOADED, plan.loaded)
    for load in LOADS:
        yield batches(load.rows, plan.epochs)


# -------------------------------------------------------------------- runs


def run_engine(engine: str, plan: Plan, folder: Path) -> Iterator[list[float]]:
    if engine == STREAMING:
        spark = stock_session()
        try:
            yield from streaming_seconds(spark, plan, folder)
        finally:
            spark.stop()
        return
    spark, jvm = start_session(
        app_name="keyed rows",
        master="local[2]",
        memory=MEMORY,
        shuffle_partitions=PARALLELISM,
        conf={},
        log_file=folder / "spark.log",
    )
    try:
        yield from resurgence_seconds(spark, plan, folder)
    finally:
        spark.stop()
        jvm.close()


def child(engine: str, plan: Plan) -> list[list[float]]:
    """Measure one engine in a process of its own: the seconds of the warm epochs of each load."""
    command = [sys.executable, __file__, "--engine", engine, "--query", plan.query]
    command += ["--epochs", str(plan.epochs), "--keys", str(plan.keys)]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        done = subprocess.run(
            [*command, "--folder", folder],
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )
    if done.returncode != 0:
        raise SystemExit(done.stderr[-3000:])
    return [warm(json.loads(line)) for line in done.stdout.splitlines() if line.startswith("[")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", default="100000,1000000")
    parser.add_argument("--epochs", type=int, default=40, help="epochs of each load")
    parser.add_argument("--no-streaming", action="store_true")
    parser.add_argument("--engine", choices=[RESURGENCE, STREAMING], help=argparse.SUPPRESS)
    parser.add_argument("--query", choices=[JOIN, TOP], help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    add_arguments(parser)
    given = parser.parse_args()
    sizes = [int(each) for each in given.keys.split(",")]
    if given.engine is not None:
        plan = Plan(given.query, sizes[0], given.epochs)
        for seconds in run_engine(given.engine, plan, Path(given.folder)):
            print(json.dumps(seconds), flush=True)
        return
    report = Report("keyed_rows", given)
    found: dict[tuple[str, int], list[list[float]]] = {}
    for query in (JOIN, TOP):
        for keys in sizes:
            plan = Plan(query, keys, given.epochs)
            has_other = query == JOIN and not given.no_streaming
            measured = {
                engine: child(engine, plan)
                for engine in ((RESURGENCE, STREAMING) if has_other else (RESURGENCE,))
            }
            found[query, keys] = measured[RESURGENCE]
            print(f"{plan.name}, {given.epochs} epochs of each load", flush=True)
            for engine, by_load in measured.items():
                for load, seconds in zip(LOADS, by_load, strict=True):
                    median, worst = statistics.median(seconds), max(seconds)
                    name = f"{engine:21} {load.name:22}"
                    print(f"  {name}  median {median:6.2f} s  worst {worst:6.2f} s", flush=True)
                    report.add(f"seconds, {query}, {load.name}", plan.name, engine, seconds)
            if has_other:
                for load, own, other in zip(LOADS, *measured.values(), strict=True):
                    report.compare(f"{plan.name}, {load.name}: median", own, other)
    for query in (JOIN, TOP):
        small, large = (found[query, each][0] for each in (sizes[0], sizes[-1]))
        name = f"{query}, 1,000 rows, from {sizes[0]:,} to {sizes[-1]:,} keys: median"
        report.compare(name, large, small, at_most(GROWTH))
        uniform, skewed, _ = found[query, sizes[-1]]
        name = f"{query}, 1,000 rows, {sizes[-1]:,} keys, skewed to uniform: median"
        report.compare(name, skewed, uniform, at_most(GROWTH))
    report.save()
    if not all(each.is_met for each in report.ratios):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
