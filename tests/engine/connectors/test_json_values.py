"""Values in JSON: the forms of a timestamp, and text columns that keep values as written."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.connectors.contract import BAD_POSITION
from resurgence.connectors.formats.json.lines import JsonLineReader
from resurgence.connectors.single_file import SingleFileSource, SingleFileSourceOptions
from resurgence.errors import BadRecord
from resurgence.graph.values import Column
from tests.engine.connectors.text_records import line_position, text_records
from tests.engine.harness import (
    Job,
    Leg,
    SetClock,
    read_lines,
    sink_table,
    source_table,
    state_files,
)

BAD = "bad"
"""Stands for a value that makes its line a bad record."""

NOON = "2024-03-01 12:00:00"
TIMESTAMPS = [
    ("TIMESTAMP", "seconds", '"2024-03-01T12:00:00Z"', NOON),
    ("TIMESTAMP", "seconds", '"2024-03-01 12:00:00"', NOON),
    ("TIMESTAMP", "seconds", '"2024-03-01T12:00"', NOON),
    ("TIMESTAMP", "seconds", '"2024-03-01T12:00Z"', NOON),
    ("TIMESTAMP", "seconds", '"2024-03-01T14:00+02:00"', NOON),
    ("TIMESTAMP", "seconds", '"2024-03-01t12:00:00z"', NOON),
    ("TIMESTAMP", "seconds", '"2024-03-01t12:00z"', NOON),
    ("TIMESTAMP", "seconds", '"2024-03-01T12:00:00.123Z"', f"{NOON}.123"),
    ("TIMESTAMP", "seconds", '"2024-03-01T12:00:00.123456"', f"{NOON}.123456"),
    ("TIMESTAMP", "seconds", '"2024-03-01T12:00:00.123456789Z"', f"{NOON}.123456"),
    ("TIMESTAMP", "seconds", '"2024-03-01"', "2024-03-01 00:00:00"),
    ("TIMESTAMP", "millis", '"2024-03-01T12:00:00Z"', NOON),
    ("TIMESTAMP", "seconds", "null", None),
    ("TIMESTAMP", "seconds", "1709294400", NOON),
    ("TIMESTAMP", "millis", "1709294400123", f"{NOON}.123"),
    ("TIMESTAMP", "micros", "1709294400123456", f"{NOON}.123456"),
    ("TIMESTAMP", "nanos", "1709294400123456789", f"{NOON}.123456"),
    ("TIMESTAMP", "nanos", "-1", "1969-12-31 23:59:59.999999"),
    ("TIMESTAMP", "nanos", "-1000", "1969-12-31 23:59:59.999999"),
    ("TIMESTAMP", "seconds", "-62135596800", "0001-01-01 00:00:00"),
    ("TIMESTAMP", "seconds", "253402300799", "9999-12-31 23:59:59"),
    ("TIMESTAMP", "millis", "253402300799999", "9999-12-31 23:59:59.999"),
    ("TIMESTAMP", "micros", "253402300799999999", "9999-12-31 23:59:59.999999"),
    ("TIMESTAMP", "nanos", "9223372036854775807", "2262-04-11 23:47:16.854775"),
    ("TIMESTAMP_NTZ", "seconds", '"2024-03-01T12:00"', NOON),
    ("TIMESTAMP_NTZ", "millis", "1709294400123", f"{NOON}.123"),
    ("DATE", "seconds", '"2024-02-29"', "2024-02-29"),
    ("DATE", "seconds", '"2024-02-29T23:59:59Z"', "2024-02-29"),
    # milliseconds taken for seconds
    ("TIMESTAMP", "seconds", "1709294400000", BAD),
    ("TIMESTAMP", "seconds", "253402300800", BAD),
    ("TIMESTAMP", "seconds", "-62135596801", BAD),
    ("TIMESTAMP", "millis", "1709294400123456", BAD),
    ("TIMESTAMP", "micros", "1709294400123456789", BAD),
    ("TIMESTAMP", "nanos", "9223372036854775808", BAD),
    ("TIMESTAMP", "seconds", "1709294400.5", BAD),
    ("TIMESTAMP", "seconds", "true", BAD),
    ("TIMESTAMP", "seconds", "{}", BAD),
    ("TIMESTAMP", "seconds", '"1709294400"', BAD),
    ("TIMESTAMP", "millis", '"1709294400000"', BAD),
    ("TIMESTAMP", "seconds", '"20240301"', BAD),
    ("TIMESTAMP", "seconds", '"2024"', BAD),
    ("TIMESTAMP", "seconds", '"12:00:00"', BAD),
    ("TIMESTAMP", "seconds", '"T12:00:00"', BAD),
    ("TIMESTAMP", "seconds", '"12:00:00-08:00"', BAD),
    ("TIMESTAMP", "seconds", '"now"', BAD),
    ("TIMESTAMP", "seconds", '""', BAD),
    ("TIMESTAMP", "seconds", '"2024-02-30T00:00:00"', BAD),
    ("TIMESTAMP", "seconds", '"0000-12-31T00:00:00"', BAD),
    ("TIMESTAMP", "seconds", '"9999-12-31T23:59:59-01:00"', BAD),
    ("TIMESTAMP_NTZ", "seconds", '"12:00:00"', BAD),
    ("DATE", "seconds", "19783", BAD),
    ("DATE", "seconds", '"12:00:00"', BAD),
    ("DATE", "seconds", '"2024-03-01Tnoon"', BAD),
    ("DATE", "seconds", '"2024"', BAD),
    # inside of other values
    ("STRUCT<at: TIMESTAMP>", "millis", '{"at": 1709294400123}', f"{{{NOON}.123}}"),
    ("STRUCT<at: TIMESTAMP>", "seconds", '{"at": "1709294400"}', BAD),
    ("ARRAY<TIMESTAMP>", "seconds", '[1709294400, null, "2024-03-01T12:00"]', f"[{NOON}, null, {NOON}]"),
    ("ARRAY<TIMESTAMP>", "seconds", '["1709294400"]', BAD),
    ("ARRAY<TIMESTAMP>", "seconds", "[1709294400000]", BAD),
    ("MAP<STRING, DATE>", "seconds", '{"a": "2024-03-01"}', "{a -> 2024-03-01}"),
    ("MAP<STRING, DATE>", "seconds", '{"a": "12:00:00"}', BAD),
    ("MAP<STRING, INT>", "seconds", '{"a": 1, "a": 2}', BAD),
]  # fmt: skip

LONG = "12345678901234567890123.5"
TEXTS = [
    ("STRING", "seconds", "1.10", "1.10"),
    ("STRING", "seconds", LONG, LONG),
    ("STRING", "seconds", "-1.50E+03", "-1.50E+03"),
    ("STRING", "seconds", "1e999", "1e999"),
    ("STRING", "seconds", "-0", "-0"),
    ("STRING", "seconds", "12345678901234567890123", "12345678901234567890123"),
    ("STRING", "seconds", "true", "true"),
    ("STRING", "seconds", "null", None),
    ("STRING", "seconds", '"1.10"', "1.10"),
    ("STRING", "seconds", '"1.0"', "1.0"),
    ("STRING", "seconds", r'"{\"a\": 1.10}"', '{"a": 1.10}'),
    ("STRING", "seconds", r'"caf\u00e9"', "café"),
    ("STRING", "seconds", f'{{"a": 1.10, "b":  {LONG}}}', f'{{"a": 1.10, "b":  {LONG}}}'),
    ("STRING", "seconds", r'{"}": "\"]", "x": [ 1.10 ]}', r'{"}": "\"]", "x": [ 1.10 ]}'),
    ("STRING", "seconds", "[1.10, {}]", "[1.10, {}]"),
    ("STRING", "seconds", '{"value": 1.10}', '{"value": 1.10}'),
    ("STRING", "seconds", "[" * 32 + "1.10" + "]" * 32, "[" * 32 + "1.10" + "]" * 32),
    ("STRUCT<a: STRING, b: INT>", "seconds", '{"b": 1, "a": 1.10}', "{1.10, 1}"),
    ("STRUCT<a: STRUCT<a: STRING>>", "seconds", '{"a": {"a": [1.10]}}', "{{[1.10]}}"),
    ("ARRAY<STRING>", "seconds", '["1.1", 1.10, null, {"a":  1.0}]', '[1.1, 1.10, null, {"a":  1.0}]'),
    ("ARRAY<ARRAY<STRING>>", "seconds", "[[1.10], [], null]", "[[1.10], [], null]"),
    ("MAP<STRING, STRING>", "seconds", '{"a": 1.10, "b": "x"}', "{a -> 1.10, b -> x}"),
    ("ARRAY<STRUCT<k: STRING>>", "seconds", '[{"k": 1.10}, {"k": "1.10"}]', "[{1.10}, {1.10}]"),
]  # fmt: skip


@pytest.mark.parametrize("cases", [TIMESTAMPS, TEXTS], ids=["timestamps", "texts"])
def test_values_are_read_as_they_are_written(
    spark: SparkSession, cases: list[tuple[str, str, str, str | None]]
) -> None:
    """Every type and unit is a column; every case a line that has this column alone, or that and
    its text as a string in another.
    """
    kinds = sorted({(kind, unit) for kind, unit, _, _ in cases})
    names = {each: f"it's {number}" for number, each in enumerate(kinds)}
    columns = tuple(Column(name=name, type=kind) for (kind, _), name in names.items())
    reader = JsonLineReader(columns, {name: unit for (_, unit), name in names.items()})
    lines = []
    for number, (kind, unit, written, _) in enumerate(cases):
        name = names[kind, unit]
        lines.append((2 * number, f'{{"{name}": {written}}}'))
        lines.append(
            (
                2 * number + 1,
                f'{{"x": [{{"{name}": 0}}, {json.dumps(written)}, {written}], "{name}"\t: {written} , "y": 1.5}}',
            )
        )
    parsed = reader.parse(text_records(spark, lines))
    shown = ", ".join(f"CAST(`{name}` AS STRING) AS `{name}`" for name in names.values())
    found = parsed.selectExpr(
        "__record_position.offset AS position", BAD_POSITION, *shown.split(", ")
    )
    rows = {row.position: row for row in found.collect()}
    for position, line in lines:
        kind, unit, _, expected = cases[position // 2]
        row = rows[position]
        value = BAD if row[BAD_POSITION] is not None else row[names[kind, unit]]
        assert value == expected, line


def test_long_values_are_extracted_without_deep_recursion(spark: SparkSession) -> None:
    values = [
        "[" + ", ".join(["1.10"] * 50_000) + "]",
        '{"a": "' + r"\n" * 50_000 + '", "b": 1.10}',
        "{" + ", ".join(f'"k{number}": {{"x": 1.10}}' for number in range(50_000)) + "}",
    ]
    lines = [(position, f'{{"x": {each}, "a": {each}}}') for position, each in enumerate(values)]
    reader = JsonLineReader((Column(name="a", type="STRING"),))
    found = reader.parse(text_records(spark, lines))
    assert [row.a for row in found.collect()] == values


def test_of_a_duplicate_name_the_last_value_counts(spark: SparkSession) -> None:
    reader = JsonLineReader((Column(name="a", type="STRING"),))
    lines = text_records(spark, [(0, '{"a": {"b": 1}, "a": 2.5}')])
    assert [row.a for row in reader.parse(lines).collect()] == ["2.5"]


def test_milliseconds_without_a_unit_are_a_bad_record_whose_hint_names_the_option(
    tmp_path: Path,
) -> None:
    path = tmp_path / "in.json"
    path.write_text('{"at": 1709294400000}\n')
    columns = (Column(name="at", type="TIMESTAMP"),)
    source = SingleFileSource(
        SingleFileSourceOptions.read({"path": str(path)}), JsonLineReader(columns)
    )
    planned = source.plan(source.first_offset(datetime.now(UTC), 1), 10, datetime.now(UTC))
    error = source.bad_record(planned, line_position(0))
    assert "column 8: 'at' is out of range for a TIMESTAMP in seconds: 1709294400000" in str(error)
    assert "timestamp_unit" in error.hint


def test_units_are_declared_for_a_table_or_for_a_column(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "in.json"
    path.write_text('{"at": 1709294400123, "Seen": 1709294400, "day": "2024-03-01"}\n')
    sql = source_table(
        path,
        "at TIMESTAMP, Seen TIMESTAMP, day DATE",
        more=", timestamp_unit = 'millis', 'timestamp_unit.seen' = 'seconds'",
    ) + sink_table(tmp_path / "out.json", name="out", connector="single_file")
    job = Job(spark, tmp_path, f"{sql} INSERT INTO out SELECT at, Seen AS seen, day FROM events")
    job.run()
    assert read_lines(tmp_path / "out.json") == [
        {"at": "2024-03-01T12:00:00.123", "seen": "2024-03-01T12:00:00", "day": "2024-03-01"}
    ]


# --- max_future


def future_job(
    spark: SparkSession, folder: Path, more: str, columns: str = "at TIMESTAMP, id INT"
) -> Job:
    """A file whose third row is ten minutes ahead of the others, which are at the clock's time."""
    clock = SetClock(datetime(2024, 3, 1, 12, 0, 30, tzinfo=UTC))
    path = folder / "in.json"
    times = [
        "2024-03-01T12:00:00",
        "2024-03-01T12:00:01",
        "2024-03-01T12:10:31",
        "2024-03-01T12:00:02",
    ]
    path.write_text("".join(f'{{"at": "{at}", "id": {n}}}\n' for n, at in enumerate(times)))
    sql = source_table(path, columns, more=more) + sink_table(
        folder / "out.json", name="out", connector="single_file"
    )
    sql += "INSERT INTO out SELECT window.start AS at, count(*) AS n FROM events GROUP BY tumble(INTERVAL '1 second')"
    return Job(spark, folder, sql, clock=clock)


