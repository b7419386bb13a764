"""Tumbling windows return Spark's batch answer, however the input is split into epochs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.engine.harness import (
    Job,
    Leg,
    batch,
    random_legs,
    sink_table,
    sorted_rows,
    source_table,
    timestamp,
    types,
    write_lines,
)

ROWS = 160
COLUMNS = (
    "at TIMESTAMP, word TEXT, day DATE, price DECIMAL(10,2), flag BOOLEAN, small INT, big BIGINT,"
    " amount DECIMAL(12,3), wide DECIMAL(28,10), widest DECIMAL(38,18), real DOUBLE,"
    " bin INT, k0 TEXT, a0 INT, window TEXT"
)


def events(seed: int) -> list[dict[str, object]]:
    """Rows that come up to four seconds out of order, with nulls in every column but `at`."""
    rng = random.Random(seed)
    start = datetime(2024, 1, 1)

    def maybe(value: object) -> object:
        return None if rng.random() < 0.15 else value

    return [
        {
            "at": timestamp(start + timedelta(milliseconds=300 * number - rng.randrange(4000))),
            "word": maybe(rng.choice(["ant", "bee", "", "čmelák", "Ant"])),
            "day": maybe(f"2024-02-{rng.randrange(27, 30)}"),
            "price": maybe(rng.choice([0.5, 19.99, -3])),
            "flag": maybe(rng.choice([True, False])),
            "small": maybe(rng.randrange(-(2**31), 2**31)),
            "big": maybe(rng.randrange(-(2**50), 2**50)),
            "amount": maybe(rng.randrange(-(10**8), 10**8) / 1000),
            "wide": maybe(rng.randrange(-(10**6), 10**6) * 1000 + 7),
            "widest": maybe(rng.randrange(-(10**12), 10**12) / 1000),
            "real": maybe(rng.choice([0.0, -0.0, 0.25, -7.75, 1e6])),
            "bin": maybe(rng.randrange(3)),
            "k0": maybe(rng.choice("xy")),
            "a0": maybe(rng.randrange(2)),
            "window": maybe(rng.choice(["open", "shut"])),
        }
        for number in range(ROWS)
    ]


def compare(
    spark: SparkSession, folder: Path, queries: Sequence[str], seed: int, legs: Sequence[Leg]
) -> None:
    """Run all queries as one pipeline, and each as a batch query; they must agree in rows and
    types. `{window}` stands for the window.
    """
    path = write_lines(folder / "events.json", events(seed))
    sql = source_table(path, COLUMNS)
    for number, query in enumerate(queries):
        sql += sink_table(folder / f"out{number}", name=f"out{number}")
        sql += f"INSERT INTO out{number} {query};\n".replace(
            "{window}", "tumble(INTERVAL '10 seconds')"
        )
    job = Job(spark, folder, sql)
    job.run(legs)
    assert [each.epoch for each in job.reports] == list(range(1, len(legs) + 1))
    assert not any(count for each in job.reports for count in each.counts.late_rows.values())
    for number, query in enumerate(queries):
        expected = batch(
            spark, path, COLUMNS, query.replace("{window}", "window(at, '10 seconds')")
        )
        found = spark.read.parquet(str(folder / f"out{number}"))
        assert types(found) == types(expected), query
        assert sorted_rows(found) == sorted_rows(expected), query


EVERY_AGGREGATE = """
SELECT {window} AS w, word, count(*) AS n, count(small) AS ns, count(word) AS nw,
  sum(small) AS s1, sum(big) AS s2, sum(amount) AS s3, sum(real) AS s4, sum(wide) AS s5,
  min(small) AS m1, max(small) AS m2, min(word) AS m3, max(window) AS m4, min(at) AS m5,
  max(at) AS m6, max(day) AS m7, min(price) AS m8, min(flag) AS m9, max(real) AS m10,
  avg(small) AS v1, avg(amount) AS v2, avg(real) AS v3, avg(wide) AS v4, avg(price) AS v5,
  avg(widest) AS v6, avg(CAST(price AS DECIMAL(18,2))) AS v7
FROM events GROUP BY {window}, word
"""
NO_KEYS = """
SELECT {window} AS w, count(*) FILTER (WHERE flag) AS n,
  sum(small) FILTER (WHERE small > 0) AS positive,
  avg(amount) FILTER (WHERE word = 'bee') AS mean, max(word) FILTER (WHERE FALSE) AS none,
  (sum(big) + 1) * 2 - count(*) AS mixed,
  CASE WHEN count(word) > 3 THEN 'many' ELSE 'few' END AS many,
  round(avg(price), 1) AS rounded, sum(small + a0) AS inside, max(upper(word)) AS loud
FROM events GROUP BY {window}
"""
HAVING = """
SELECT {window} AS w, day, flag, sum(amount) AS total FROM events
GROUP BY {window}, day, flag HAVING count(*) > 1 AND sum(amount) > 0
"""
MANY_KEYS = """
SELECT {window} AS w, price, day, flag, real, count(*) AS n FROM events
GROUP BY {window}, price, day, flag, real
"""
CLASHING_NAMES = """
SELECT {window} AS w, bin, k0, a0, window, sum(bin) AS a1, max(k0) AS k1,
  count(a0) AS a0_count, min(window) AS late
FROM events GROUP BY {window}, bin, k0, a0, window
"""
COMPUTED_KEYS = """
SELECT {window} AS w, upper(word) AS loud, small % 3 AS third, 'all' AS label, count(*) AS n
FROM events GROUP BY {window}, upper(word), small % 3, label
"""


@pytest.mark.parametrize(
    ("seed", "parallelism"),
    [
        pytest.param(1, 1, marks=pytest.mark.long),
        pytest.param(2, 2, marks=pytest.mark.long),
        (3, 3),
    ],
)
def test_every_aggregate_returns_the_batch_answer(
    spark: SparkSession, tmp_path: Path, seed: int, parallelism: int
) -> None:
    legs = random_legs(seed, ROWS, 3, [parallelism])
    compare(spark, tmp_path, [EVERY_AGGREGATE, NO_KEYS], seed, legs)


@pytest.mark.parametrize(
    ("seed", "parallelism"), [(4, [1, 3]), pytest.param(5, [2], marks=pytest.mark.long)]
)
def test_every_kind_of_key_returns_the_batch_answer(
    spark: SparkSession, tmp_path: Path, seed: int, parallelism: list[int]
) -> None:
    legs = random_legs(seed, ROWS, 3, parallelism)
    queries = [HAVING, MANY_KEYS, CLASHING_NAMES, COMPUTED_KEYS]
    compare(spark, tmp_path, queries, seed, legs)
