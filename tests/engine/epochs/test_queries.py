"""Stateless queries and the shape of a pipeline: several sinks, views, casts, the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.engine.harness import (
    Job,
    Leg,
    batch,
    read_lines,
    sink_table,
    sorted_rows,
    source_table,
    types,
    write_lines,
)

COLUMNS = "at TIMESTAMP, id INT, name TEXT"
ROWS = [
    {"at": f"2024-01-01T00:00:{number:02}", "id": number, "name": name}
    for number, name in enumerate(["ant", None, "bee", "cat", "", "dog", "eel"])
]


def test_one_source_feeds_several_sinks_each_with_its_own_query_and_types(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "events.json", ROWS)
    case = "CASE WHEN id % 2 = 0 THEN 'even' ELSE name END"
    sql = source_table(path, COLUMNS)
    sql += sink_table(tmp_path / "one.json", name="one", connector="single_file")
    sql += f"INSERT INTO one SELECT id, {case} AS what FROM events;\n"
    sql += sink_table(tmp_path / "many", name="many", more=", format = 'json'")
    sql += "INSERT INTO many SELECT upper(name) AS name, at FROM events WHERE name > 'b';\n"
    declared = "(wide DECIMAL(12,2), text TEXT, day DATE, real DOUBLE, big BIGINT)"
    sql += sink_table(tmp_path / "typed", name="typed", columns=declared)
    sql += "INSERT INTO typed SELECT id, id, at, id, length(name) FROM events;\n"
    sql += sink_table(tmp_path / "some", name="some", columns="(a INT, b TEXT, c INT)")
    sql += "INSERT INTO some (c, b) SELECT id, name FROM events WHERE id > 3;\n"
    job = Job(spark, tmp_path, sql)
    job.run([Leg(3, 2, epochs=1)])

    assert [each.counts.rows_out for each in job.reports] == [
        {"sink-one": 3, "sink-many": 1, "sink-typed": 3, "sink-some": 0},
        {"sink-one": 4, "sink-many": 3, "sink-typed": 4, "sink-some": 3},
    ]
    assert read_lines(tmp_path / "one.json") == [
        {"id": 0, "what": "even"},
        {"id": 1, "what": None},
        {"id": 2, "what": "even"},
        {"id": 3, "what": "cat"},
        {"id": 4, "what": "even"},
        {"id": 5, "what": "dog"},
        {"id": 6, "what": "even"},
    ]
    assert [path.suffix for path in (tmp_path / "many").glob("[!.]*")] == [".json"] * 2
    assert sorted_rows(
        spark.read.schema("name STRING, at TIMESTAMP").json(str(tmp_path / "many"))
    ) == sorted_rows(
        batch(spark, path, COLUMNS, "SELECT upper(name), at FROM events WHERE name > 'b'")
    )
    typed = spark.read.parquet(str(tmp_path / "typed"))
    assert types(typed) == [
        ("wide", "decimal(12,2)"),
        ("text", "string"),
        ("day", "date"),
        ("real", "double"),
        ("big", "bigint"),
    ]
    cast = (
        "SELECT CAST(id AS DECIMAL(12,2)), CAST(id AS STRING), CAST(at AS DATE),"
        " CAST(id AS DOUBLE), CAST(length(name) AS BIGINT) FROM events"
    )
    assert sorted_rows(typed) == sorted_rows(batch(spark, path, COLUMNS, cast))
    some = spark.read.parquet(str(tmp_path / "some")).collect()
    assert sorted(tuple(each) for each in some) == [
        (None, "", 4),
        (None, "dog", 5),
        (None, "eel", 6),
    ]


def test_a_view_that_is_read_twice_keeps_its_state_once(
    spark: SparkSession, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = write_lines(tmp_path / "events.json", ROWS)
    sql = source_table(path, COLUMNS)
    sql += (
        "CREATE VIEW counted AS SELECT tumble(INTERVAL '4 seconds') AS w, count(*) AS n,"
        " max(name) AS last FROM events GROUP BY w;\n"
    )
    sql += sink_table(tmp_path / "a", name="a") + "INSERT INTO a SELECT w.start, n FROM counted;\n"
    sql += "SELECT w.start AS start, last FROM counted WHERE n > 3;\n"
    job = Job(spark, tmp_path, sql)
    engine = job.open()
    assert len(engine._pipeline.live_files()) == 1
    job.run([Leg(4, 2, epochs=1)])

    window = "window(at, '4 seconds')"
    query = f"SELECT {window}.start, count(*) FROM events GROUP BY {window}"
    found = spark.read.parquet(str(tmp_path / "a"))
    assert sorted_rows(found) == sorted_rows(batch(spark, path, COLUMNS, query))
    shown = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    assert shown == [{"start": "2024-01-01T00:00:00", "last": "cat"}]
    assert not job.store.list("job/staged")
