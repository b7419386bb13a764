"""Keyed state: how an epoch of an updating aggregate grows with the number of its keys.

The query is `count, sum GROUP BY key`, its output is dropped, checkpoints are on. For each size all
keys are loaded first, in epochs of a million rows. Then the job is restored, and runs small epochs
of 1,000 rows and large ones of 100,000, with keys that are uniform or skewed (half of the rows have
one of a hundred keys). Structured Streaming processes the same rows in the same batches, with
RocksDB and changelog checkpointing, in a process of its own.

    python benchmarks/keyed_state.py [--keys 100000,1000000,10000000] [--epochs N] [--no-streaming]
                                     [--json FILE] [--plot FILE] [--profile]

Medians, worst epochs and their ratios are those after the first quarter of the epochs, in which the
JVM warms up. The first epoch after a restore reads the state, and is shown by itself. Bytes and
requests are those of all epochs of a load: requests of the driver, and of tasks one for each state
file that they write or read from the store, not from their disk.

Memory is the peak of all processes of a system; the part of mapped files, which the kernel may drop,
is also shown by itself. Only ratios within one run are comparable. The exit status is 1 if small
uniform epochs take more than twice as long with the most keys as with the fewest.
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
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.processes import MemoryPeak
from benchmarks.report import Report, add_arguments, add_profile_argument, at_most
from benchmarks.window_aggregate import PARALLELISM, STATE_STORES, run_batches, stock_session
from obstore.store import ObjectStore as Client
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from resurgence.cli.output.profile_tables import profile_lines
from resurgence.config import settings_from
from resurgence.connectors.registry import CONNECTORS
from resurgence.engine.epochs.engine import Engine
from resurgence.engine.epochs.in_process import open_engine
from resurgence.engine.epochs.profile import EpochProfile
from resurgence.engine.spark.session import start_session
from resurgence.ids import JobName
from resurgence.sql import compile_pipeline
from resurgence.storage.object_store import ObjectStore

RESURGENCE, STREAMING = "Resurgence", "Structured Streaming"
LOADED = 1_000_000
"""The rows of an epoch that loads keys."""
TIME_GOAL, MEMORY_GOAL = at_most(0.7), at_most(1)
GROWTH = 2.0
MEMORY = "4g"


@dataclass(frozen=True)
class Load:
    """Epochs of one kind, after the keys are loaded."""

    name: str
    rows: int
    skewed: bool


LOADS = (
    Load("1,000 rows, uniform", 1_000, False),
    Load("1,000 rows, skewed", 1_000, True),
    Load("100,000 rows, uniform", 100_000, False),
    Load("100,000 rows, skewed", 100_000, True),
)


@dataclass(frozen=True)
class Plan:
    """The rows of a run: those that load the keys, then the epochs of each load."""

    keys: int
    epochs: int

    @property
    def loaded(self) -> int:
        """How many epochs load the keys."""
        return -(-self.keys // LOADED)

    def ends(self) -> list[int]:
        """Return the number of rows before each load, and in total."""
        sizes = (each.rows * self.epochs for each in LOADS)
        return [*itertools.accumulate(sizes, initial=self.loaded * LOADED)]

    def key(self) -> str:
        """Return the key of a row: every key while they are loaded, then random ones."""
        uniform = f"pmod(xxhash64(counter), {self.keys})"
        skewed = f"IF(counter % 2 = 0, pmod(xxhash64(counter), 100), {uniform})"
        ends = self.ends()
        cases = [f"WHEN counter < {ends[0]} THEN counter % {self.keys}"]
        for load, end in zip(LOADS, ends[1:], strict=True):
            cases.append(f"WHEN counter < {end} THEN {skewed if load.skewed else uniform}")
        return f"CASE {' '.join(cases)} ELSE {uniform} END"


@dataclass(frozen=True)
class Result:
    """The seconds of each epoch of a load, and what else was measured with it."""

    load: str
    seconds: list[float]
    written: int = 0
    read: int = 0
    requests: float = 0.0
    state: int = 0
    restore: float = 0.0
    memory: float = 0.0
    memory_of_files: float = 0.0
    profile: list[str] = field(default_factory=list)
    """The lines of its profile, if it was profiled."""


# -------------------------------------------------------------------- ours


class CountedStore(ObjectStore):
    """Counts the requests of this process."""

    requests = 0

    @property
    def _store(self) -> Client:
        self.requests += 1
        return super()._store


def resurgence_results(
    spark: SparkSession, plan: Plan, folder: Path, *, profile: bool
) -> Iterator[Result]:
    sql = f"""
        CREATE TABLE numbers WITH (connector = 'impulse', message_count = '{plan.ends()[-1]}',
            event_time_interval = '1000');
        CREATE TABLE totals (k BIGINT, n BIGINT, total BIGINT) WITH (connector = 'blackhole', format = 'debezium_json');
        INSERT INTO totals SELECT k, count(*), sum(counter) FROM (
            SELECT {plan.key()} AS k, counter FROM numbers) GROUP BY k"""

    store = CountedStore(f"{folder}/state")

    def opened(rows: int) -> Engine:
        settings = {
            "pipeline.epoch_rows": str(rows),
            "pipeline.parallelism": str(PARALLELISM),
            "pipeline.epoch_interval": "0s",
            "pipeline.profile": str(profile).lower(),
        }
        graph = compile_pipeline(sql, CONNECTORS)
        return open_engine(spark, graph, store, JobName("bench"), settings_from(settings))

    engine = opened(LOADED)
    for _ in range(plan.loaded):
        engine.run_epoch()
    for load in LOADS:
        began = time.perf_counter()
        engine = opened(load.rows)
        restore = time.perf_counter() - began
        seconds, written, read, state = [], 0, 0, 0
        profiles: list[EpochProfile] = []
        requests = -store.requests
        for _ in range(plan.epochs):
            began = time.perf_counter()
            report = engine.run_epoch(profiled=profiles.append)
            seconds.append(time.perf_counter() - began)
            assert report is not None
            written, state = written + report.bytes, report.state_bytes
            read += report.cache.bytes
            requests += report.cache.misses + sum(
                file.epoch == report.epoch for file, _ in report.checkpoint.state_files()
            )
        yield Result(
            load.name,
            seconds,
            written // plan.epochs,
            read // plan.epochs,
            (requests + store.requests) / plan.epochs,
            state,
            restore,
            profile=[*profile_lines(profiles)],
        )


# -------------------------------------------------------------------- Structured Streaming


def streaming_results(spark: SparkSession, plan: Plan, folder: Path) -> Iterator[Result]:
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STATE_STORES["RocksDB"])
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")

    checkpoint = f"{folder}/checkpoint"

    def batches(rows: int, count: int) -> list[float]:
        numbers = (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", rows)
            .option("numPartitions", PARALLELISM)
            .load()
        )
        query = (
            totals(numbers.selectExpr("value AS counter"), plan)
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .outputMode("update")
            .trigger(processingTime="0 seconds")
            .start()
        )
        return run_batches(query, Path(checkpoint), count)

    batches(LOADED, plan.loaded)
    for load in LOADS:
        yield Result(load.name, batches(load.rows, plan.epochs))


def totals(numbers: DataFrame, plan: Plan) -> DataFrame:
    keyed = numbers.selectExpr(f"{plan.key()} AS k", "counter")
    return keyed.groupBy("k").agg(F.count("*").alias("n"), F.sum("counter").alias("total"))


# -------------------------------------------------------------------- runs


def run_engine(engine: str, plan: Plan, folder: Path, *, profile: bool) -> Iterator[Result]:
    if engine == STREAMING:
        spark = stock_session()
        try:
            yield from streaming_results(spark, plan, folder)
        finally:
            spark.stop()
        return
    spark, jvm = start_session(
        app_name="keyed state",
        master="local[2]",
        memory=MEMORY,
        shuffle_partitions=PARALLELISM,
        conf={},
        log_file=folder / "spark.log",
    )
    try:
        yield from resurgence_results(spark, plan, folder, profile=profile)
    finally:
        spark.stop()
        jvm.close()


def child(engine: str, plan: Plan, *, profile: bool) -> list[Result]:
    """Measure one engine in a process of its own."""
    command = [sys.executable, __file__, "--engine", engine, "--epochs", str(plan.epochs)]
    command += ["--profile"] if profile else []
    found = []
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        subprocess.Popen(
            [*command, "--keys", str(plan.keys), "--folder", folder],
            stdout=subprocess.PIPE,
            stderr=(Path(folder) / "errors").open("w"),
            text=True,
            start_new_session=True,
        ) as process,
        MemoryPeak(process.pid) as peak,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                used = peak.take()
                memory = {"memory": used.memory, "memory_of_files": used.of_files}
                found.append(Result(**json.loads(line) | memory))
        if process.wait() != 0:
            raise SystemExit((Path(folder) / "errors").read_text()[-3000:])
    return found


def warm(seconds: list[float]) -> list[float]:
    """Return the epochs after the first quarter, in which the JVM warms up."""
    return seconds[len(seconds) // 4 :]


def show(engine: str, result: Result) -> None:
    used = warm(result.seconds)
    print(
        f"  {engine:21} {result.load:22} median {statistics.median(used):6.2f} s"
        f"  worst {max(used):6.2f} s"
        f"  first {result.seconds[0]:6.2f} s"
        + (
            f"  written {result.written / 1e6:7.2f} MB/epoch  read {result.read / 1e6:7.2f} MB/epoch"
            f"  {result.requests:.0f} requests/epoch  state {result.state / 1e6:6.0f} MB"
            f"  restore {result.restore:5.2f} s"
            if result.state
            else ""
        )
        + f"  memory {result.memory:6,.0f} MiB ({result.memory_of_files:,.0f} of files)",
        flush=True,
    )


def add_figures(report: Report, keys: int, engine: str, result: Result) -> None:
    case, used = f"{keys:,} keys, {result.load}", warm(result.seconds)
    report.add(f"seconds, {result.load}", f"{keys:,} keys", engine, used)
    report.add(
        f"seconds of the first epoch, {result.load}", f"{keys:,} keys", engine, result.seconds[:1]
    )
    report.add("memory, MiB", case, engine, [result.memory])
    report.add("memory of files, MiB", case, engine, [result.memory_of_files])
    if result.state:
        report.add("bytes written per epoch", case, engine, [result.written])
        report.add("bytes read per epoch", case, engine, [result.read])
        report.add("storage requests per epoch", case, engine, [result.requests])
        report.add("bytes of state", case, engine, [result.state])
        report.add("restore, seconds", case, engine, [result.restore])


def compare(report: Report, keys: int, ours: list[Result], theirs: list[Result]) -> None:
    """Print the ratios of both engines to each other, and whether they meet their goals."""
    for own, other in zip(ours, theirs, strict=True):
        case = f"{keys:,} keys, {own.load}"
        used, beside = warm(own.seconds), warm(other.seconds)
        report.compare(f"{case}: median", used, beside, TIME_GOAL)
        report.compare(f"{case}: worst", [max(used)], [max(beside)], TIME_GOAL)
    peaks = [max(each.memory for each in results) for results in (ours, theirs)]
    report.compare(f"{keys:,} keys: memory", peaks[:1], peaks[1:], MEMORY_GOAL)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", default="100000,1000000,10000000")
    parser.add_argument("--epochs", type=int, default=40, help="epochs of each kind")
    parser.add_argument("--no-streaming", action="store_true")
    parser.add_argument("--engine", choices=[RESURGENCE, STREAMING], help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    add_arguments(parser)
    add_profile_argument(parser)
    given = parser.parse_args()
    sizes = [int(each) for each in given.keys.split(",")]
    if given.engine is not None:
        plan = Plan(sizes[0], given.epochs)
        for result in run_engine(given.engine, plan, Path(given.folder), profile=given.profile):
            print(json.dumps(result.__dict__), flush=True)
        return
    if given.profile:
        for keys in sizes:
            for result in child(RESURGENCE, Plan(keys, given.epochs), profile=True):
                print(f"\n{keys:,} keys, {result.load}", *result.profile, sep="\n", flush=True)
        return
    report = Report("keyed_state", given)
    small: list[list[float]] = []
    for keys in sizes:
        plan = Plan(keys, given.epochs)
        excluded = given.epochs - len(warm([0.0] * given.epochs))
        print(
            f"{keys:,} keys, {given.epochs} epochs of each kind; medians and worst without the first"
            f" {excluded}",
            flush=True,
        )
        found = {}
        for engine in (RESURGENCE,) if given.no_streaming else (RESURGENCE, STREAMING):
            found[engine] = child(engine, plan, profile=False)
            for result in found[engine]:
                show(engine, result)
                add_figures(report, keys, engine, result)
        small.append(warm(found[RESURGENCE][0].seconds))
        if STREAMING in found:
            compare(report, keys, found[RESURGENCE], found[STREAMING])
    name = f"small uniform epochs, from {sizes[0]:,} to {sizes[-1]:,} keys: median"
    report.compare(name, small[-1], small[0], at_most(GROWTH))
    report.save()
    if not report.ratios[-1].is_met:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
