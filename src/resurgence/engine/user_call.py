"""What stands around a user's function in a task: nulls kept from it, failures put in its name.

Travels to Python workers, so it imports nothing of Spark.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from resurgence.errors import UserError
from resurgence.udf import FunctionKind, UserFunction


def guarded(function: UserFunction) -> Callable[..., Any]:
    """The function as Spark calls it."""
    name, call, takes_null = function.name, function.call, function.takes_null
    is_scalar = function.kind is FunctionKind.SCALAR

    def called(*values: Any) -> Any:
        if is_scalar and any(
            value is None and not takes for value, takes in zip(values, takes_null, strict=False)
        ):
            return None
        try:
            return call(*values)
        except Exception as error:
            raise UserError(_story(name, call.__code__.co_filename, error)) from error

    return called


def _story(name: str, file: str, error: Exception) -> str:
    """One line: which function, what, and where in the user's file."""
    what = f"{type(error).__name__}: {error}".rstrip(": ").split("\n", 1)[0]
    frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == file]
    where = ""
    if frames:
        text = f": {frames[-1].line}" if frames[-1].line else ""
        where = f" ({Path(file).name}, line {frames[-1].lineno}{text})"
    return f"function {name} failed: {what}{where}"
