"""Table declarations: computed columns, event time by options, types, unstructured JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.engine.epochs.failing_input import FailingInput
from resurgence.engine.spark.errors import translate
from resurgence.errors import ErrorDomain, SqlError
from tests.engine.harness import Job, Leg, read_lines, sink_table, sorted_rows, types, write_lines

MINUTE = 60_000
NOW = datetime(2024, 1, 1, tzinfo=UTC)


def source(path: Path, columns: str, options: str = "") -> str:
    more = f", {options}" if options else ""
    return (
        f"CREATE TABLE events ({columns})"
        f" WITH (connector = 'single_file', path = '{path}', type = 'source'{more});\n"
    )


def answer(spark: SparkSession, folder: Path, sql: str, legs: list[Leg] | None = None) -> Job:
    """A job that has run to its end."""
    job = Job(spark, folder, sql)
    job.run(legs or [])
    return job


def test_a_computed_column_is_event_time_whatever_the_epochs(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [{"millis": MINUTE * number // 2, "n": number} for number in (0, 1, 3, 2, 5, 4, 9)]
    path = write_lines(tmp_path / "in.json", rows)
    columns = (
        "millis BIGINT, n INT, at TIMESTAMP NOT NULL"
        " GENERATED ALWAYS AS (to_timestamp_millis(millis)) STORED, double BIGINT AS (n * 2),"
        " WATERMARK FOR at AS at - '1 minute'"
    )
    sql = source(path, columns) + sink_table(tmp_path / "out", name="out")
    sql += (
        "INSERT INTO out SELECT window.start AS start, count(*) AS count, sum(double) AS total"
        " FROM events GROUP BY tumble('1 minute')"
    )
    job = answer(spark, tmp_path, sql, [Leg(2, 2, epochs=1), Leg(1, 1, epochs=1)])
    assert [sum(each.counts.late_rows.values()) for each in job.reports] == [0, 0, 0]
    found = spark.read.parquet(str(tmp_path / "out")).orderBy("start").collect()
    assert [(each["count"], each["total"]) for each in found] == [(2, 2), (2, 10), (2, 18), (1, 18)]
    assert [each.start.minute for each in found] == [0, 1, 2, 4]


def test_a_column_may_hold_the_watermark(spark: SparkSession, tmp_path: Path) -> None:
    second = "2024-01-01T00:00:{:02}".format
    rows: list[dict[str, object]] = [
        {"at": second(1), "mark": second(0)},
        {"at": second(2), "mark": second(30)},
        {"at": second(3), "mark": second(0)},  # late: the watermark has passed it
        {"at": second(40), "mark": None},
    ]
    path = write_lines(tmp_path / "in.json", rows)
    options = "event_time_field = 'at', watermark_field = 'mark'"
    sql = source(path, "at TIMESTAMP, mark TIMESTAMP", options)
    sql += sink_table(tmp_path / "out", name="out")
    sql += "INSERT INTO out SELECT count(*) AS n FROM events GROUP BY tumble('10 seconds')"
    job = answer(spark, tmp_path, sql, [Leg(2, 1, epochs=1)])
    assert [sum(each.counts.late_rows.values()) for each in job.reports] == [0, 1]
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(each.n for each in found) == [1, 2]


def test_computed_columns_of_a_generator(spark: SparkSession, tmp_path: Path) -> None:
    sql = (
        "CREATE TABLE t (counter BIGINT, timestamp TIMESTAMP, even BOOLEAN AS (counter % 2 = 0))"
        " WITH (connector = 'impulse', message_count = 4, start_time = '2024-01-01T00:00:00');\n"
    )
    sql += sink_table(tmp_path / "out.json", name="out", connector="single_file")
    sql += "INSERT INTO out SELECT counter, even FROM t"
    answer(spark, tmp_path, sql)
    assert read_lines(tmp_path / "out.json") == [
        {"counter": number, "even": number % 2 == 0} for number in range(4)
    ]


def test_a_bad_line_is_not_computed_with(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "in.json"
    path.write_text('{"n": 1}\nnonsense\n{"n": "x"}\n{"n": 2}\n')
    columns = "n INT, good BOOLEAN NOT NULL GENERATED ALWAYS AS (assert_true(n > 0) IS NULL)"
    sql = source(path, columns, "bad_data = 'drop'")
    sql += sink_table(tmp_path / "out.json", name="out", connector="single_file")
    sql += "INSERT INTO out SELECT n, good FROM events"
    job = answer(spark, tmp_path, sql)
    assert job.reports[0].counts.bad_rows == {"source-events": 2}
    assert [each["n"] for each in read_lines(tmp_path / "out.json")] == [1, 2]


@pytest.mark.parametrize(
    ("computed", "message"),
    [
        ("at INT NOT NULL GENERATED ALWAYS AS (nullif(n, 2)) STORED", "at is computed, NOT NULL"),
        ("at INT AS (CAST(text AS INT))", "'x'"),
    ],
)
def test_a_value_that_cannot_be_computed_fails_the_job_and_its_record_is_found(
    spark: SparkSession, tmp_path: Path, computed: str, message: str
) -> None:
    path = write_lines(tmp_path / "in.json", [{"n": 1, "text": "1"}, {"n": 2, "text": "x"}])
    sql = source(path, f"n INT, text TEXT, {computed}")
    sql += sink_table(tmp_path / "out", name="out") + "INSERT INTO out SELECT * FROM events"
    engine = Job(spark, tmp_path, sql).open()
    with pytest.raises(Exception) as raised:
        engine.run_epoch()
    failure = translate(raised.value)
    assert failure.domain is ErrorDomain.USER
    assert message in failure.message
    pipeline = engine._pipeline
    (operator,) = pipeline.graph.sources()
    planned = pipeline.sources[operator.id].plan({"line": 0, "byte": 0}, 10, NOW)
    assert planned is not None
    searched = FailingInput(pipeline, {operator.id: planned}, 0, failure)
    assert "after line 1, " in searched.position(timedelta(seconds=60))


def test_a_computation_that_spark_refuses_is_an_error_at_its_place(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "in.json", [{"tags": ["a"]}])
    sql = source(path, "tags TEXT[], at TIMESTAMP GENERATED ALWAYS AS (year(tags)) STORED")
    sql += sink_table(tmp_path / "out", name="out") + "INSERT INTO out SELECT * FROM events"
    with pytest.raises(SqlError) as caught:
        answer(spark, tmp_path, sql)
    assert (caught.value.line, caught.value.column) == (1, sql.index("year(") + 1)


def test_declared_types_are_read_from_json_and_written(spark: SparkSession, tmp_path: Path) -> None:
    row = {
        "big": 18446744073709551615,
        "small": 255,
        "real": 1.5,
        "price": 12.34,
        "bytes": "aGk=",
        "doc": {"b": 1, "a": [True]},
        "start": "2024-02-29T00:00:00.123456",
        "rows": [[1], [2, 3]],
        "window": {"start": "2024-02-29T00:00:00", "end": "2024-03-01T00:00:00", "key": {"max": 1}},
    }
    path = write_lines(tmp_path / "in.json", [row, {}])
    columns = (
        "big BIGINT UNSIGNED, small TINYINT UNSIGNED, real DOUBLE PRECISION, price DECIMAL(6, 2),"
        " bytes BYTEA, doc JSON, start TIMESTAMP(6), rows INT[][],"
        " window STRUCT<start TIMESTAMP, end TIMESTAMP, key STRUCT<max INT>>"
    )
    sql = source(path, columns) + sink_table(tmp_path / "out", name="out")
    sql += (
        "INSERT INTO out SELECT big, small::text AS small, real, price, bytes::text AS bytes,"
        " doc ->> 'b' AS value, start, rows[1][0] AS rows, window.end, window.key.max AS max,"
        " TRY_CAST(bytes::text AS INT) AS none FROM events WHERE big IS NOT NULL;\n"
    )
    sql += sink_table(tmp_path / "empty", name="empty")
    sql += "INSERT INTO empty SELECT * FROM events WHERE big IS NULL;"
    answer(spark, tmp_path, sql)
    found = spark.read.parquet(str(tmp_path / "out"))
    assert types(found) == [
        ("big", "decimal(20,0)"),
        ("small", "string"),
        ("real", "double"),
        ("price", "decimal(6,2)"),
        ("bytes", "string"),
        ("value", "string"),
        ("start", "timestamp"),
        ("rows", "int"),
        ("end", "timestamp"),
        ("max", "int"),
        ("none", "int"),
    ]
    expected = spark.sql(
        "SELECT 18446744073709551615BD, '255', 1.5D, 12.34BD, 'hi', '1',"
        " TIMESTAMP '2024-02-29 00:00:00.123456', 2, TIMESTAMP '2024-03-01', 1, CAST(NULL AS INT)"
    )
    assert sorted_rows(found) == sorted_rows(expected)
    (nothing,) = spark.read.parquet(str(tmp_path / "empty")).collect()
    assert set(nothing) == {None}


def test_unstructured_json_is_read_as_text(spark: SparkSession, tmp_path: Path) -> None:
    lines = ['{"b": 1,  "a": "x"}', "", "[1, 2]", '"text"']
    path = tmp_path / "in.json"
    path.write_bytes("\n".join(lines).encode() + b"\n\xff\n")
    columns = "value JSON, a TEXT AS (value ->> 'a')"
    sql = source(path, columns, "'json.unstructured' = 'true', bad_data = 'drop'")
    sql += sink_table(tmp_path / "out.json", name="out", connector="single_file")
    sql += "INSERT INTO out SELECT value, a, value -> 0 AS first FROM events"
    job = answer(spark, tmp_path, sql)
    assert job.reports[0].counts.bad_rows == {"source-events": 1}
    found = read_lines(tmp_path / "out.json")
    assert [each["value"] for each in found] == [each for each in lines if each]
    assert [(each["a"], each["first"]) for each in found] == [
        ("x", None),
        (None, "1"),
        (None, None),
    ]
    assert json.loads(str(found[0]["value"])) == {"b": 1, "a": "x"}
