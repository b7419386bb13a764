"""Python functions in SQL: types, nulls, and error messages."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from pathlib import Path
from textwrap import dedent

import pytest
from pyspark.sql import SparkSession

from resurgence.engine.functions.user_call import for_spark
from resurgence.engine.spark.errors import translate
from resurgence.errors import ErrorDomain, FunctionFailed, RetryHint, WrongResult
from resurgence.udf import UserFunction, load_functions
from tests.engine.harness import (
    Leg,
    query_job,
    read_lines,
)

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


job_of = partial(query_job, columns=COLUMNS, rows=ROWS)


def test_a_scalar_function_receives_nulls_only_if_it_accepts_them(
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


def test_an_aggregate_function_receives_the_values_of_all_epochs(
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
            "function careless(3) failed: ZeroDivisionError: integer division or modulo by zero"
            " (functions.py, line 42: return 10 // (x - 3))",
        ),
        (
            "SELECT tumble(INTERVAL '1 minute') AS w, strict(number) AS n FROM events GROUP BY w",
            "function strict([1, 3, 5]) failed: RuntimeError: too many values: 3"
            ' (functions.py, line 47: raise RuntimeError(f"too many values: {len(values)}"))',
        ),
        (
            "SELECT shout(word) FROM events",
            "function shout('ant') failed: TypeError:"
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
    assert isinstance(error, FunctionFailed)
    assert error.message == message
    assert error.domain is ErrorDomain.USER
    assert error.retry_hint is RetryHint.NO_RETRY
    assert error.traceback.startswith("Traceback") == ("line" in message)


def called(folder: Path, text: str, *values: object) -> object:
    """Call the one function of a file as a task would."""
    path = folder / "one.py"
    path.write_text(dedent(text))
    (function,) = load_functions(path).values()
    return for_spark(function)(*values)


def test_long_arguments_and_messages_are_cut(tmp_path: Path) -> None:
    text = """
        from resurgence import udf

        @udf
        def f(a: str, b: list[int], c: bytes) -> int:
            raise ValueError("y" * 100_000)
    """
    with pytest.raises(FunctionFailed, match=r"function f\('xxx.*\.\.\.x+', \[0, 1,") as raised:
        called(tmp_path, text, "x" * 100_000, list(range(100_000)), b"z" * 100_000)
    assert len(raised.value.message) < 1000
    assert len(raised.value.traceback) < 1000


def test_only_the_users_own_frames_are_shown(tmp_path: Path) -> None:
    """Also of a function in a wrapper, through a library, and with an error that cannot be shown."""
    text = """
        import functools
        import json

        from resurgence import udf

        class Shy(Exception):
            def __str__(self) -> str:
                raise RuntimeError

        def hook(pairs):
            raise Shy

        @udf
        @functools.lru_cache
        def f(text: str) -> int:
            return json.loads(text, object_hook=hook)
    """
    with pytest.raises(FunctionFailed, match=r"^function f\('{}'\) failed: Shy \(one") as raised:
        called(tmp_path, text, "{}")
    path = tmp_path / "one.py"
    assert raised.value.traceback == (
        "Traceback (most recent call last):\n"
        f'  File "{path}", line 17, in f\n'
        "    return json.loads(text, object_hook=hook)\n"
        f'  File "{path}", line 12, in hook\n'
        "    raise Shy\n"
        "Shy"
    )


@pytest.mark.parametrize(
    ("annotation", "value", "result"),
    [
        ("int", "2**63 - 1", 2**63 - 1),
        ("int", "-(2**63)", -(2**63)),
        ("int", "2.0", 2),
        ("int", "True", 1),
        ("int", "'12'", 12),
        ("float", "3", 3.0),
        ("bool", "1", True),
        ("str", "5", 5),  # Spark makes text of it
        ("bytes", "bytearray(b'x')", b"x"),
        ("Decimal", "Decimal('NaN')", None),
        ("list[int]", "[1, None, '3']", [1, None, 3]),
        ("list[list[int]] | None", "None", None),
    ],
)
def test_a_convertible_result_is_converted(
    tmp_path: Path, annotation: str, value: str, result: object
) -> None:
    returned = called(tmp_path, _returning(annotation, value))
    if isinstance(returned, Decimal):
        assert returned.is_nan()
    else:
        assert (returned, type(returned)) == (result, type(result))


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        ("int", "'x'", "returned 'x' of type str, expected BIGINT"),
        ("int", "2**63", "returned 9223372036854775808 of type int, expected BIGINT"),
        ("int", "-(2**63) - 1", "of type int, expected BIGINT"),
        ("int", "2.5", "returned 2.5 of type float, expected BIGINT"),
        ("int", "[1]", r"returned \[1\] of type list, expected BIGINT"),
        ("float", "'many'", "returned 'many' of type str, expected DOUBLE"),
        ("bool", "'maybe'", "of type str, expected BOOLEAN"),
        ("bytes", "'x'", "of type str, expected BINARY"),
        (
            "datetime",
            "date(2024, 1, 1)",
            "returned 2024-01-01 of type date, expected TIMESTAMP",
        ),
        ("date", "'2024-01-01'", "of type str, expected DATE"),
        ("Decimal", "1.5", r"of type float, expected DECIMAL\(38,18\)"),
        ("Decimal", "Decimal(10) ** 20", "of type Decimal, expected DECIMAL"),
        ("list[int]", "5", "of type int, expected ARRAY<BIGINT>"),
        ("list[list[int]]", "[[1], ['x']]", "of type list, expected ARRAY<ARRAY<BIGINT>>"),
    ],
)
def test_a_result_of_another_type_is_refused_in_the_functions_name(
    tmp_path: Path, annotation: str, value: str, message: str
) -> None:
    with pytest.raises(WrongResult, match=rf"^function f\(\) .*{message}"):
        called(tmp_path, _returning(annotation, value))


def _returning(annotation: str, value: str) -> str:
    return f"""
        from datetime import date, datetime
        from decimal import Decimal

        from resurgence import udf

        @udf
        def f() -> {annotation}:
            return {value}
    """
