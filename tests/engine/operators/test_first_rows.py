"""Top-N and deduplication over append-only streams: they store the rows that can be in the result."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from resurgence.engine.operators.changelogs.updating import UpdatingOperator
from resurgence.engine.operators.changelogs.updating_query import UpdatingQuery
from resurgence.graph.specs.updating_query import UpdatingQuerySpec
from tests.engine.harness import Job, Leg, batch, sink_table, source_table, write_lines
from tests.sql.changelog import merge

COLUMNS = "id BIGINT, user BIGINT, price DOUBLE, name STRING, tags MAP<STRING, DOUBLE>"
ROWS, EPOCHS = 90, 3


def top(order: str, limit: int, shown: str) -> str:
    place = f"row_number() OVER (PARTITION BY user ORDER BY {order})"
    return f"SELECT {shown} FROM (SELECT *, {place} AS n FROM events) WHERE n <= {limit}"


QUERIES = {
    "newest": top("id DESC", 1, "user, price, tags"),
    "numbered": top("price DESC, name DESC NULLS FIRST, id", 3, "user, id, n"),
    "unnumbered": top("name NULLS LAST, price, id DESC", 3, "user, id, name"),
    "qualified": "SELECT user, id * 2 AS twice FROM events"
    " QUALIFY row_number() OVER (PARTITION BY user ORDER BY price, id) < 3 AND id > 5",
}
LIMITS = {"newest": 1, "numbered": 3, "unnumbered": 3, "qualified": 2}


def rows(count: int) -> list[dict[str, object]]:
    rng = random.Random(count)
    return [
        {
            "id": each,
            "user": rng.choice([None, *range(4)]),
            "price": rng.choice([None, -0.0, 0.0, 1.5, 2.5]),
            "name": rng.choice([None, "", *"abc"]),
            "tags": rng.choice([None, {"x": -0.0}, {"b": 1.0, "a": 2.0}]),
        }
        for each in range(count)
    ]


def job(spark: SparkSession, folder: Path, queries: dict[str, str]) -> Job:
    folder.mkdir(exist_ok=True)
    write_lines(folder / "in.json", rows(ROWS))
    sql = source_table(folder / "in.json", COLUMNS, delay=None)
    for name, query in queries.items():
        path, more = folder / f"{name}.json", ", format = 'debezium_json'"
        sql += sink_table(path, name=f"out_{name}", connector="single_file", more=more)
        sql += f"INSERT INTO out_{name} {query};"
    return Job(spark, folder, sql)


def lines(folder: Path, name: str) -> list[str]:
    return (folder / f"{name}.json").read_text().splitlines()


def test_a_key_stores_the_rows_that_can_be_in_the_result(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = job(spark, tmp_path, QUERIES)
    made.run([Leg(rows=ROWS // EPOCHS)])
    engine = made.open()
    held: list[int] = []
    for operator_id, live in engine._pipeline.live_files().items():
        assert len(live.files) > 1, operator_id
        lengths: list[int] = []
        for each in live.files:
            (items,) = pq.read_table(tmp_path / "state" / each.path, columns=["__first"]).columns
            lengths += [len(item) for item in items.to_pylist()]
        held.append(max(lengths))
    assert sorted(held) == sorted(LIMITS.values())
    batch(spark, tmp_path / "in.json", COLUMNS, "SELECT * FROM events")
    for name, query in QUERIES.items():
        wanted = [
            each[0] for each in spark.sql(f"SELECT to_json(struct(*)) FROM ({query})").collect()
        ]
        assert view(merge(lines(tmp_path, name))) == view(wanted), name


def view(found: list[str]) -> Counter[str]:
    """Rows without nulls, which Spark leaves out."""
    read = map(json.loads, found)
    return Counter(
        json.dumps(
            {name: value for name, value in each.items() if value is not None}, sort_keys=True
        )
        for each in read
    )


def test_equal_rows_are_chosen_by_all_their_values_at_any_parallelism(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The order says little: most rows are equal in it, and some differ only in the sign of zero."""
    query = {"ties": top("name DESC", 3, "user, price, tags, n")}
    emitted = []
    for parallelism, size in ((1, 30), (3, 30), (2, ROWS)):
        made = job(spark, tmp_path / f"{parallelism}", query)
        made.run([Leg(size, parallelism)])
        emitted.append(lines(made.folder, "ties"))
    assert Counter(emitted[0]) == Counter(emitted[1])
    assert Counter(merge(emitted[1])) == Counter(merge(emitted[2]))


@pytest.mark.parametrize(
    ("limit", "is_updating", "is_bounded"),
    [(1, False, True), (1001, False, False), (1, True, False)],
)
def test_all_rows_are_stored_over_a_changelog_and_for_a_large_limit(
    spark: SparkSession, tmp_path: Path, limit: int, is_updating: bool, is_bounded: bool
) -> None:
    query = QUERIES["newest"].replace("n <= 1", f"n <= {limit}")
    if is_updating:
        changes = "SELECT user, max(id) AS id, max(price) AS price FROM events GROUP BY user"
        query = query.replace("FROM events", f"FROM ({changes})").replace(", tags", "")
    made = job(spark, tmp_path, {"newest": query})
    pipeline = made.open()._pipeline
    operator = next(
        each
        for each in pipeline.operators.values()
        if isinstance(each.spec, UpdatingQuerySpec) and each.spec.first_rows is not None
    )
    assert isinstance(operator, UpdatingOperator)
    assert isinstance(operator._query, UpdatingQuery) != is_bounded
