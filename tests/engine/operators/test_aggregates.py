"""Aggregates return Spark's batch answer, however the input is split into epochs. Every aggregate
function of Spark is either supported or refused.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from resurgence.connectors.registry import CONNECTORS
from resurgence.errors import SqlError
from resurgence.sql import compile_pipeline
from resurgence.sql.functions import spark_functions
from resurgence.sql.functions.aggregates import AGGREGATES
from tests.engine.harness import (
    Job,
    Leg,
    batch,
    random_legs,
    sink_table,
    source_table,
    timestamp,
    types,
    write_lines,
)

ROWS = 120
COLUMNS = (
    "at TIMESTAMP, word TEXT, flag BOOLEAN, small INT, big BIGINT, amount DECIMAL(12,3),"
    " real DOUBLE, other DOUBLE, same DOUBLE, tags ARRAY<STRING>, pairs MAP<STRING, INT>,"
    " vector ARRAY<FLOAT>"
)
WINDOW = "tumble(INTERVAL '10 seconds')"
BATCH_WINDOW = "window(at, '10 seconds')"


def events(seed: int) -> list[dict[str, object]]:
    """Rows up to four seconds out of order, no two at the same instant, with nulls."""
    rng = random.Random(seed)
    start = datetime(2024, 1, 1)

    def maybe(value: object) -> object:
        return None if rng.random() < 0.15 else value

    return [
        {
            "at": timestamp(
                start
                + timedelta(
                    milliseconds=300 * number - 250 * rng.randrange(14), microseconds=number
                )
            ),
            "word": maybe(rng.choice(["ant", "bee", "", "čmelák"])),
            "flag": maybe(rng.choice([True, False])),
            "small": maybe(rng.randrange(-50, 50)),
            "big": maybe(rng.randrange(-(2**50), 2**50)),
            "amount": maybe(rng.randrange(-(10**8), 10**8) / 1000),
            "real": maybe(rng.choice([0.1, 0.25, -7.75, 1e6, 3.3])),
            "other": maybe(rng.random()),
            "same": 0.1,
            "tags": maybe([rng.choice("abc") for _ in range(rng.randrange(3))]),
            "pairs": maybe({"x": rng.randrange(3)}),
            "vector": [rng.randrange(8), rng.randrange(8)],
        }
        for number in range(ROWS)
    ]


def close_enough(found: object, expected: object) -> bool:
    """Equal, but for the last digits of floating-point numbers."""
    if isinstance(found, float) and isinstance(expected, float):
        return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-9) or (
            math.isnan(found) and math.isnan(expected)
        )
    if isinstance(found, list | tuple) and isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(close_enough, found, expected))
    return found == expected and type(found) is type(expected)


def compare(
    spark: SparkSession,
    folder: Path,
    calls: Sequence[str | tuple[str, str]],
    keys: Sequence[str],
    seed: int,
    legs: Sequence[Leg],
) -> None:
    """Run the calls in one query, and as a batch query; a pair has Spark's own writing second."""
    path = write_lines(folder / "events.json", events(seed))
    pairs = [each if isinstance(each, tuple) else (each, each) for each in calls]
    names = [f"c{number}" for number in range(len(pairs))]
    by = "".join(f", {each}" for each in keys)

    def query(window: str, texts: Sequence[str]) -> str:
        items = ", ".join(f"{text} AS {name}" for text, name in zip(texts, names, strict=True))
        return f"SELECT {window} AS w{by}, {items} FROM events GROUP BY {window}{by}"

    sql = source_table(path, COLUMNS) + sink_table(folder / "out", name="out")
    sql += f"INSERT INTO out {query(WINDOW, [ours for ours, _ in pairs])};\n"
    Job(spark, folder, sql).run(legs)
    expected = batch(spark, path, COLUMNS, query(BATCH_WINDOW, [theirs for _, theirs in pairs]))
    found = spark.read.parquet(str(folder / "out"))
    assert types(found) == types(expected)

    def by_key(row: Row) -> str:
        return repr([row["w"], *(row[each] for each in keys)])

    answers, truths = sorted(found.collect(), key=by_key), sorted(expected.collect(), key=by_key)
    assert [by_key(each) for each in answers] == [by_key(each) for each in truths]
    for answer, truth in zip(answers, truths, strict=True):
        for name, (ours, _) in zip(names, pairs, strict=True):
            assert close_enough(answer[name], truth[name]), (ours, answer[name], truth[name])


