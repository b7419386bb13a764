"""Async functions in SQL: calls overlap, results are in order, concurrency and duration are
bounded.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from textwrap import dedent

import pytest
from pyspark.sql import SparkSession

from resurgence.engine.functions.async_call import answers
from resurgence.engine.spark.errors import translate
from resurgence.errors import (
    ErrorDomain,
    FunctionFailed,
    FunctionTimedOut,
    ResurgenceError,
    RetryHint,
    WrongResult,
)
from resurgence.udf import UserFunction, load_functions
from tests.engine.harness import query_job, read_lines

FUNCTIONS = """
    import asyncio
    from datetime import datetime, timedelta

    from resurgence import udaf, udf

    calls = {"now": 0, "most": 0}

    async def slowly():
        calls["now"] += 1
        calls["most"] = max(calls["most"], calls["now"])
        await asyncio.sleep(0.02)
        calls["now"] -= 1

    @udf(max_in_flight=3, timeout="30 seconds")
    async def most_at_once(x: int) -> int:
        await slowly()
        return calls["most"]

    @udf
    async def countdown(x: int) -> str:
        await asyncio.sleep(0.05 / x)
        return f"{x}!"

    @udf
    async def later(at: datetime, label: str | None) -> datetime:
        await asyncio.sleep(0)
        return at + timedelta(seconds=1 if label is None else 2)

    @udf
    async def letters(word: str) -> list[str]:
        await asyncio.sleep(0)
        return list(word)

    @udf
    def double(x: int) -> int:
        return 2 * x

    @udaf
    async def spread(values: list[int]) -> int:
        await asyncio.sleep(0)
        return max(values) - min(values)

    @udf
    async def careless(x: int) -> int:
        await asyncio.sleep(0)
        return 10 // (x - 3)

    @udf(timeout="100 ms")
    async def stuck(x: int) -> int:
        if x == 3:
            await asyncio.Event().wait()
        return x
