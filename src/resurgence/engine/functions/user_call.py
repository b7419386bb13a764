"""Wraps calls of a user's function in a task: null handling, result conversion, error reports.

Runs in Python workers, so it does not import Spark.
"""

from __future__ import annotations

import inspect
import os
import reprlib
import sys
import traceback
from array import array
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import pyarrow as pa

from resurgence.errors import FunctionFailed, OutOfMemory, WrongResult
from resurgence.udf import FunctionKind, UserFunction

_PYTHON_TYPES: dict[str, type] = {
    "BIGINT": int,
    "DOUBLE": float,
    "BOOLEAN": bool,
    "BINARY": bytes,
    "TIMESTAMP": datetime,
    "DATE": date,
    "DECIMAL(38,18)": Decimal,
}
_CAST_BY_ARROW = {"BIGINT": pa.int64(), "DOUBLE": pa.float64(), "BOOLEAN": pa.bool_()}
_LEAST_INT, _MOST_INT = -(2**63), 2**63 - 1
_DECIMAL_END = Decimal(10) ** 20
_LONGEST_MESSAGE = 500
_MOST_FRAMES = 20

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 40
_SHORT.maxlevel = 2
_LONGEST_ARGUMENTS = 160


_CALLERS = (__name__, __name__.replace("user_call", "async_call"))
_exit_process = os._exit


def watch_exits() -> None:
    """Let a function that calls os._exit fail like one that raises. Otherwise Spark would only see
    that the process ended, which is reported as out of memory.
    """
    if os._exit is not _intercept_exit:
        vars(os)["_exit"] = _intercept_exit


def _intercept_exit(status: int) -> NoReturn:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") in _CALLERS:
            raise SystemExit(f"os._exit({status})")
        frame = frame.f_back
    _exit_process(status)


def for_spark(function: UserFunction) -> Callable[..., Any]:
    """Return the function as Spark calls it."""
    call = function.call

    def called(*values: Any) -> Any:
        if None in values and is_null(function, values):
            return None
        watch_exits()
        try:
            value = call(*values)
        except (Exception, SystemExit) as error:
            raise failure(function, values, error) from error
        return converted(function, values, value)

    return called


def is_null(function: UserFunction, values: tuple[Any, ...]) -> bool:
    """Return whether a null argument that the function does not take makes the result null."""
    return function.kind is FunctionKind.SCALAR and any(
        value is None and not takes
        for value, takes in zip(values, function.takes_null, strict=False)
    )


def converted(function: UserFunction, values: tuple[Any, ...], value: Any) -> Any:
    """Convert the function's result for Spark. Raise WrongResult if its type does not match."""
    try:
        return _converted(value, function.result)
    except Exception as error:
        raise WrongResult(
            f"function {as_call(function.name, values)} returned {_short(value)} of type"
            f" {type(value).__name__}, expected {function.result}",
            hint="Return a value of the annotated type, or change the annotation.",
        ) from error


def _converted(value: Any, result: str) -> Any:
    """Return the value in a form that Spark can convert to the SQL type. Raise if there is none:
    Spark converts a batch of values at once, and cannot name the function or the row.
    """
    kind = type(value)
    if kind is _PYTHON_TYPES.get(result):
        if kind is int and not _LEAST_INT <= value <= _MOST_INT:
            raise OverflowError
        if kind is Decimal and not value.is_nan() and abs(value) >= _DECIMAL_END:
            raise OverflowError
        return value
    if value is None or result == "STRING":  # Spark converts any value to text
        return value
    if result.startswith("ARRAY<"):
        if not isinstance(value, list | tuple | array):
            raise TypeError
        return [_converted(each, result[len("ARRAY<") : -1]) for each in value]
    if result == "DOUBLE" and kind is int:
        return float(value)
    if result in _CAST_BY_ARROW:
        return pa.array([value]).cast(_CAST_BY_ARROW[result])[0].as_py()
    if result == "BINARY" and kind is bytearray:
        return bytes(value)
    if not isinstance(value, _PYTHON_TYPES[result]):
        raise TypeError
    return value


def failure(
    function: UserFunction, values: tuple[Any, ...], error: BaseException
) -> FunctionFailed | OutOfMemory:
    """Return the error of a failed call: function, arguments, exception and line of the user's file
    in one line, with the traceback in that file.
    """
    code = getattr(inspect.unwrap(function.call), "__code__", None)
    file = code.co_filename if code is not None else ""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == file]
    where = ""
    if frames:
        text = f": {frames[-1].line}" if frames[-1].line else ""
        where = f" ({Path(file).name}, line {frames[-1].lineno}{text})"
    what = _description(error)
    message = f"function {as_call(function.name, values)} failed: {what.splitlines()[0]}{where}"
    listed = "".join(
        f'  File "{each.filename}", line {each.lineno}, in {each.name}\n    {each.line}\n'
        for each in frames[-_MOST_FRAMES:]
    )
    trace = f"Traceback (most recent call last):\n{listed}{what}" if frames else ""
    if isinstance(error, MemoryError):
        return OutOfMemory(
            message,
            hint="Lower pipeline.epoch_rows, or reduce the memory that the function uses.",
            traceback=trace,
        )
    return FunctionFailed(
        message, hint="Fix the function, then run the job again.", traceback=trace
    )


def _description(error: BaseException) -> str:
    # Its __str__ may be the user's, and may fail.
    try:
        text = str(error)
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text[:_LONGEST_MESSAGE]}".strip(": \n")


def as_call(name: str, values: tuple[Any, ...]) -> str:
    """Return a call as text for messages, shortened if it is long."""
    arguments = ", ".join(map(_short, values))
    if len(arguments) > _LONGEST_ARGUMENTS:
        arguments = arguments[: _LONGEST_ARGUMENTS - 3] + "..."
    return f"{name}({arguments})"


def _short(value: Any) -> str:
    # A datetime is shorter and easier to read as text.
    if isinstance(value, date):
        return str(value)
    try:
        return _SHORT.repr(value).replace("\n", " ")
    except Exception:
        return type(value).__name__