MERGED: list[str | tuple[str, str]] = [
    "mean(small)",
    "count(small, word)",
    "count_if(flag)",
    "bool_and(flag)",
    "bool_or(flag)",
    "every(flag)",
    "any(flag)",
    "some(flag)",
    "bit_and(big)",
    "bit_or(big)",
    "bit_xor(small)",
    "var_pop(real)",
    "var_samp(small)",
    ("var(amount)", "var_samp(amount)"),
    "variance(same)",
    "stddev(real)",
    "std(small)",
    "stddev_pop(same)",
    "stddev_samp(real) FILTER (WHERE flag)",
    "covar_pop(real, other)",
    "covar_samp(real, small)",
    "corr(real, other)",
    "corr(same, other)",
    "corr(other, small) FILTER (WHERE small > 40)",
    *(
        f"regr_{each}({y}, {x})"
        for each in ("count", "avgx", "avgy", "sxx", "syy", "sxy", "slope", "intercept", "r2")
        for y, x in (("real", "other"), ("same", "small"))
    ),
    "regr_slope(other, same)",
    "regr_r2(other, same)",
    "max_by(word, big)",
    "min_by(small, big)",
    "max_by(pairs, big)",
    "max(DISTINCT small)",
    ("first(word)", "min_by(struct(word), at).word"),
    ("last_value(small)", "max_by(struct(small), at).small"),
    ("first(small, true)", "min_by(small, at) FILTER (WHERE small IS NOT NULL)"),
    ("last(word) IGNORE NULLS", "max_by(word, at) FILTER (WHERE word IS NOT NULL)"),
    ("any_value(pairs)", "min_by(struct(pairs), at).pairs"),
]

_IN_ORDER = "transform(array_sort(collect_list(struct(at, {0})) FILTER (WHERE {0} IS NOT NULL)), x -> x.{0})"
KEPT: list[str | tuple[str, str]] = [
    "count(DISTINCT word)",
    "count(DISTINCT word, flag)",
    "count(DISTINCT real) FILTER (WHERE flag)",
    "sum(DISTINCT small)",
    "avg(DISTINCT amount)",
    "approx_count_distinct(big)",
    ("approx_distinct(word)", "approx_count_distinct(word)"),
    "approx_count_distinct(big, 0.01)",
    "median(small)",
    ("approx_median(real)", "percentile_approx(real, 0.5)"),
    ("approx_percentile_cont(real, 0.9)", "percentile_approx(real, 0.9)"),
    (
        "approx_percentile_cont(0.25) WITHIN GROUP (ORDER BY small)",
        "percentile_approx(small, 0.25)",
    ),
    "percentile(small, array(0.1, 0.9))",
    "percentile(small, 0.5, abs(small))",
    "percentile_approx(big, 0.5, 100)",
    "percentile_cont(0.4) WITHIN GROUP (ORDER BY small DESC)",
    "percentile_disc(0.4) WITHIN GROUP (ORDER BY real) FILTER (WHERE NOT flag)",
    ("mode(word)", "mode(word, true)"),
    "mode() WITHIN GROUP (ORDER BY small)",
    "max_by(word, big, 2)",
    "max_by(DISTINCT small, small, 3)",
    "kurtosis(real)",
    "skewness(other)",
    "try_sum(big)",
    "try_avg(small)",
    "sum(small)",
    "count(*)",
]

LISTS: list[str | tuple[str, str]] = [
    "listagg(word, ',') WITHIN GROUP (ORDER BY at DESC)",
    (
        "listagg(DISTINCT word, '-') WITHIN GROUP (ORDER BY word)",
        "array_join(sort_array(collect_set(word)), '-')",
    ),
    ("string_agg(word, ', ' ORDER BY at)", "string_agg(word, ', ') WITHIN GROUP (ORDER BY at)"),
    ("string_agg(word, '')", "string_agg(word, '') WITHIN GROUP (ORDER BY at)"),
    ("collect_list(word)", _IN_ORDER.format("word")),
    ("array_agg(tags)", _IN_ORDER.format("tags")),
    ("array_agg(small ORDER BY at DESC)", f"reverse({_IN_ORDER.format('small')})"),
    (
        "array_agg(small ORDER BY word DESC NULLS FIRST, real, at)",
        "transform(array_sort(collect_list(struct(word, real, at, small)) FILTER (WHERE small IS NOT NULL),"
        " (l, r) -> CASE WHEN l.word IS NULL AND r.word IS NOT NULL THEN -1"
        " WHEN r.word IS NULL AND l.word IS NOT NULL THEN 1"
        " WHEN l.word > r.word THEN -1 WHEN l.word < r.word THEN 1"
        " WHEN struct(l.real, l.at) < struct(r.real, r.at) THEN -1 ELSE 1 END), x -> x.small)",
    ),
    (
        "collect_list(small) RESPECT NULLS",
        "transform(array_sort(collect_list(struct(at, small))), x -> x.small)",
    ),
    ("array_agg(DISTINCT word ORDER BY word)", "sort_array(collect_set(word))"),
    ("collect_set(real)", "sort_array(collect_set(real))"),
    ("first_value(word ORDER BY at DESC)", "max_by(struct(word), at).word"),
    (
        "last(small ORDER BY at) FILTER (WHERE flag)",
        "(max_by(struct(small), at) FILTER (WHERE flag)).small",
    ),
]


