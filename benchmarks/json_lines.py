"""JSON lines: Resurgence's source compared with Spark's own reader in one session.

Resurgence requires each line to be exactly one JSON value, and returns text unchanged. This
benchmark measures the cost. Both readers read the same file with the same columns into the `noop`
sink. They alternate, and the first turn is discarded.

    python benchmarks/json_lines.py [--rows N] [--turns N]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from resurgence.connectors.registry import CONNECTORS, make_source
from resurgence.engine.spark.session import start_session
from resurgence.sql import compile_pipeline

COLUMNS = "at TIMESTAMP, id BIGINT, name TEXT, price DOUBLE, flag BOOLEAN"
CORES = 2


def write_input(spark: SparkSession, folder: Path, rows: int) -> Path:
    """Write one file of JSON lines."""
    generated = spark.range(0, rows, 1, 1).selectExpr(
        "date_format(timestamp_micros(1704067200000000 + id * 1000), \"yyyy-MM-dd'T'HH:mm:ss.SSS\") AS at",
        "id",
        "concat('name ', pmod(hash(id), 1000)) AS name",
        "pmod(hash(id, 1), 100000) / 100D AS price",
        "id % 3 = 0 AS flag",
    )
    generated.write.json(str(folder / "input"))
    (part,) = (folder / "input").glob("part-*.json")
    return part


def resurgence_rows(spark: SparkSession, path: Path) -> DataFrame:
    """Return the rows as the first operator of a job receives them."""
    sql = (
        f"CREATE TABLE t ({COLUMNS}) WITH (connector = 'single_file', path = '{path}',"
        " type = 'source'); SELECT * FROM t"
    )
    (operator,) = compile_pipeline(sql, CONNECTORS).sources()
    source, now = make_source(operator), datetime.now(UTC)
    planned = source.plan(source.first_offset(now, CORES), 10**9, now)
    assert planned is not None
    return source.read(spark, planned, CORES)


def spark_rows(spark: SparkSession, path: Path) -> DataFrame:
    """Return the same rows from Spark's JSON reader."""
    return spark.read.schema(COLUMNS.replace("TEXT", "STRING")).json(str(path))


def seconds(rows: Callable[[], DataFrame]) -> float:
    """Measure the time to read all rows."""
    began = time.perf_counter()
    rows().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--turns", type=int, default=6)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spark, jvm = start_session(
            app_name="json lines",
            master=f"local[{CORES}]",
            memory="4g",
            shuffle_partitions=CORES,
            conf={},
            log_file=Path(folder) / "spark.log",
        )
        try:
            path = write_input(spark, Path(folder), arguments.rows)
            turns = [
                (
                    seconds(lambda: resurgence_rows(spark, path)),
                    seconds(lambda: spark_rows(spark, path)),
                )
                for _ in range(arguments.turns)
            ][1:]
        finally:
            spark.stop()
            jvm.close()
    ours, theirs = (statistics.median(each) for each in zip(*turns, strict=True))
    print(f"{arguments.rows:,} JSON lines of 5 columns, median of {len(turns)} turns")
    print(f"  Resurgence    {ours:6.2f} s {arguments.rows / ours:12,.0f} rows/s")
    print(f"  Spark's JSON  {theirs:6.2f} s {arguments.rows / theirs:12,.0f} rows/s")
    print(f"  time relative to Spark: {ours / theirs:.2f}")


if __name__ == "__main__":
    main()
