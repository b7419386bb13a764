"""Python functions in SQL: their types, their nulls, and what is said when one of them fails."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from pyspark.sql import SparkSession

from resurgence.engine.spark_errors import translate
from resurgence.errors import ErrorDomain, RetryHint
from resurgence.udf import UserFunction, load_functions
from tests.engine.harness import Job, Leg, read_lines, sink_table, source_table, write_lines

COLUMNS = "at TIMESTAMP, number BIGINT, word TEXT, weight INT"
ROWS: list[dict[str, object]] = [
    {"at": "2024-01-01T00:00:00", "number": 1, "word": "ant", "weight": 1},
    {"at": "2024-01-01T00:00:01", "number": None, "word": "bee", "weight": 2},
    {"at": "2024-01-01T00:00:02", "number": 3, "word": None, "weight": None},
    {"at": "2024-01-01T00:00:03", "number": 5, "word": "žába", "weight": 4},
]
FUNCTIONS = """
    from datetime import datetime, timedelta
    from decimal import Decimal

    from resurgence import udaf, udf

    STEP = 1

    @udf
    def double(x: int) -> int:
        return _doubled(x)

    def _doubled(x: int) -> int:
        return 2 * x

    @udf
    def shout(word: str | None, times: int) -> str:
        return "nothing" if word is None else word.upper() + "!" * times

    @udf
    def letters(word: str) -> list[str]:
        return list(word)

    @udf
    def odd(x: int) -> bool | None:
        return None if x == 3 else x % 2 == 1

    @udf
    def later(at: datetime) -> datetime:
        return at + timedelta(seconds=STEP)

    @udaf
    def spread(values: list[int]) -> float | None:
        return float(max(values) - min(values)) if values else None

    @udaf
    def weighted(values: list[int], weights: list[int]) -> int:
        return sum(value * weight for value, weight in zip(values, weights, strict=True))

    @udf
    def careless(x: int) -> int:
        return 10 // (x - 3)

    @udaf
    def strict(values: list[int]) -> int:
        if len(values) > 2:
            raise RuntimeError(f"too many values: {len(values)}")
        return len(values)
"""


@pytest.fixture
def functions(tmp_path: Path) -> dict[str, UserFunction]:
    path = tmp_path / "functions.py"
    path.write_text(dedent(FUNCTIONS))
    return load_functions(path)


def job_of(
    spark: SparkSession, folder: Path, functions: dict[str, UserFunction], query: str
) -> Job:
    path = write_lines(folder / "events.json", ROWS)
    sql = source_table(path, COLUMNS)
    sql += sink_table(folder / "out.json", name="out", connector="single_file")
    return Job(spark, folder, f"{sql}INSERT INTO out {query}", functions)


def test_a_function_of_a_row_sees_values_and_only_the_nulls_it_asks_for(
    spark: SparkSession, tmp_path: Path, functions: dict[str, UserFunction]
) -> None:
    """`double` is the user's here, although Spark has a function of that name."""
    query = (
        "SELECT double(number) AS d, shout(word, 2) AS s, letters(word) AS l, odd(number) AS o,"
        " later(at) AS later FROM events WHERE DOUBLE(weight) > 2 OR weight IS NULL"
    )
    job = job_of(spark, tmp_path, functions, query)
    job.run()
    rows = read_lines(tmp_path / "out.json")
    assert rows == [
        {"d": None, "s": "BEE!!", "l": list("bee"), "o": None, "later": "2024-01-01T00:00:02"},
        {"d": 6, "s": "nothing", "l": None, "o": None, "later": "2024-01-01T00:00:03"},
        {"d": 10, "s": "ŽÁBA!!", "l": list("žába"), "o": True, "later": "2024-01-01T00:00:04"},
    ]


def test_a_function_of_a_group_sees_the_values_of_all_epochs(
    spark: SparkSession, tmp_path: Path, functions: dict[str, UserFunction]
) -> None:
    query = (
        "SELECT tumble(INTERVAL '1 minute') AS w, spread(number) AS all,"
        " spread(number) FILTER (WHERE weight > 9) AS none, weighted(number, weight) AS total,"
        " weighted(number, weight) FILTER (WHERE number > 1) AS big, double(count(*)) AS n"
        " FROM events GROUP BY w"
    )
    job = job_of(spark, tmp_path, functions, query.replace(" AS all", " AS whole"))
    job.run([Leg(1, 2, epochs=1), Leg(1, 3, epochs=1)])
    (row,) = read_lines(tmp_path / "out.json")
    del row["w"]
    assert row == {"whole": 4.0, "none": None, "total": 21, "big": 20, "n": 8}


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "SELECT careless(number) FROM events",
            "function careless failed: ZeroDivisionError: integer division or modulo by zero"
            " (functions.py, line 42: return 10 // (x - 3))",
        ),
        (
            "SELECT tumble(INTERVAL '1 minute') AS w, strict(number) AS n FROM events GROUP BY w",
            "function strict failed: RuntimeError: too many values: 3"
            ' (functions.py, line 47: raise RuntimeError(f"too many values: {len(values)}"))',
        ),
        (
            "SELECT shout(word) FROM events",
            "function shout failed: TypeError:"
            " shout() missing 1 required positional argument: 'times'",
        ),
    ],
)
def test_the_failure_of_a_function_names_it_and_its_line(
    spark: SparkSession,
    tmp_path: Path,
    functions: dict[str, UserFunction],
    query: str,
    message: str,
) -> None:
    engine = job_of(spark, tmp_path, functions, query).open()
    with pytest.raises(Exception) as raised:
        engine.run_epoch()
    error = translate(raised.value)
    assert error.message == message
    assert error.domain is ErrorDomain.USER
    assert error.retry_hint is RetryHint.NO_RETRY
