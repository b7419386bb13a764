"""Kafka: Resurgence compared with Structured Streaming on the same broker, in one run.

Two pipelines read the same topic of JSON records: one counts by key in windows of ten seconds and
writes Parquet; the other filters and writes to a second topic. Ours is exactly once in both.
Structured Streaming is exactly once into files, and at least once into Kafka.

- Flat out: the topic is filled first. Both process the same epochs, each in its own process; only
  the second half is measured, when the JVM is warm.
- Latency: a process produces at a fixed rate. Measured from the timestamp of a record (for a
  window: its end) to the moment when a reader can see the row: the rename of a Parquet file, the
  entry in Structured Streaming's metadata log, or the arrival at a consumer with read_committed.
- `--soak MINUTES`: our window pipeline at a fixed rate; memory of all its processes and lag over
  time, as `kafka-soak.csv` and `kafka-soak.svg` in the current folder.

    python benchmarks/kafka.py [--rows N] [--rate N] [--seconds N] [--soak MINUTES]

The broker shares the cores with the engines. Only the ratios are comparable between machines.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.processes import processes_of, total, usage_of
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.servers.kafka import KafkaBroker, running_broker

RESURGENCE, STREAMING = "Resurgence", "Structured Streaming"
WINDOW, COPY = "window", "copy"
PARTITIONS = 4
PARALLELISM = 2
MEMORY = "3g"
KEYS = 570_000
"""As in window_aggregate.py: many groups per epoch."""
BROKER = {"log.retention.hours": "-1", "num.io.threads": "4"}
_SILENCE = 30.0


@dataclass(frozen=True)
class Setup:
    """Everything that a child process must know."""

    engine: str
    pipeline: str
    bootstrap: str
    topic: str
    output: str
    """A topic, or a folder."""
    folder: str
    rows: int = 0
    """The rows of an epoch; 0 for as many as there are."""
    epochs: int = 0

    def encode(self) -> str:
        return json.dumps(self.__dict__)


# -------------------------------------------------------------------- input


def fill(broker: KafkaBroker, topic: str, rows: int) -> None:
    """Produce rows whose event time advances by one window per hundred thousand."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "linger.ms": 50,
            "batch.num.messages": 50_000,
            "queue.buffering.max.messages": 500_000,
            "compression.type": "lz4",
        }
    )
    for number in range(rows):
        while True:
            try:
                producer.produce(
                    topic,
                    record(number, 1_704_067_200_000 + number // 10),
                    partition=number % PARTITIONS,
                )
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def record(number: int, millis: int) -> bytes:
    return (
        f'{{"id": {number}, "k": {number * 2_654_435_761 % 4_294_967_296 % KEYS}, "amount": {number % 977}.5,'
        f' "at": {millis}, "note": "order {number} of the benchmark"}}'
    ).encode()


def produce_at_rate(bootstrap: str, topic: str, rate: int, seconds: float) -> None:
    """Produce at a fixed rate, in steps of ten milliseconds, with the time of production."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    began, number = time.time(), 0
    while (elapsed := time.time() - began) < seconds:
        while number < elapsed * rate:
            millis = int(time.time() * 1000)
            producer.produce(
                topic, record(number, millis), partition=number % PARTITIONS, timestamp=millis
            )
            number += 1
        producer.poll(0)
        time.sleep(0.01)
    producer.flush()


# -------------------------------------------------------------------- the pipelines


def sql(setup: Setup, *, bounded: bool) -> str:
    stop = "'source.stop_at' = 'latest'," if bounded else ""
    source = f"""
        CREATE TABLE orders (
            id BIGINT NOT NULL, k BIGINT NOT NULL, amount DOUBLE, at TIMESTAMP NOT NULL, note TEXT,
            WATERMARK FOR at AS at - INTERVAL '1 second'
        ) WITH (connector = 'kafka', bootstrap_servers = '{setup.bootstrap}',
                topic = '{setup.topic}', type = 'source', format = 'json',
                'source.offset' = 'earliest', {stop} timestamp_unit = 'millis');"""
    if setup.pipeline == WINDOW:
        return f"""{source}
            CREATE TABLE totals (start TIMESTAMP, k BIGINT, n BIGINT, total DOUBLE)
            WITH (connector = 'filesystem', path = '{setup.output}', format = 'parquet');
            INSERT INTO totals SELECT window.start, k, n, total FROM (
                SELECT tumble(INTERVAL '10 seconds') AS window, k, count(*) AS n,
                       sum(amount) AS total
                FROM orders GROUP BY window, k)"""
    return f"""{source}
        CREATE TABLE copies (id BIGINT, k BIGINT, amount DOUBLE, at TIMESTAMP, note TEXT)
        WITH (connector = 'kafka', bootstrap_servers = '{setup.bootstrap}', type = 'sink',
              topic = '{setup.output}', format = 'json', 'json.timestamp_format' = 'unix_millis');
        INSERT INTO copies SELECT id, k, amount, at, note FROM orders WHERE amount >= 0"""


def run_resurgence(setup: Setup) -> list[float]:
    """Run all epochs in this process. Return the seconds of each."""
    from resurgence.config import settings_from
    from resurgence.connectors.registry import CONNECTORS
    from resurgence.engine.epochs.in_process import open_engine
    from resurgence.engine.spark.session import start_session
    from resurgence.ids import JobName
    from resurgence.sql import compile_pipeline
    from resurgence.storage.object_store import ObjectStore

    spark, jvm = start_session(
        app_name="kafka",
        master="local[2]",
        memory=MEMORY,
        shuffle_partitions=PARALLELISM,
        conf=jars(),
        log_file=Path(setup.folder) / "spark.log",
    )
    try:
        engine = open_engine(
            spark,
            compile_pipeline(sql(setup, bounded=True), CONNECTORS),
            ObjectStore(f"{setup.folder}/state"),
            JobName("bench"),
            settings_from(
                {
                    "pipeline.epoch_rows": str(setup.rows),
                    "pipeline.parallelism": str(PARALLELISM),
                    "pipeline.epoch_interval": "0s",
                }
            ),
        )
        seconds = []
        while not engine.finished:
            began = time.perf_counter()
            engine.run_epoch()
            seconds.append(time.perf_counter() - began)
        return seconds
    finally:
        spark.stop()
        jvm.close()


def streaming_query(setup: Setup) -> Any:
    """Start the equivalent Structured Streaming query on an unmodified Spark."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    spark = (
        SparkSession.builder.master("local[2]")
        .config(map=jars())
        .config("spark.driver.memory", MEMORY)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", PARALLELISM)
        .config("spark.log.level", "ERROR")
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .getOrCreate()
    )
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", setup.bootstrap)
        .option("subscribe", setup.topic)
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
    )
    if setup.rows:
        reader = reader.option("maxOffsetsPerTrigger", setup.rows)
    schema = "id BIGINT, k BIGINT, amount DOUBLE, at BIGINT, note STRING"
    orders = (
        reader.load()
        .select(F.from_json(F.col("value").cast("string"), schema).alias("row"))
        .selectExpr("row.id", "row.k", "row.amount", "timestamp_millis(row.at) AS at", "row.note")
    )
    if setup.pipeline == WINDOW:
        totals = (
            orders.withWatermark("at", "1 second")
            .groupBy(F.window("at", "10 seconds"), "k")
            .agg(F.count("*").alias("n"), F.sum("amount").alias("total"))
            .selectExpr("window.start", "k", "n", "total")
        )
        writer = totals.writeStream.format("parquet").option("path", setup.output)
    else:
        copies = orders.where("amount >= 0").selectExpr(
            "to_json(struct(id, k, amount, unix_millis(at) AS at, note)) AS value"
        )
        writer = (
            copies.writeStream.format("kafka")
            .option("kafka.bootstrap.servers", setup.bootstrap)
            .option("topic", setup.output)
        )
    return (
        writer.option("checkpointLocation", f"{setup.folder}/checkpoint")
        .outputMode("append")
        .trigger(processingTime="0 seconds")
        .start()
    )


