"""User-defined functions: types from annotations, and clear errors about unsupported ones."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from resurgence.errors import ConfigError
from resurgence.udf import CallLimits, FunctionKind, UserFunction, annotated_type, load_functions

Load = Callable[[str], dict[str, UserFunction]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Loads the functions of a module's text."""

    def run(text: str) -> dict[str, UserFunction]:
        path = tmp_path / "functions.py"
        path.write_text(f"from resurgence import udaf, udf\n{text}")
        return load_functions(path)

    return run


@pytest.mark.parametrize(
    ("annotation", "sql"),
    [
        (int, "BIGINT"),
        (float, "DOUBLE"),
        (str, "STRING"),
        (bool, "BOOLEAN"),
        (bytes, "BINARY"),
        (datetime, "TIMESTAMP"),
        (date, "DATE"),
        (Decimal, "DECIMAL(38,18)"),
        (int | None, "BIGINT"),
        (list[int], "ARRAY<BIGINT>"),
        (list[list[str]], "ARRAY<ARRAY<STRING>>"),
        (list[float | None] | None, "ARRAY<DOUBLE>"),
    ],
)
def test_annotations_become_sql_types(annotation: object, sql: str) -> None:
    assert annotated_type(annotation, "f") == sql


@pytest.mark.parametrize(
    "annotation", [dict[str, int], list, object, None, int | str, int | str | None, "int"]
)
def test_an_annotation_without_a_sql_type_is_refused(annotation: object) -> None:
    with pytest.raises(ConfigError, match=r"f: the annotation .* has no SQL type") as caught:
        annotated_type(annotation, "f")
    assert caught.value.hint.startswith("Use int, float")


def test_marked_functions_are_found_with_kind_types_and_nulls(load: Load) -> None:
    functions = load(
        """
@udf
def double(x: int, y: str | None) -> int | None: return 2 * x
@udaf
def middle(values: list[float]) -> float | None: return values[0]
def not_marked(x): return x
"""
    )
    assert set(functions) == {"double", "middle"}
    double, middle = functions["double"], functions["middle"]
    assert (double.kind, double.result) == (FunctionKind.SCALAR, "BIGINT")
    assert double.takes_null == (False, True)
    assert double.call(4, None) == 8
    assert (middle.kind, middle.result) == (FunctionKind.AGGREGATE, "DOUBLE")


@pytest.mark.parametrize(
    ("mark", "limits"),
    [
        ("@udf", CallLimits(100, timedelta(seconds=10))),
        ("@udf()", CallLimits(100, timedelta(seconds=10))),
        ("@udf(max_in_flight=7)", CallLimits(7, timedelta(seconds=10))),
        ("@udf(timeout='1.5 seconds')", CallLimits(100, timedelta(seconds=1.5))),
        ("@udf(timeout='2m')", CallLimits(100, timedelta(minutes=2))),
        ("@udf(timeout='1 hour')", CallLimits(100, timedelta(hours=1))),
        ("@udf(timeout=timedelta(milliseconds=5))", CallLimits(100, timedelta(milliseconds=5))),
    ],
)
def test_an_async_function_has_limits(load: Load, mark: str, limits: CallLimits) -> None:
    text = f"from datetime import timedelta\n{mark}\nasync def f(x: int) -> str: return str(x)"
    function = load(text)["f"]
    assert (function.limits, function.result) == (limits, "STRING")
    assert load("@udf\ndef g(x: int) -> str: return str(x)")["g"].limits is None


def test_annotations_may_be_text(load: Load) -> None:
    functions = load("@udf\ndef f(x: 'int | None') -> 'list[str]': return []")
    assert functions["f"].result == "ARRAY<STRING>"
    assert functions["f"].takes_null == (True,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@udf\ndef f(x: int): return x", "f in .* has no return annotation"),
        (
            "@udf\ndef f(x, y: int | None) -> int: return 1",
            "f in .*: parameter x has no annotation",
        ),
        ("@udf\ndef f(x: int) -> dict: return {}", "has no SQL type"),
        ("@udf\ndef f(x: 'Unheard') -> int: return x", "an annotation cannot be resolved"),
        ("@udf\nasync def f() -> int: return 1", "f in .*: an async function must have at least"),
        (
            "@udf(timeout='1s')\ndef f(x: int) -> int: return x",
            "timeout can only be set on an async",
        ),
        ("@udf(timeout='soon')\nasync def f(x: int) -> int: return x", "timeout .* but is 'soon'"),
        ("@udf(timeout='0s')\nasync def f(x: int) -> int: return x", "must be a positive duration"),
        ("@udf(max_in_flight=0)\nasync def f(x: int) -> int: return x", "must be a number above 0"),
        ("@udf(limit=1)\nasync def f(x: int) -> int: return x", "limit 'limit' does not exist"),
        ("1 / 0", "cannot load functions from .*: ZeroDivisionError: division by zero"),
        ("def f(:", "cannot load functions from .*: SyntaxError"),
        ("import no_such_module", "cannot load functions from .*: ModuleNotFoundError"),
    ],
)
def test_a_module_that_cannot_be_used_is_refused(load: Load, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(text)


@pytest.mark.parametrize("name", ["missing.py", "folder", "functions.txt"])
def test_a_file_that_is_no_python_module_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "functions.txt").write_text("")
    with pytest.raises(ConfigError, match="cannot load functions from") as caught:
        load_functions(tmp_path / name)
    assert "Pass a Python file with --udfs" in caught.value.hint


def test_no_file_means_no_functions() -> None:
    assert load_functions(None) == {}