def test_a_row_too_far_in_the_future_stops_the_job_and_closes_no_window(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = future_job(spark, tmp_path, ", max_future = '10 minutes'")
    engine = job.open(Leg(1))
    engine.run_epoch()
    engine.run_epoch()
    with pytest.raises(
        BadRecord, match=r"line 3: event time is more than 10 minutes ahead"
    ) as caught:
        engine.run_epoch()
    assert "max_future" in caught.value.hint
    assert isinstance(job.clock, SetClock)
    # The epoch was planned, and not sealed: a later plan has another time, and the row is good.
    job.clock.at += timedelta(seconds=1)
    assert job.open(Leg(1)).run_epoch() is not None


@pytest.mark.parametrize(
    "columns",
    ["at TIMESTAMP, id INT", "at TIMESTAMP GENERATED ALWAYS AS (CAST(text AS TIMESTAMP)) STORED"],
)
def test_rows_too_far_in_the_future_are_dropped_and_counted(
    spark: SparkSession, tmp_path: Path, columns: str
) -> None:
    columns = columns if "id" in columns else f"text TEXT, {columns}"
    job = future_job(spark, tmp_path, ", max_future = '1 minute', bad_data = 'drop'", columns)
    if "text" in columns:
        path = tmp_path / "in.json"
        path.write_text(path.read_text().replace('"at"', '"text"'))
    reports = job.run([Leg(1, epochs=3)])
    assert sum(sum(each.counts.bad_rows.values()) for each in reports) == 1
    assert sum(sum(each.counts.late_rows.values()) for each in reports) == 0
    assert [row["n"] for row in read_lines(tmp_path / "out.json")] == [1, 1, 1]


def test_a_replay_judges_the_future_by_the_recorded_planning_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Later the row would be good; the epoch that read it dropped it, and so does its replay."""
    job = future_job(spark, tmp_path, ", max_future = '1 minute', bad_data = 'drop'")
    engine = job.open(Leg(1))
    for _ in range(3):
        assert engine.run_epoch() is not None
    damaged = frozenset(each.path for each in state_files(engine) if each.epoch == 2)
    assert damaged
    assert isinstance(job.clock, SetClock)
    job.clock.at += timedelta(hours=1)
    engine = job.open(Leg(1), damaged)
    reports = []
    while not engine.finished:
        report = engine.run_epoch()
        assert report is not None
        reports.append(report)
    assert [each.replayed for each in reports] == [True, True, False]
    assert [sum(each.counts.bad_rows.values()) for each in reports] == [0, 1, 0]
    assert [row["n"] for row in read_lines(tmp_path / "out.json")] == [1, 1, 1]
