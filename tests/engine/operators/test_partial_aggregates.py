"""The state of an aggregate without a window: partial sums where they are exact, rows elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.engine.epochs.engine import Engine
from tests.engine.harness import Job, Leg, batch, sink_table, source_table, state_files, write_lines
from tests.sql.changelog import merge

USERS, ROWS, EPOCHS = 4, 60, 3


@pytest.mark.parametrize(
    ("calls", "adds_up"),
    [
        (
            "count(*) AS n, sum(price) AS total, max(price) AS most, bool_or(price > 7) AS dear",
            True,
        ),
        pytest.param(
            "count(*) FILTER (WHERE price > 3) AS n, avg(CAST(price AS DECIMAL(10, 2))) AS mean",
            True,
            marks=pytest.mark.long,
        ),
        ("sum(price / 4) AS total", False),
        pytest.param("min(CAST(price AS DOUBLE)) AS least", False, marks=pytest.mark.long),
        pytest.param("count(DISTINCT price) AS n", False, marks=pytest.mark.long),
        ("count(*) AS n, max_by(price, id) AS newest", False),
    ],
)
def test_a_group_stores_one_row_per_epoch_if_its_sums_are_exact(
    spark: SparkSession, tmp_path: Path, calls: str, adds_up: bool
) -> None:
    rows = [{"id": each, "user": each % USERS, "price": each * 7 % 11} for each in range(ROWS)]
    path = write_lines(tmp_path / "in.json", rows)
    columns = "id BIGINT, user BIGINT, price BIGINT"
    sql = (
        source_table(path, columns, delay=None)
        + sink_table(
            tmp_path / "out.json",
            name="results",
            connector="single_file",
            more=", format = 'debezium_json'",
        )
        + f"INSERT INTO results SELECT user, {calls} FROM events GROUP BY user"
    )
    held: list[int] = []

    def note(engine: Engine) -> None:
        held.append(sum(each.rows for each in state_files(engine)))

    Job(spark, tmp_path, sql).run([Leg(rows=ROWS // EPOCHS, parallelism=2)], note)
    assert len(held) == EPOCHS
    assert held[-1] == (USERS * EPOCHS if adds_up else ROWS)
    batch(spark, path, columns, "SELECT * FROM events")
    answer = f"SELECT user, {calls} FROM events GROUP BY user"
    expected = spark.sql(f"SELECT to_json(struct(*)) FROM ({answer})").collect()
    found = merge((tmp_path / "out.json").read_text().splitlines())
    assert in_order(found) == in_order([each[0] for each in expected])


def in_order(rows: list[str]) -> list[list[tuple[str, object]]]:
    return sorted(sorted(json.loads(each).items()) for each in rows)
