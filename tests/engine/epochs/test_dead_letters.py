"""Bad records, and rows on which an epoch fails, become dead letters of their epoch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from resurgence.connectors.formats.contract import VALUE
from resurgence.connectors.formats.json.lines import JSON
from resurgence.connectors.formats.line_encoder import LineEncoder
from resurgence.connectors.single_file import SingleFileSink
from resurgence.engine.epochs.poison_rows import Poison, PoisonSearch
from resurgence.engine.spark.errors import translate
from resurgence.errors import (
    BadRecord,
    ExpressionFailed,
    FunctionFailed,
    MessageRefused,
    ResurgenceError,
    TooManyDeadLetters,
)
from resurgence.ids import JobName
from resurgence.state.backend import StateBackend
from resurgence.state.inspection.checkpoints import kept_checkpoints
from resurgence.state.inspection.ledger import ledger_of
from resurgence.udf import load_functions
from tests.engine.harness import Job, Leg, read_lines, sink_table, source_table

COLUMNS = "at TIMESTAMP NOT NULL, number BIGINT, word TEXT"
DEAD_LETTER = ", bad_data = 'dead_letter'"
FUNCTIONS = """
from resurgence import udf, udaf


@udf
def checked(number: int) -> int:
    assert number % 7 != 6, "number is a poison number"
    return number


@udaf
def strict(numbers: list[int]) -> int:
    assert 6 not in numbers
    return len(numbers)