def run_streaming(setup: Setup) -> list[float]:
    """Run as many micro-batches as there are epochs. Return the seconds of each."""
    query = streaming_query(setup)
    seconds: dict[int, float] = {}
    try:
        while len(seconds) < setup.epochs:
            failure = query.exception()
            if failure is not None:
                raise SystemExit(str(failure))
            for each in query.recentProgress:
                if each["numInputRows"] > 0:
                    seconds[each["batchId"]] = each["durationMs"]["triggerExecution"] / 1000
            time.sleep(0.05)
    finally:
        query.stop()
    return [seconds[batch] for batch in sorted(seconds)]


def jars() -> dict[str, str]:
    """Return the setting with the jars of Spark's Kafka connector, installed if necessary."""
    from resurgence.engine.spark.connector_jars import provide, with_jars

    return with_jars({}, provide(["kafka"], "", print_to_stderr))


def print_to_stderr(line: str) -> None:
    print(line, file=sys.stderr)


# -------------------------------------------------------------------- flat out


def flat_out(broker: KafkaBroker, rows: int, epochs: int, repetitions: int) -> None:
    topic = broker.create_topic(partitions=PARTITIONS)
    fill(broker, topic, rows * epochs)
    for pipeline in (WINDOW, COPY):
        rates: dict[str, list[float]] = {RESURGENCE: [], STREAMING: []}
        for _ in range(repetitions):
            for engine, found in rates.items():
                with output_for(broker, pipeline) as (output, folder):
                    setup = Setup(
                        engine, pipeline, broker.bootstrap, topic, output, folder, rows, epochs
                    )
                    seconds = json.loads(child(["--child", setup.encode()]).splitlines()[-1])
                # The last epoch flushes every window, and the first ones warm up the JVM.
                warm = seconds[len(seconds) // 2 : epochs - 1]
                found.append(rows / statistics.mean(warm))
        print(f"{title(pipeline)}, flat out: {rows:,} rows per epoch, second half of {epochs}")
        for engine, found in rates.items():
            shown = ", ".join(f"{each:,.0f}" for each in found)
            print(f"  {engine:22}{statistics.median(found):12,.0f} rows/s  ({shown})")
        ratio = statistics.median(rates[RESURGENCE]) / statistics.median(rates[STREAMING])
        print(f"  {ratio:.2f} times its rows/s", flush=True)


@contextmanager
def output_for(broker: KafkaBroker, pipeline: str) -> Iterator[tuple[str, str]]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if pipeline == WINDOW:
            yield f"{folder}/out", folder
        else:
            yield broker.create_topic(partitions=PARTITIONS), folder


def title(pipeline: str) -> str:
    return "Kafka → 10 s window → Parquet" if pipeline == WINDOW else "Kafka → Kafka"


def child(arguments: Sequence[str]) -> str:
    done = subprocess.run(
        [sys.executable, __file__, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(done.stderr[-3000:])
    return done.stdout


# -------------------------------------------------------------------- latency


def latency(broker: KafkaBroker, rate: int, seconds: float) -> None:
    warm_up = seconds / 2
    for pipeline in (WINDOW, COPY):
        found: dict[str, tuple[float, float]] = {}
        for engine in (RESURGENCE, STREAMING):
            topic = broker.create_topic(partitions=PARTITIONS)
            with output_for(broker, pipeline) as (output, folder):
                setup = Setup(engine, pipeline, broker.bootstrap, topic, output, folder)
                warm_at = time.time() + warm_up
                with running(setup), producing(broker, topic, rate, seconds):
                    if pipeline == WINDOW:
                        time.sleep(seconds)
                        seen = window_latencies(Path(output), engine)
                    else:
                        seen = copy_latencies(broker.bootstrap, output, seconds)
            warm = sorted(delay for at, delay in seen if at >= warm_at)
            found[engine] = quantile(warm, 0.5), quantile(warm, 0.99)
        print(f"{title(pipeline)}, latency at {rate:,} rows/s, second half of {seconds:g} s")
        for engine, (p50, p99) in found.items():
            print(f"  {engine:22}p50 {p50:6.2f} s  p99 {p99:6.2f} s")
        ours, theirs = found[RESURGENCE], found[STREAMING]
        print(
            f"  {ours[0] / theirs[0]:.2f} of its p50, {ours[1] / theirs[1]:.2f} of its p99",
            flush=True,
        )


def quantile(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


@contextmanager
def running(setup: Setup, text: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a pipeline as its users would: ours by the command line, theirs as a script. `text` is
    its SQL, if it is none of those here.
    """
    log = Path(setup.folder) / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command(setup, text), stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        # The whole group: Spark's JVM is a child of the process.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def command(setup: Setup, text: str | None) -> list[str]:
    if setup.engine == STREAMING:
        return [sys.executable, __file__, "--child", setup.encode()]
    file = Path(setup.folder) / "pipeline.sql"
    file.write_text(text or sql(setup, bounded=False))
    run = [sys.executable, "-m", "resurgence", "run", str(file), "--name", "bench"]
    run += ["--state-dir", f"{setup.folder}/state", "--parallelism", str(PARALLELISM)]
    return [*run, "--set", "pipeline.epoch_interval=0s"]


@contextmanager
def producing(
    broker: KafkaBroker, topic: str, rate: int, seconds: float
) -> Iterator[subprocess.Popen[bytes]]:
    arguments = ["--produce", broker.bootstrap, topic, str(rate), str(seconds)]
    process = subprocess.Popen([sys.executable, __file__, *arguments])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def window_latencies(folder: Path, engine: str) -> list[tuple[float, float]]:
    """Return, window by window, its end, and the seconds from then, with the watermark's delay, to
    the file that holds it.
    """
    import pyarrow.parquet as pq

    visible_at: dict[str, float] = {}
    if engine == RESURGENCE:
        # A rename changes the time of the inode, not that of the content.
        visible_at = {str(each): each.stat().st_ctime for each in folder.glob("*.parquet")}
    else:
        for entry in sorted((folder / "_spark_metadata").glob("[0-9]*")):
            for line in entry.read_text().splitlines()[1:]:
                path = json.loads(line)["path"].removeprefix("file://")
                visible_at.setdefault(path, entry.stat().st_ctime)
    first: dict[float, float] = {}
    for path, at in visible_at.items():
        for start in set(pq.read_table(path, columns=["start"])["start"].to_pylist()):
            end = start.timestamp() + 10
            first[end] = max(first.get(end, 0), at)
    return [(end, at - end - 1) for end, at in sorted(first.items())]


def copy_latencies(bootstrap: str, topic: str, seconds: float) -> list[tuple[float, float]]:
    """Return the timestamp in each record, and the seconds from then to its arrival."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
    found, give_up_at = [], time.time() + seconds
    while time.time() < give_up_at:
        for message in consumer.consume(1000, 0.1):
            if message.error() is None:
                at = json.loads(message.value())["at"] / 1000
                found.append((at, time.time() - at))
    consumer.close()
    return found


# -------------------------------------------------------------------- memory and lag over time


def soak(broker: KafkaBroker, rate: int, minutes: float) -> None:
    """Sample memory and lag of our window pipeline once a second; write a table and a plot."""
    topic = broker.create_topic(partitions=PARTITIONS)
    samples: list[tuple[float, float, int]] = []
    with output_for(broker, WINDOW) as (output, folder):
        setup = Setup(RESURGENCE, WINDOW, broker.bootstrap, topic, output, folder)
        seconds = minutes * 60
        with running(setup) as process, producing(broker, topic, rate, seconds):
            began = time.time()
            while (elapsed := time.time() - began) < seconds:
                memory = total(map(usage_of, processes_of(process.pid))).memory
                samples.append((elapsed, memory, lag(broker, topic)))
                time.sleep(1)
    with Path("kafka-soak.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("seconds", "memory_mib", "lag_rows"), *samples])
    Path("kafka-soak.svg").write_text(plot(samples))
    half = samples[len(samples) // 2 :]
    print(f"{title(WINDOW)} for {minutes:g} minutes at {rate:,} rows/s, second half:")
    print(f"  memory {min(m for _, m, _ in half):,.0f} to {max(m for _, m, _ in half):,.0f} MiB")
    print(f"  lag {min(n for _, _, n in half):,} to {max(n for _, _, n in half):,} rows")


def lag(broker: KafkaBroker, topic: str) -> int:
    """Return how many rows the consumer group of the job has not committed."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "resurgence-bench-orders"}
    )
    try:
        places = [TopicPartition(topic, each) for each in range(PARTITIONS)]
        total = 0
        for each in consumer.committed(places, timeout=_SILENCE):
            _, high = consumer.get_watermark_offsets(each, timeout=_SILENCE)
            total += high - max(0, each.offset)
        return total
    finally:
        consumer.close()


def plot(samples: Sequence[tuple[float, float, int]]) -> str:
    """Return an SVG with two curves, each scaled to its maximum."""
    width, height, pad = 900, 300, 40
    longest = max(at for at, _, _ in samples)
    curves = []
    for number, (name, colour) in enumerate((("memory, MiB", "#1f77b4"), ("lag, rows", "#d62728"))):
        values = [each[number + 1] for each in samples]
        most = max(max(values), 1)
        points = " ".join(
            f"{pad + at / longest * (width - 2 * pad):.1f},"
            f"{height - pad - value / most * (height - 2 * pad):.1f}"
            for (at, _, _), value in zip(samples, values, strict=True)
        )
        curves.append(f'<polyline fill="none" stroke="{colour}" points="{points}"/>')
        curves.append(
            f'<text x="{pad + number * 300}" y="20" fill="{colour}">{name}, max {most:,.0f}</text>'
        )
    axis = f'<text x="{width - 2 * pad}" y="{height - 10}">{longest / 60:.0f} min</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' font-family="sans-serif" font-size="13">'
        f'<rect width="100%" height="100%" fill="white"/>{"".join(curves)}{axis}</svg>\n'
    )


# -------------------------------------------------------------------- main


def run_child(setup: Setup) -> None:
    if not setup.rows:
        streaming_query(setup).awaitTermination()
        return
    runs = {RESURGENCE: run_resurgence, STREAMING: run_streaming}
    print(json.dumps(runs[setup.engine](setup)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="rows of an epoch, flat out")
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--rate", type=int, default=5_000, help="rows per second, for latency")
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--soak", type=float, metavar="MINUTES")
    parser.add_argument("--only", choices=["flat", "latency"])
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--produce", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        run_child(Setup(**json.loads(arguments.child)))
        return
    if arguments.produce:
        bootstrap, topic, rate, seconds = arguments.produce
        produce_at_rate(bootstrap, topic, int(rate), float(seconds))
        return
    with running_broker(properties=BROKER) as broker:
        if arguments.soak:
            soak(broker, arguments.rate, arguments.soak)
            return
        if arguments.only != "latency":
            flat_out(broker, arguments.rows, arguments.epochs, arguments.repetitions)
        if arguments.only != "flat":
            latency(broker, arguments.rate, arguments.seconds)


if __name__ == "__main__":
    main()
