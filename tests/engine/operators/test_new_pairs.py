"""Inner joins of append-only streams: what an epoch reads of both sides, and which pairs it emits."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.engine.operators.changelogs.updating_query import INPUT
from resurgence.engine.tables.key_table import NEW, Side
from resurgence.graph.specs.updating_query import InnerJoin, UpdatingQuerySpec
from resurgence.graph.values import EVENT_TIME, Expression
from resurgence.ids import Epoch, Generation
from tests.engine.harness import forget_cached_state
from tests.engine.updating import Row, UpdatingJob, exact, kept, query

LEFT, RIGHT = "l_id INT, name STRING", "r_id BIGINT, amount DOUBLE"
SHOWN = ("l_id", "name", "amount")
CONDITION = "`l_id` = `r_id` AND NOT (`name` = 'x' AND `amount` = 1)"


def pairs(*, ttl_micros: int | None = None) -> UpdatingQuerySpec:
    joined = query(
        f"SELECT {', '.join(SHOWN)} FROM {{input_0}} INNER JOIN {{input_1}} ON {CONDITION}",
        kept("l_id, name", "l_id"),
        kept("r_id, amount", "r_id"),
        ttl_micros=ttl_micros,
    )
    results = tuple(Expression(name=each, sql=f"`{each}`") for each in SHOWN)
    join = InnerJoin(condition=CONDITION, results=results)
    return joined.model_copy(update={"inner_join": join})


def left(rng: random.Random) -> Row:
    return (rng.choice([None, *range(5)]), rng.choice("xyz"))


def right(rng: random.Random) -> Row:
    return (rng.choice([None, *range(6)]), rng.choice([-0.0, 0.0, 1.0]))


def joined(lefts: list[Row], rights: list[Row]) -> Counter[str]:
    return Counter(
        exact((*one, other[1]))
        for one in lefts
        for other in rights
        if one[0] is not None and one[0] == other[0] and (one[1], other[1]) != ("x", 1.0)
    )


def test_each_pair_is_emitted_once_and_none_is_retracted(
    spark: SparkSession, tmp_path: Path
) -> None:
    rng = random.Random(3)
    job = UpdatingJob(spark, tmp_path, pairs(), (LEFT, RIGHT))
    held: tuple[list[Row], list[Row]] = ([], [])
    for number, sizes in enumerate([(9, 0), (6, 12), (0, 8), (7, 1), (5, 5)]):
        before = joined(*held)
        epoch = [
            [make(rng) for _ in range(size)]
            for make, size in zip((left, right), sizes, strict=True)
        ]
        for rows, added in zip(held, epoch, strict=True):
            rows.extend(added)
        job.run(*(each or None for each in epoch))
        assert all(change == 1 for _, change in job.changes)
        assert Counter(row for row, _ in job.changes) == joined(*held) - before
        if number == 2:
            job.restart(3)
            job.compact()
    assert job.view == joined(*held)


def test_a_row_matches_none_that_expired_before_it(spark: SparkSession, tmp_path: Path) -> None:
    job = UpdatingJob(spark, tmp_path, pairs(ttl_micros=100), (LEFT, RIGHT))
    job.run([(1, "a"), (2, "a")], None)
    job.time = 60
    job.run(None, [(1, 5.0)])
    assert job.changes == [("(1, 'a', 5.0)", 1)]
    job.time = 150  # The rows with 1 were touched at 60, that with 2 was not.
    job.run(None, [(1, 6.0), (2, 6.0)])
    assert job.changes == [("(1, 'a', 6.0)", 1)]
    job.run([(2, "b")], None)
    assert job.changes == [("(2, 'b', 6.0)", 1)]


def test_an_epoch_reads_of_a_side_what_the_new_rows_of_the_other_can_match(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A key with many rows on one side is read only for new rows on the other."""
    job = UpdatingJob(spark, tmp_path, pairs(), (LEFT, RIGHT))
    job.run([(1, "a"), (2, "a")], [(1, float(each)) for each in range(50)])
    delta = job.query.delta([None, job._frame(1, [(1, 100.0), (1, 101.0), (2, 1.0)])], 0)
    assert delta is not None
    written = job.query.table.write(delta, Epoch(2), Generation(1))

    def rows_read(number: int) -> Counter[bool]:
        side = Side(INPUT, number)
        found = job.query.table.read_matching(spark, job.live, written.files, side)
        return Counter(row[NEW] for rows in found for row in rows.collect())

    assert rows_read(0) == {False: 2}
    assert rows_read(1) == {True: 3}


def test_files_of_another_time_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    schemas = tuple(f"{each}, {EVENT_TIME} TIMESTAMP" for each in (LEFT, RIGHT))
    operator = pairs().model_copy(update={"keep_micros": 60_000_000})
    job = UpdatingJob(spark, tmp_path, operator, schemas, parallelism=1)

    def at(minutes: int) -> datetime:
        return start + timedelta(minutes=minutes)

    job.run([(1, "a", at(0))], None)
    job.run([(1, "b", at(10))], None)
    job.run(None, [(1, 1.0, at(11))])
    assert job.changes == [("(1, 'b', 1.0)", 1)]
    far, *near = sorted(job.live.files, key=lambda each: each.time_start)
    assert len(near) == 2
    (tmp_path / far.path).unlink()
    forget_cached_state(spark)
    job.run(None, [(1, 2.0, at(9))])
    assert job.changes == [("(1, 'b', 2.0)", 1)]
    with pytest.raises(Exception, match=r"parquet"):
        job.run(None, [(1, 3.0, at(1))])
