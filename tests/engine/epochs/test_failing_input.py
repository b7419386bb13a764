"""The failing record is found by bisection of the epoch's input."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.engine.epochs.engine import Engine
from resurgence.engine.epochs.failing_input import FailingInput
from resurgence.engine.spark.errors import translate
from resurgence.errors import ExpressionFailed, FunctionFailed, ResurgenceError
from resurgence.ids import OperatorId
from resurgence.state.records import InputRange
from resurgence.udf import load_functions
from tests.engine.harness import Job, sink_table, source_table, write_lines

FUNCTION = """
from resurgence import udf


@udf
def checked(number: int) -> int:
    assert number != 6
    return number
"""
NOW = datetime.now(UTC)
LINE_7 = "table events, after line 6, byte {start}, up to line 7, byte {end}"


def failing(spark: SparkSession, folder: Path, query: str) -> tuple[Engine, ResurgenceError]:
    """An engine whose first epoch, over 10 rows numbered from 0, failed."""
    rows = [
        {"at": f"2024-01-01T00:00:{number:02}", "number": number, "word": str(number)}
        for number in range(10)
    ]
    path = write_lines(folder / "events.json", rows)
    (folder / "functions.py").write_text(FUNCTION)
    sql = source_table(path, "at TIMESTAMP, number BIGINT, word TEXT")
    sql += sink_table(folder / "out", name="out") + f"INSERT INTO out {query}"
    engine = Job(spark, folder, sql, load_functions(folder / "functions.py")).open()
    with pytest.raises(Exception) as raised:
        engine.run_epoch()
    return engine, translate(raised.value)


def position(engine: Engine, failure: ResurgenceError, patience: timedelta) -> str:
    pipeline = engine._pipeline
    (source,) = pipeline.graph.sources()
    planned = pipeline.sources[source.id].plan({"line": 0, "byte": 0}, 10, NOW)
    assert planned is not None
    inputs: dict[OperatorId, InputRange] = {source.id: planned}
    return FailingInput(pipeline, inputs, 0, failure).position(patience)


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("SELECT checked(number) FROM events", FunctionFailed),
        ("SELECT 1 / (number - 6) FROM events WHERE number > 3", ExpressionFailed),
        pytest.param(
            "SELECT tumble(INTERVAL '1 hour') AS w, sum(checked(number)) AS s FROM events GROUP BY w",
            FunctionFailed,
            marks=pytest.mark.long,
        ),
        pytest.param(
            "SELECT a.word FROM events a JOIN (SELECT checked(number) AS k FROM events) b"
            " ON a.number = b.k",
            FunctionFailed,
            marks=pytest.mark.long,
        ),
    ],
    ids=["function", "expression", "inside an aggregate", "before a join"],
)
def test_the_failing_record_is_found(
    spark: SparkSession, tmp_path: Path, query: str, kind: type[ResurgenceError]
) -> None:
    engine, failure = failing(spark, tmp_path, query)
    assert isinstance(failure, kind)
    lines = (tmp_path / "events.json").read_bytes().splitlines(keepends=True)
    start, end = sum(map(len, lines[:6])), sum(map(len, lines[:7]))
    assert position(engine, failure, timedelta(minutes=1)) == LINE_7.format(start=start, end=end)


@pytest.mark.parametrize(
    ("query", "patience"),
    [
        (
            "SELECT tumble(INTERVAL '5 seconds') AS w, 1 / (sum(number) - 10) AS s"
            " FROM events GROUP BY w",
            timedelta(minutes=1),
        ),
        (
            "SELECT tumble(INTERVAL '1 hour') AS w, sum(1000000000000000000 + number) AS s"
            " FROM events GROUP BY w",
            timedelta(minutes=1),
        ),
        ("SELECT checked(number) FROM events", timedelta(0)),
    ],
    ids=["it fails after a window", "it fails over many rows", "there is no time"],
)
def test_without_a_failing_record_the_position_is_the_input_range_of_the_epoch(
    spark: SparkSession, tmp_path: Path, query: str, patience: timedelta
) -> None:
    engine, failure = failing(spark, tmp_path, query)
    size = (tmp_path / "events.json").stat().st_size
    reported = position(engine, failure, patience)
    assert reported == f"table events, after line 0, byte 0, up to line 10, byte {size}"
