"""Real failures of Spark, translated into errors with position, domain and hint."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from resurgence.engine.epochs.engine import Engine
from resurgence.engine.spark.errors import failed_subtask, gone, translate
from resurgence.errors import (
    AccessDenied,
    ConnectionLost,
    DamagedState,
    ErrorDomain,
    ExpressionFailed,
    ObjectMissing,
    OutOfMemory,
    ResurgenceError,
    RetryHint,
    SinkError,
    SparkGone,
    SparkKilled,
    SqlError,
    StorageError,
    TaskFailed,
    error_in_traceback,
)
from resurgence.storage.object_store import ObjectStore
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
def test_a_value_that_an_expression_cannot_process_is_a_user_error(
    spark: SparkSession, tmp_path: Path, query: str, message: str
) -> None:
    error = translate(failure(job_of(spark, tmp_path, query).open()))
    assert isinstance(error, ExpressionFailed)
    assert message in error.message
    assert "\n" not in error.message
    assert error.retry_hint is RetryHint.NO_RETRY


PER_NAME = "SELECT tumble(INTERVAL '1 minute') AS w, id, count(*) AS n FROM events GROUP BY w, id"


@pytest.mark.parametrize(
    "value",
    [
        "(SELECT n FROM b WHERE b.w = a.w)",
        "(SELECT b.n + 1 FROM b WHERE b.w = a.w AND b.id >= a.id)",
    ],
)
def test_a_scalar_subquery_with_several_rows_is_a_user_error(
    spark: SparkSession, tmp_path: Path, value: str
) -> None:
    query = f"WITH a AS ({PER_NAME}), b AS ({PER_NAME}) SELECT a.id, {value} AS n FROM a"
    failed = translate(failure(job_of(spark, tmp_path, query).open()))
    assert isinstance(failed, ExpressionFailed)
    assert failed.domain is ErrorDomain.USER
    assert failed.message == "a scalar subquery returned more than one row"
    assert "max()" in failed.hint


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


def test_an_error_of_a_connector_leaves_a_task_unchanged(spark: SparkSession) -> None:
    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            raise ObjectMissing("the piece is gone", hint="not this one")
        except ObjectMissing as error:
            raise SinkError("cannot\ncommit", hint='say "please"', position="row 7") from error
        yield

    with pytest.raises(Exception) as raised:
        spark.range(0, 4, 1, 2).mapInArrow(fail, "id LONG").collect()
    error = translate(raised.value)
    assert type(error) is SinkError
    assert (error.message, error.hint, error.position) == (
        "cannot\ncommit",
        'say "please"',
        "row 7",
    )


def test_a_lost_connection_counts_as_sparks_only_if_it_was_to_spark() -> None:
    with pytest.raises(OSError) as raised, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        socket.create_connection(free.getsockname(), timeout=10)
    assert type(translate(raised.value)) is ConnectionLost
    assert type(translate(Py4JNetworkError("Answer from Java side is empty"))) is SparkGone


@pytest.mark.parametrize(
    "text",
    [
        "Job 17 cancelled because SparkContext was shut down",
        'Cannot invoke "org.apache.spark.scheduler.DAGScheduler.cleanupQueryJobs(long)" because'
        ' the return value of "org.apache.spark.SparkContext.dagScheduler()" is null',
    ],
)
def test_errors_of_calls_during_a_shutdown_of_spark_are_reported_as_spark_gone(text: str) -> None:
    """Which of them comes is a matter of microseconds: these are the texts as they came."""
    assert type(translate(PySparkException(text))) is SparkGone


def test_denied_access_to_storage_is_distinguished_also_in_a_task(spark: SparkSession) -> None:
    """Folders cannot be created in /sys."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ObjectStore("file:///sys/kernel").create("folder/object", b"x")
        yield from batches

    with pytest.raises(StorageError) as here:
        list(write(iter(())))
    with pytest.raises(Exception) as there:
        spark.range(1).mapInArrow(write, "id LONG").collect()
    for raised in (here, there):
        error = translate(raised.value)
        assert type(error) is AccessDenied
        assert error.message.startswith("cannot write file:///sys/kernel/folder/object: ")


def test_an_error_that_is_defined_elsewhere_is_rebuilt_too() -> None:
    text = "".join(traceback.format_exception(SparkGone("gone", hint="wait")))
    read = error_in_traceback(text)
    assert type(read) is SparkGone
    assert (read.message, read.hint) == ("gone", "wait")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (None, SparkGone),
        (1, SparkGone),
        (-6, SparkGone),
        (-9, SparkKilled),
        (143, SparkKilled),
        (52, OutOfMemory),
    ],
)
def test_the_exit_status_explains_why_the_jvm_is_gone(
    status: int | None, kind: type[ResurgenceError]
) -> None:
    assert type(gone(status)) is kind


def test_a_failure_in_our_own_part_of_a_task_is_reported_by_its_last_line(
    spark: SparkSession,
) -> None:
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