@pytest.mark.parametrize(
    ("keys", "parallelism"),
    [pytest.param([], [1, 3], marks=pytest.mark.long), (["word", "flag"], [2])],
)
def test_merged_partial_aggregates_return_the_batch_answer(
    spark: SparkSession, tmp_path: Path, keys: list[str], parallelism: list[int]
) -> None:
    compare(spark, tmp_path, MERGED, keys, 1, random_legs(1, ROWS, 3, parallelism))


@pytest.mark.parametrize(
    ("calls", "keys", "parallelism"),
    [
        (KEPT, [], [1, 3]),
        pytest.param(KEPT, ["flag"], [2], marks=pytest.mark.long),
        (LISTS, ["flag"], [3, 1]),
    ],
)
def test_aggregates_over_buffered_values_return_the_batch_answer(
    spark: SparkSession,
    tmp_path: Path,
    calls: list[str | tuple[str, str]],
    keys: list[str],
    parallelism: list[int],
) -> None:
    compare(spark, tmp_path, calls, keys, 2, random_legs(2, ROWS, 3, parallelism))


SKETCHES: list[str | tuple[str, str]] = [
    "histogram_numeric(real, 10)",
    "hll_sketch_estimate(hll_sketch_agg(small))",
    "hex(count_min_sketch(small, 0.5D, 0.5D, 1))",
    "bitmap_count(bitmap_construct_agg(bitmap_bit_position(abs(small))))",
    "bitmap_count(bitmap_or_agg(CAST(word AS BINARY)))",
    "bitmap_count(bitmap_and_agg(CAST(word AS BINARY)))",
    "theta_sketch_estimate(theta_sketch_agg(word))",
    "tuple_sketch_estimate_double(tuple_sketch_agg_double(word, other))",
    "tuple_sketch_estimate_integer(tuple_sketch_agg_integer(word, small))",
    "vector_sum(vector)",
    "transform(vector_avg(vector), x -> round(x, 3))",
    "size(approx_top_k(small, 2))",
    "sort_array(collect_union(tags))",
    "schema_of_variant_agg(parse_json(to_json(tags)))",
]


def test_sketches_return_the_batch_answer(spark: SparkSession, tmp_path: Path) -> None:
    compare(spark, tmp_path, SKETCHES, ["flag"], 3, random_legs(3, ROWS, 2, [2]))


def plan(call: str) -> None:
    table = source_table(Path("events.json"), COLUMNS)
    window = "tumble(INTERVAL '1 hour')"
    compile_pipeline(f"{table} SELECT {call} AS x FROM events GROUP BY {window};", CONNECTORS)


@pytest.mark.parametrize("name", sorted(spark_functions.AGGREGATES))
def test_every_aggregate_of_spark_is_planned_or_refused_at_its_place(name: str) -> None:
    if AGGREGATES[name].refusal is None:
        plan(f"{name}(small)")
        return
    with pytest.raises(SqlError) as caught:
        plan(f"{name}(small)")
    assert caught.value.line == 2
    assert caught.value.hint


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("sum(small ORDER BY big)", "sum() does not support ORDER BY"),
        ("sum(small) WITHIN GROUP (ORDER BY big)", "sum() does not support WITHIN GROUP"),
        (
            "array_agg(small) WITHIN GROUP (ORDER BY big)",
            "array_agg() does not support WITHIN GROUP",
        ),
        (
            "array_agg(DISTINCT small ORDER BY big)",
            "ORDER BY can use only the arguments of the aggregate",
        ),
        ("percentile_cont(0.5 ORDER BY big)", "percentile_cont() does not support ORDER BY"),
        ("sum(small, big)", "sum() takes one argument, not 2"),
        ("approx_percentile_cont(small)", "takes a value and a fraction"),
        ("grouping(small)", "grouping() requires grouping sets"),
        ("array_agg(small LIMIT 3)", "LIMIT inside a function"),
    ],
)
def test_invalid_combinations_are_refused(call: str, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        plan(call)
    assert message in caught.value.message
    assert caught.value.line == 2
