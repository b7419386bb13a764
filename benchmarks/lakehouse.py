"""Lakehouse tables: how long until a reader sees a row that was written to Kafka.

A process produces JSON records at a fixed rate. A pipeline copies them to a Delta table, each epoch as
one transaction. A row is visible when the version that adds its file is in the table's log; its
latency is counted from the time at which it was produced. The first half warms up the JVM.

    python benchmarks/lakehouse.py [--rate N] [--seconds N]

Besides quantiles, the median of each five seconds is printed: a saw-tooth would show there.
The broker and the producer share the cores with the engine.

Structured Streaming is not beside it: there is no build of Delta's connector for Spark 4.3.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from benchmarks.kafka import BROKER, PARTITIONS, RESURGENCE, Setup, producing, running
from tests.servers.kafka import running_broker

_BUCKET = 5.0


@dataclass(frozen=True)
class Visible:
    """The rows that one version of the table added."""

    at: float
    produced_at: npt.NDArray[np.float64]


def sql(setup: Setup) -> str:
    return f"""
        CREATE TABLE orders (
            id BIGINT NOT NULL, k BIGINT NOT NULL, amount DOUBLE, at TIMESTAMP NOT NULL, note TEXT
        ) WITH (connector = 'kafka', bootstrap_servers = '{setup.bootstrap}',
                topic = '{setup.topic}', type = 'source', format = 'json',
                'source.offset' = 'earliest', timestamp_unit = 'millis');
        CREATE TABLE copies (id BIGINT, k BIGINT, amount DOUBLE, at TIMESTAMP, note TEXT)
        WITH (connector = 'delta', type = 'sink', path = '{setup.output}');
        INSERT INTO copies SELECT id, k, amount, at, note FROM orders WHERE amount >= 0"""


def versions(table: Path) -> Iterator[Visible]:
    """Return what each version of a table added, and when its log had it."""
    for entry in sorted((table / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        paths = [each["add"]["path"] for each in actions if "add" in each]
        if paths:
            columns = [pq.read_table(table / each, columns=["at"])["at"] for each in paths]
            micros = np.concatenate([each.cast("int64").to_numpy() for each in columns])
            # The log is written under another name: the rename changes the time of the inode.
            yield Visible(entry.stat().st_ctime, micros / 1e6)


def report(found: Sequence[Visible], rate: int, seconds: float) -> None:
    began = min(each.produced_at.min() for each in found)
    warm = began + seconds / 2
    latencies = np.concatenate([each.at - each.produced_at for each in found])
    produced = np.concatenate([each.produced_at for each in found])
    ours = latencies[produced >= warm]
    rows = int((produced >= warm).sum())
    print(f"Kafka → Delta, latency at {rate:,} rows/s for {seconds:g} s: {len(found)} versions")
    shown = [f"p{share:g} {np.quantile(ours, share / 100):5.2f} s" for share in (50, 90, 99)]
    print(f"  {RESURGENCE:12}{'  '.join(shown)}  max {ours.max():5.2f} s  ({rows:,} rows)")
    buckets = ((produced - began) // _BUCKET).astype(int)
    medians = [np.median(latencies[buckets == each]) for each in range(buckets.max() + 1)]
    print(f"  medians of {_BUCKET:g} s: {' '.join(f'{each:.2f}' for each in medians)}")
    sizes = [len(each.produced_at) for each in found[len(found) // 2 :]]
    gaps = [b.at - a.at for a, b in itertools.pairwise(found[len(found) // 2 :])]
    print(f"  {np.mean(sizes):,.0f} rows per version, one every {np.mean(gaps):.2f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rate", type=int, default=50_000, help="rows per second")
    parser.add_argument("--seconds", type=float, default=190)
    given = parser.parse_args()
    with (
        running_broker(properties=BROKER) as broker,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
    ):
        topic = broker.create_topic(partitions=PARTITIONS)
        setup = Setup(RESURGENCE, "delta", broker.bootstrap, topic, f"{folder}/table", folder)
        with running(setup, sql(setup)), producing(broker, topic, given.rate, given.seconds):
            time.sleep(given.seconds)
            found = [*versions(Path(setup.output))]
        if not found:
            raise SystemExit((Path(folder) / "log").read_text()[-3000:])
        report(found, given.rate, given.seconds)


if __name__ == "__main__":
    main()