"""
COLUMNS = "at TIMESTAMP, number BIGINT, word TEXT"
ROWS: list[dict[str, object]] = [
    {"at": f"2024-01-01T00:00:0{number}", "number": number or None, "word": word}
    for number, word in enumerate(["ant", None, "bee", "cow", None, "žába"])
]


job_of = partial(query_job, columns=COLUMNS, rows=ROWS)


def one(folder: Path, text: str) -> UserFunction:
    """The one function of a file."""
    path = folder / "one.py"
    path.write_text("import asyncio\nfrom resurgence import udf\n" + dedent(text))
    (function,) = load_functions(path).values()
    return function


def rows(count: int) -> list[tuple[int]]:
    return [(number,) for number in range(1, count + 1)]


# -------------------------------------------------------------------- in a job


def test_an_async_function_returns_the_values_of_a_plain_one(
    spark: SparkSession, tmp_path: Path, functions: dict[str, UserFunction]
) -> None:
    """Alone, inside a plain function and around one."""
    query = (
        "SELECT number, countdown(number) AS c, later(at, word) AS t, letters(word) AS l,"
        " countdown(double(number)) AS cd, double(careless(number + 3)) AS dc FROM events"
        " WHERE countdown(number) <> '5!'"
    )
    job_of(spark, tmp_path, functions, query).run()
    rows = read_lines(tmp_path / "out.json")
    at = "2024-01-01T00:00:0"
    assert rows == [
        {"number": 1, "c": "1!", "t": f"{at}2", "l": None, "cd": "2!", "dc": 20},
        {"number": 2, "c": "2!", "t": f"{at}4", "l": list("bee"), "cd": "4!", "dc": 10},
        {"number": 3, "c": "3!", "t": f"{at}5", "l": list("cow"), "cd": "6!", "dc": 6},
        {"number": 4, "c": "4!", "t": f"{at}5", "l": None, "cd": "8!", "dc": 4},
    ]


def test_calls_of_a_task_overlap_up_to_the_limit(
    spark: SparkSession, tmp_path: Path, functions: dict[str, UserFunction]
) -> None:
    job_of(spark, tmp_path, functions, "SELECT most_at_once(number) AS most FROM events").run()
    assert [each["most"] for each in read_lines(tmp_path / "out.json")][-1] == 3


def test_an_aggregate_may_be_async(
    spark: SparkSession, tmp_path: Path, functions: dict[str, UserFunction]
) -> None:
    query = "SELECT spread(number) AS s FROM events GROUP BY tumble(INTERVAL '1 minute')"
    job_of(spark, tmp_path, functions, query).run()
    assert read_lines(tmp_path / "out.json") == [{"s": 4}]


@pytest.mark.parametrize(
    ("call", "message", "kind"),
    [
        (
            "careless(number)",
            "function careless(3) failed: ZeroDivisionError: integer division or modulo by zero"
            " (functions.py, line 47: return 10 // (x - 3))",
            FunctionFailed,
        ),
        ("stuck(number)", "function stuck(3) timed out after 0.1 s", FunctionTimedOut),
    ],
)
def test_the_failure_of_a_call_names_function_row_and_line(
    spark: SparkSession,
    tmp_path: Path,
    functions: dict[str, UserFunction],
    call: str,
    message: str,
    kind: type[ResurgenceError],
) -> None:
    engine = job_of(spark, tmp_path, functions, f"SELECT {call} FROM events").open()
    with pytest.raises(Exception) as raised:
        engine.run_epoch()
    error = translate(raised.value)
    assert type(error) is kind
    assert error.message == message
    assert error.traceback.startswith("Traceback") == ("line" in message)
    assert "after line 3, " in engine.locate(error, timedelta(seconds=30))


# -------------------------------------------------------------------- the calls of a batch


def test_results_are_in_the_order_of_the_rows_whichever_call_ends_first(tmp_path: Path) -> None:
    text = """
        ended = []

        @udf
        async def f(x: int) -> str:
            await asyncio.sleep(0.2 / x)
            ended.append(x)
            return str(ended[0])
    """
    function = one(tmp_path, text)
    assert answers(function, rows(5)) == ["5"] * 5
    text = text.replace("str(ended[0])", "str(x)")
    assert answers(one(tmp_path, text), rows(5)) == ["1", "2", "3", "4", "5"]


def test_concurrent_calls_are_bounded_by_the_limit(tmp_path: Path) -> None:
    """Each waits until four of them have met: with fewer at once, none would ever go on."""
    text = """
        calls, meeting = {"now": 0, "most": 0}, asyncio.Barrier(4)

        @udf(max_in_flight=4)
        async def f(x: int) -> int:
            calls["now"] += 1
            calls["most"] = max(calls["most"], calls["now"])
            await asyncio.sleep(0.01)
            await meeting.wait()
            calls["now"] -= 1
            return calls["most"]
    """
    assert set(answers(one(tmp_path, text), rows(40))) == {4}


def test_nulls_are_not_passed_to_a_function_that_does_not_accept_them(tmp_path: Path) -> None:
    text = """
        @udf
        async def f(x: int, y: int | None) -> int:
            return x + (y or 100)
    """
    assert answers(one(tmp_path, text), [(None, 1), (1, None), (2, 3)]) == [None, 101, 5]


def test_batches_share_one_event_loop(tmp_path: Path) -> None:
    text = """
        loops = set()

        @udf
        async def f(x: int) -> int:
            loops.add(asyncio.get_running_loop())
            return len(loops)
    """
    function = one(tmp_path, text)
    assert answers(function, rows(2)) + answers(function, rows(2)) == [1, 1, 1, 1]


def test_the_first_failure_cancels_the_remaining_calls(tmp_path: Path) -> None:
    text = """
        cancelled = []

        @udf(timeout="1 hour")
        async def f(x: int) -> list[int]:
            if x == 3:
                await asyncio.sleep(0)
                raise ValueError("three")
            if x > 100:
                return sorted(cancelled)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(x)
                raise
    """
    function = one(tmp_path, text)
    with pytest.raises(FunctionFailed, match=r"function f\(3\) failed: ValueError: three"):
        answers(function, rows(4))
    assert answers(function, [(101,)]) == [[1, 2, 4]]


def test_a_call_that_ignores_its_cancellation_is_abandoned(tmp_path: Path) -> None:
    text = """
        @udf(timeout="50ms")
        async def f(x: int) -> int:
            while x == 1:
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    pass
            return x
    """
    function = one(tmp_path, text)
    with pytest.raises(FunctionTimedOut, match=r"^function f\(1\) timed out after 0.05 s"):
        answers(function, rows(2))
    assert answers(function, [(2,)]) == [2]


def test_calls_that_block_the_event_loop_are_detected(tmp_path: Path) -> None:
    text = """
        import time

        @udf(timeout="1 ms", max_in_flight=2)
        async def f(x: int) -> int:
            time.sleep(0.1)
            return x
    """
    with pytest.raises(FunctionTimedOut, match="was not called in time"):
        answers(one(tmp_path, text), rows(60))


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        ("raise SystemExit(3)", FunctionFailed, "failed: SystemExit: 3"),
        ("raise asyncio.CancelledError", FunctionFailed, "failed: CancelledError: the call was"),
        ("return 'many'", WrongResult, "returned 'many' of type str, expected BIGINT"),
    ],
)
def test_every_failure_of_a_call_names_the_function(
    tmp_path: Path, body: str, kind: type[FunctionFailed], message: str
) -> None:
    text = f"""
        @udf
        async def f(x: int) -> int:
            {body}
    """
    with pytest.raises(kind, match=rf"^function f\(1\) {message}"):
        answers(one(tmp_path, text), rows(1))


def test_a_timeout_of_a_call_is_retried_as_an_external_failure(
    tmp_path: Path,
) -> None:
    text = """
        @udf(timeout="10 ms")
        async def f(x: int) -> int:
            await asyncio.Event().wait()
    """
    with pytest.raises(FunctionTimedOut) as raised:
        answers(one(tmp_path, text), rows(1))
    assert raised.value.domain is ErrorDomain.EXTERNAL
    assert raised.value.retry_hint is RetryHint.WITH_BACKOFF


def test_no_rows_need_no_call(tmp_path: Path) -> None:
    text = """
        @udf
        async def f(x: int) -> int:
            return x
    """
    assert answers(one(tmp_path, text), []) == []
