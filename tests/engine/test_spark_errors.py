"""Real failures of Spark, as errors that name the place and who can mend it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from resurgence.engine.epoch import Engine
from resurgence.engine.spark_errors import failed_subtask, translate
from resurgence.errors import DamagedState, ErrorDomain, RetryHint, SqlError, TaskFailed, UserError
from tests.engine.harness import Job, Leg, sink_table, source_table, state_files, write_lines

COLUMNS = "at TIMESTAMP, id INT, name TEXT, tags ARRAY<TEXT>"
ROWS = [{"at": f"2024-01-01T00:00:0{number}", "id": number, "name": "x"} for number in range(6)]
WINDOWED = (
    "SELECT tumble(INTERVAL '1 minute') AS w, name, sum(id) AS s FROM events GROUP BY w, name"
)


def job_of(spark: SparkSession, folder: Path, query: str) -> Job:
    """The query begins in the third line."""
    path = write_lines(folder / "events.json", ROWS)
    sql = source_table(path, COLUMNS) + sink_table(folder / "out", name="out")
    return Job(spark, folder, f"{sql}INSERT INTO out {query}")


def failure(engine: Engine) -> Exception:
    with pytest.raises(Exception) as raised:
        engine.run_epoch()
    return raised.value


@pytest.mark.parametrize(
    ("query", "line", "column", "message"),
    [
        ("SELECT id,\n  name + tags AS x\nFROM events", 4, 3, "DATATYPE_MISMATCH"),
        ("SELECT id FROM events\nWHERE upper(id, 2) = 1", 4, 7, "WRONG_NUM_ARGS"),
        ("SELECT\n  CAST(tags AS INT) FROM events", 4, 3, "DATATYPE_MISMATCH"),
        ("SELECT id FROM events\nWHERE id + 1", 4, 7, "boolean|BOOLEAN"),
        (
            "SELECT tumble(INTERVAL 1 HOUR) AS w,\n  count(*) FILTER (WHERE id) FROM events GROUP BY w",
            4,
            3,
            "boolean|BOOLEAN",
        ),
        (
            "SELECT tumble(INTERVAL 1 HOUR) AS w,\n  count(*), sum(tags) FROM events GROUP BY w",
            4,
            13,
            "DATATYPE_MISMATCH",
        ),
        (
            "SELECT tumble(INTERVAL 1 HOUR) AS w, count(*)\nFROM events GROUP BY w,\n  name + tags",
            5,
            3,
            "DATATYPE_MISMATCH",
        ),
    ],
)
def test_a_type_error_is_found_before_anything_runs_and_names_its_place(
    spark: SparkSession, tmp_path: Path, query: str, line: int, column: int, message: str
) -> None:
    with pytest.raises(SqlError, match=message) as raised:
        job_of(spark, tmp_path, query).open()
    assert (raised.value.line, raised.value.column) == (line, column)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT 1 / id FROM events", "DIVIDE_BY_ZERO"),
        ("SELECT CAST(name AS INT) FROM events", "CAST_INVALID_INPUT"),
        ("SELECT CAST(id + 2147483645 AS INT) + 1 FROM events", "ARITHMETIC_OVERFLOW"),
        ("SELECT element_at(array(1, 2), id) FROM events WHERE id > 0", "INVALID_ARRAY_INDEX"),
        ("SELECT raise_error(name) FROM events", "USER_RAISED_EXCEPTION"),
    ],
)
def test_a_value_that_an_expression_cannot_take_is_the_users_to_mend(
    spark: SparkSession, tmp_path: Path, query: str, message: str
) -> None:
    error = translate(failure(job_of(spark, tmp_path, query).open()))
    assert isinstance(error, UserError)
    assert message in error.message
    assert "\n" not in error.message
    assert error.retry_hint is RetryHint.NO_RETRY


@pytest.mark.parametrize("damage", ["missing", "shorter", "flipped"])
def test_a_damaged_state_file_is_named_when_its_window_closes(
    spark: SparkSession, tmp_path: Path, damage: str
) -> None:
    job = job_of(spark, tmp_path, WINDOWED)
    engine = job.open(Leg(3))
    engine.run_epoch()
    (file,) = state_files(engine)
    path = tmp_path / "state" / file.path
    content = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    elif damage == "shorter":
        path.write_bytes(content[:-1])
    else:
        content[30] ^= 0x10  # in the first page
        path.write_bytes(content)
    error = translate(failure(engine))
    assert isinstance(error, DamagedState)
    assert error.path == file.path
    assert error.domain is ErrorDomain.EXTERNAL
    assert damage != "missing" or "is missing" in error.message


def test_a_failure_in_our_own_part_of_a_task_is_told_in_its_last_line(spark: SparkSession) -> None:
    def fail(batches: object) -> object:
        raise LookupError("no such thing\nand more of it")

    with pytest.raises(Exception) as raised:
        spark.range(0, 4, 1, 2).mapInArrow(fail, "id LONG").collect()  # type: ignore[arg-type]
    error = translate(raised.value)
    assert isinstance(error, TaskFailed)
    assert error.message == "LookupError: no such thing"
    assert error.domain is ErrorDomain.INTERNAL


@pytest.mark.parametrize(
    "query",
    [
        lambda rows: rows.selectExpr("id", "10 div (id - 8) AS q"),
        lambda rows: rows.selectExpr("id", "10 div (id - 8) AS q").groupBy("q").count(),
        lambda rows: rows.where("id = 8").mapInArrow(fail_on_rows, "id LONG"),
    ],
    ids=["one stage", "before a shuffle", "in Python"],
)
def test_the_task_that_failed_is_found(
    spark: SparkSession, query: Callable[[DataFrame], DataFrame]
) -> None:
    with pytest.raises(Exception):  # noqa: B017
        query(spark.range(0, 12, 1, 4)).collect()
    assert failed_subtask(spark) == 2


def test_without_a_failed_task_there_is_no_subtask(spark: SparkSession) -> None:
    spark.range(3).collect()
    assert failed_subtask(spark) is None


def fail_on_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            raise LookupError("no such thing")
        yield batch