"""


def line(number: int, /, **other: object) -> str:
    row = {"at": f"2024-01-01T00:00:{number:02}", "number": number, "word": str(number)}
    return json.dumps(row | other)


def made_job(
    spark: SparkSession,
    folder: Path,
    lines: Sequence[str | bytes],
    *,
    query: str = "SELECT number FROM events",
    options: str = DEAD_LETTER,
    before: str = "",
    settings: Mapping[str, str] | None = None,
) -> Job:
    """A job that reads lines as the table `events`, and writes what a query returns to a file."""
    path = folder / "events.json"
    path.write_bytes(
        b"".join((each if isinstance(each, bytes) else each.encode()) + b"\n" for each in lines)
    )
    (folder / "functions.py").write_text(FUNCTIONS)
    sql = before + source_table(path, COLUMNS, more=options)
    sql += sink_table(folder / "out.json", name="out", connector="single_file")
    functions = load_functions(folder / "functions.py")
    return Job(spark, folder, f"{sql}INSERT INTO out {query}", functions, settings or {})


def letters(job: Job) -> list[dict[str, Any]]:
    """The visible dead letters, by epoch and offset, read without the product."""
    files = sorted((job.folder / "state" / job.name / "dead-letters").glob("*.parquet"))
    rows = [row for each in files for row in pq.read_table(each).to_pylist()]
    return sorted(rows, key=lambda each: (each["epoch"], each["offset"]))


def numbers(job: Job) -> list[Any]:
    lines: list[dict[str, Any]] = read_lines(job.folder / "out.json")
    return sorted(each["number"] for each in lines)


def backend(job: Job) -> StateBackend:
    return StateBackend(job.store, JobName(job.name))


def assert_ledger_balances(job: Job) -> None:
    ledger = ledger_of(kept_checkpoints(backend(job)))
    assert ledger.lines
    assert ledger.balances


def failure(job: Job, leg: Leg | None = None) -> ResurgenceError:
    engine = job.open(leg)
    with pytest.raises(Exception) as raised:
        while not engine.finished:
            engine.run_epoch()
    return translate(raised.value)


# -------------------------------------------------------------------- bad records


def test_bad_records_become_dead_letters_and_the_others_are_processed(
    spark: SparkSession, tmp_path: Path
) -> None:
    wrong = line(3, number="x")
    lines: list[str | bytes] = [line(0), "{broken", line(2), wrong, line(4), b"\xff\xfe", line(6)]
    job = made_job(spark, tmp_path, lines)
    job.run([Leg(rows=3, epochs=1)])
    assert numbers(job) == [0, 2, 4, 6]
    found = letters(job)
    assert [(each["epoch"], each["offset"], each["raw"]) for each in found] == [
        (1, 1, b"{broken"),
        (2, 3, line(3, number="x").encode()),
        (2, 5, b"\xff\xfe"),
    ]
    assert {(each["operator"], each["source"]) for each in found} == {("source-events",) * 2}
    assert found[0]["position"] == f"{tmp_path}/events.json, line 2"
    assert [each["error"].partition(": ")[2] for each in found] == [
        "not JSON: expecting property name enclosed in double quotes",
        "'number' is not a BIGINT: \"x\"",
        "not UTF-8: byte ff",
    ]
    assert all(each["at"] is not None for each in found)
    assert [each.counts.dead_rows for each in job.reports] == [
        {"source-events": 1},
        {"source-events": 2},
    ]
    assert_ledger_balances(job)


def test_drop_loses_that_record_only(spark: SparkSession, tmp_path: Path) -> None:
    job = made_job(spark, tmp_path, [line(0), "{", line(2)], options=", bad_data = 'drop'")
    job.run()
    assert numbers(job) == [0, 2]
    assert letters(job) == []


def test_fail_names_the_position_of_the_bad_record(spark: SparkSession, tmp_path: Path) -> None:
    job = made_job(spark, tmp_path, [line(0), "{", line(2)], options=", bad_data = 'fail'")
    error = failure(job)
    assert isinstance(error, BadRecord)
    assert error.position == f"{tmp_path}/events.json, line 2"


def test_a_record_too_far_in_the_future_is_a_dead_letter_and_does_not_move_the_watermark(
    spark: SparkSession, tmp_path: Path
) -> None:
    far = line(1, at="2999-01-01T00:00:00")
    options = f"{DEAD_LETTER}, max_future = '1 day'"
    job = made_job(spark, tmp_path, [line(0), far, line(2)], options=options)
    report = job.open(Leg(rows=3)).run_epoch()
    assert report is not None
    (letter,) = letters(job)
    assert letter["raw"] == far.encode()
    assert letter["error"].startswith("event time is more than 1 day ahead")


def test_more_bad_records_than_allowed_fail_the_job_and_leave_its_state(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines = [line(0), "{", line(2), "{", "{", line(5)]
    job = made_job(spark, tmp_path, lines, settings={"pipeline.max_dead_letters": "1"})
    error = failure(job, Leg(rows=3))
    assert isinstance(error, TooManyDeadLetters)
    assert "2 dead letters" in error.message
    assert "events.json, line 4" in error.message
    assert [each["offset"] for each in letters(job)] == [1]
    assert numbers(job) == [0, 2]


# -------------------------------------------------------------------- rows on which an epoch fails

ON_ERROR = "SET on_error = 'dead_letter';\n"


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("SELECT checked(number) AS number FROM events", "poison number"),
        pytest.param(
            "SELECT number + 0 * 1 / (number % 7 - 6) AS number FROM events",
            "DIVIDE_BY_ZERO",
            marks=pytest.mark.long,
        ),
        (
            "SELECT CAST(replace(word, '6', 'x') AS BIGINT) AS number FROM events"
            " WHERE number < 13",
            "CAST_INVALID_INPUT",
        ),
    ],
    ids=["a function raises", "a division fails", "a cast fails"],
)
def test_the_rows_on_which_an_epoch_fails_become_dead_letters(
    spark: SparkSession, tmp_path: Path, query: str, error: str
) -> None:
    job = made_job(
        spark, tmp_path, [line(each) for each in range(15)], query=query, before=ON_ERROR
    )
    (report,) = job.run()
    found = letters(job)
    poison = [6] if "WHERE" in query else [6, 13]
    assert [each["offset"] for each in found] == poison
    assert [each["raw"] for each in found] == [line(each).encode() for each in poison]
    assert all(error in each["error"] for each in found)
    assert report.counts.dead_rows == {"source-events": len(poison)}
    assert report.counts.rows_out == {"sink-out": (13 if "WHERE" in query else 15) - len(poison)}
    assert_ledger_balances(job)


def test_without_on_error_the_job_fails(spark: SparkSession, tmp_path: Path) -> None:
    query = "SELECT checked(number) AS number FROM events"
    job = made_job(spark, tmp_path, [line(each) for each in range(8)], query=query)
    assert isinstance(failure(job), FunctionFailed)
    assert letters(job) == []


def test_the_setting_applies_if_the_pipeline_does_not_set_on_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = "SELECT checked(number) AS number FROM events"
    settings = {"pipeline.on_error": "dead_letter"}
    lines = [line(each) for each in range(8)]
    job = made_job(spark, tmp_path, lines, query=query, settings=settings)
    job.run()
    assert [each["offset"] for each in letters(job)] == [6]


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        (
            "SELECT tumble(INTERVAL '1 hour') AS w, strict(number) AS number FROM events GROUP BY w",
            FunctionFailed,
        ),
        (
            "SELECT tumble(INTERVAL '1 hour') AS w, 1 / (sum(number) - 28) AS number FROM events"
            " GROUP BY w",
            ExpressionFailed,
        ),
    ],
    ids=["an aggregate function", "an expression over a closed window"],
)
def test_a_failure_on_rows_in_state_fails_the_job(
    spark: SparkSession, tmp_path: Path, query: str, kind: type[ResurgenceError]
) -> None:
    lines = [line(each) for each in range(8)]
    job = made_job(spark, tmp_path, lines, query=query, before=ON_ERROR)
    assert isinstance(failure(job), kind)
    assert letters(job) == []


def test_a_job_that_fails_without_its_poison_rows_too_fails_with_the_first_error(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    query = (
        "SELECT tumble(INTERVAL '1 hour') AS w, 1 / (sum(checked(number)) - 22) AS number"
        " FROM events GROUP BY w"
    )
    job = made_job(spark, tmp_path, [line(each) for each in range(8)], query=query, before=ON_ERROR)
    error = failure(job)
    assert "running it without 1 of its records" in caplog.text
    assert isinstance(error, FunctionFailed)
    assert "number is a poison number" in str(error)
    assert letters(job) == []
    assert not list((tmp_path / "state").rglob("dead-letters/*"))
    assert not [each for each in kept_checkpoints(backend(job)) if each.manifest is not None]


def test_more_poison_rows_than_allowed_fail_the_job(spark: SparkSession, tmp_path: Path) -> None:
    query = "SELECT checked(6) AS number FROM events"
    lines = [line(each) for each in range(8)]
    settings = {"pipeline.max_dead_letters": "2"}
    job = made_job(spark, tmp_path, lines, query=query, before=ON_ERROR, settings=settings)
    error = failure(job)
    assert isinstance(error, TooManyDeadLetters)
    assert "poison number" in error.message
    assert letters(job) == []


def test_excluded_rows_do_not_move_the_watermark(spark: SparkSession, tmp_path: Path) -> None:
    lines = [line(0), line(6, at="2024-01-02T00:00:00"), line(1), line(2)]
    query = "SELECT checked(number) AS number FROM events"
    job = made_job(spark, tmp_path, lines, query=query, before=ON_ERROR)
    report = job.open(Leg(rows=3)).run_epoch()
    assert report is not None
    assert report.counts.dead_rows == {"source-events": 1}
    assert report.watermark == 1_704_067_196_000_000


def test_generated_rows_become_dead_letters_as_json(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    sql = (
        f"{ON_ERROR}CREATE TABLE ticks WITH (connector = 'impulse', message_count = '10',"
        " start_time = '2024-01-01T00:00:00', event_time_interval = '1 second');"
        + sink_table(tmp_path / "out.json", name="out", connector="single_file")
        + "INSERT INTO out SELECT checked(counter) AS number FROM ticks"
    )
    job = Job(spark, tmp_path, sql, load_functions(tmp_path / "functions.py"))
    job.run()
    (letter,) = letters(job)
    assert (letter["position"], letter["offset"]) == ("impulse@6", 6)
    assert json.loads(letter["raw"])["timestamp"] == "2024-01-01T00:00:06"
    assert numbers(job) == [0, 1, 2, 3, 4, 5, 7, 8, 9]


class PickyEncoder(LineEncoder):
    """Refuses the number 6."""

    def add(self, batch: pa.RecordBatch) -> None:
        if any('"number":6' in each for each in batch.column(VALUE).to_pylist()):
            raise MessageRefused("the sink does not take the number 6")
        super().add(batch)


def test_a_row_that_a_sink_refuses_becomes_a_dead_letter(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines = [line(each) for each in range(8)]
    job = made_job(spark, tmp_path, lines, before=ON_ERROR)
    engine = job.open()
    (sink,) = engine._pipeline.sinks.values()
    assert isinstance(sink, SingleFileSink)
    sink._format = replace(JSON, encoder=PickyEncoder)
    engine.run_epoch()
    (letter,) = letters(job)
    assert (letter["operator"], letter["offset"]) == ("sink-out", 6)
    assert letter["error"] == "the sink does not take the number 6"
    assert numbers(job) == [0, 1, 2, 3, 4, 5, 7]


def test_without_time_for_the_search_the_job_fails(spark: SparkSession, tmp_path: Path) -> None:
    query = "SELECT checked(number) AS number FROM events"
    lines = [line(each) for each in range(8)]
    settings = {"pipeline.search_timeout": "1ms"}
    job = made_job(spark, tmp_path, lines, query=query, before=ON_ERROR, settings=settings)
    assert isinstance(failure(job), FunctionFailed)
    assert letters(job) == []


def test_a_search_that_fails_does_not_replace_the_original_error(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_search: PoisonSearch, _patience: timedelta) -> Poison:
        raise OSError("the search failed")

    monkeypatch.setattr(PoisonSearch, "run", broken)
    query = "SELECT checked(number) AS number FROM events"
    lines = [line(each) for each in range(8)]
    job = made_job(spark, tmp_path, lines, query=query, before=ON_ERROR)
    assert isinstance(failure(job), FunctionFailed)


def test_dropped_records_are_not_stored_with_the_rows_on_which_an_epoch_fails(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = "SELECT checked(number) AS number FROM events"
    lines = [line(0), "{", line(6)]
    options = ", bad_data = 'drop'"
    job = made_job(spark, tmp_path, lines, query=query, before=ON_ERROR, options=options)
    (report,) = job.run()
    assert [each["offset"] for each in letters(job)] == [2]
    assert report.counts.bad_rows == report.counts.dead_rows == {"source-events": 1}
    assert_ledger_balances(job)
