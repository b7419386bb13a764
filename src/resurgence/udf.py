"""User-defined functions by type annotations: `from resurgence import udf, udaf`.

A module passed with `--udfs` marks its functions. The planner reads their names and kinds; the
engine registers them with Spark, vectorised through Arrow. A function is never called with a null
for an argument that is not annotated `| None`: the result is null then, as in SQL.

A function may be an `async def`: calls for the rows of a batch then overlap, within `CallLimits`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import sys
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, overload

from resurgence.durations import parse_duration
from resurgence.errors import ConfigError

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

_MARK = "__resurgence_function__"
_LIMITS = "__resurgence_limits__"
_TYPES: dict[object, str] = {
    int: "BIGINT",
    float: "DOUBLE",
    str: "STRING",
    bool: "BOOLEAN",
    bytes: "BINARY",
    datetime: "TIMESTAMP",
    date: "DATE",
    Decimal: "DECIMAL(38,18)",
}


class FunctionKind(StrEnum):
    """One value per row, or one per group."""

    SCALAR = "scalar"
    AGGREGATE = "aggregate"


@dataclass(frozen=True)
class CallLimits:
    """The limits on an async function's calls."""

    max_in_flight: int = 100
    """The maximum of concurrent calls in each task."""
    timeout: timedelta = timedelta(seconds=10)
    """A call that takes longer fails."""


@overload
def udf(function: AnyFunction, /) -> AnyFunction: ...
@overload
def udf(
    *, max_in_flight: int = ..., timeout: timedelta | str = ...
) -> Callable[[AnyFunction], AnyFunction]: ...
def udf(function: Any = None, /, **limits: Any) -> Any:
    """Mark a function of one row's values: `@udf def f(x: int) -> int`. The calls of an `async def`
    can be limited: `@udf(max_in_flight=20, timeout="5 seconds")`.
    """
    return _marked(FunctionKind.SCALAR, function, limits)


@overload
def udaf(function: AnyFunction, /) -> AnyFunction: ...
@overload
def udaf(
    *, max_in_flight: int = ..., timeout: timedelta | str = ...
) -> Callable[[AnyFunction], AnyFunction]: ...
def udaf(function: Any = None, /, **limits: Any) -> Any:
    """Mark a function of a group's values: `@udaf def g(values: list[int]) -> float | None`. An
    `async def` takes the same limits as with `udf`.
    """
    return _marked(FunctionKind.AGGREGATE, function, limits)


def _marked(kind: FunctionKind, function: Any, limits: dict[str, Any]) -> Any:
    def mark(marked: AnyFunction) -> AnyFunction:
        setattr(marked, _MARK, kind)
        setattr(marked, _LIMITS, limits)
        return marked

    return mark if function is None else mark(function)


@dataclass(frozen=True)
class UserFunction:
    """A marked function with its types as Spark SQL."""

    name: str
    kind: FunctionKind
    call: Callable[..., Any]
    result: str
    takes_null: tuple[bool, ...]
    limits: CallLimits | None = None
    """Set if it is an `async def`."""


def registered_name(name: str) -> str:
    """Return the name under which a user's function is registered in Spark. It cannot be confused
    with one of Spark's own.
    """
    return f"resurgence_udf_{name}"


def load_functions(path: Path | None) -> dict[str, UserFunction]:
    """Return the marked functions of a Python file, by name."""
    if path is None:
        return {}
    name = f"resurgence_udfs_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigError(
            f"cannot load functions from {path}", hint="Pass a Python file with --udfs."
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(
            f"cannot load functions from {path}: {type(error).__name__}: {error}"
        ) from error
    marked = [each for each in vars(module).values() if callable(each) and hasattr(each, _MARK)]
    return {each.__name__: _described(each, path) for each in marked}


def _described(function: Callable[..., Any], path: Path) -> UserFunction:
    where = f"{function.__name__} in {path}"
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError) as error:
        raise ConfigError(f"{where}: an annotation cannot be resolved: {error}") from error
    if "return" not in hints:
        raise ConfigError(
            f"{where} has no return annotation", hint="Write it as in `def f(x: int) -> int`."
        )
    result = hints.pop("return")
    bare = [each for each in inspect.signature(function).parameters if each not in hints]
    if bare:
        raise ConfigError(
            f"{where}: parameter {bare[0]} has no annotation",
            hint="Write it as in `def f(x: int) -> int`.",
        )
    kind = getattr(function, _MARK)
    if kind is FunctionKind.AGGREGATE and not all(
        get_origin(each) is list for each in hints.values()
    ):
        raise ConfigError(
            f"{where}: the parameters of an aggregate function must be lists",
            hint="Write it as in `def g(values: list[int]) -> int`.",
        )
    return UserFunction(
        name=function.__name__,
        kind=kind,
        call=function,
        result=annotated_type(result, where),
        takes_null=tuple(_is_optional(each) for each in hints.values()),
        limits=_limits(function, where),
    )


def _limits(function: Callable[..., Any], where: str) -> CallLimits | None:
    limits = getattr(function, _LIMITS)
    if not inspect.iscoroutinefunction(inspect.unwrap(function)):
        if limits:
            raise ConfigError(
                f"{where}: {' and '.join(limits)} can only be set on an async function",
                hint="Write it as `async def`, or remove the limit.",
            )
        return None
    if not inspect.signature(function).parameters:
        raise ConfigError(
            f"{where}: an async function must have at least one parameter",
            hint="Write it as in `async def f(x: int) -> int`.",
        )
    if unknown := sorted(limits.keys() - vars(CallLimits()).keys()):
        raise ConfigError(
            f"{where}: limit '{unknown[0]}' does not exist",
            hint="Use max_in_flight and timeout.",
        )
    most = limits.get("max_in_flight", CallLimits.max_in_flight)
    if not isinstance(most, int) or most < 1:
        raise ConfigError(f"{where}: max_in_flight must be a number above 0, but is {most!r}")
    return CallLimits(most, _timeout(limits.get("timeout", CallLimits.timeout), where))


def _timeout(value: object, where: str) -> timedelta:
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = parse_duration(value)
    if not isinstance(value, timedelta) or value <= timedelta(0):
        raise ConfigError(
            f"{where}: timeout must be a positive duration, but is {value!r}",
            hint="Write it as in timeout='10 seconds', or pass a timedelta.",
        )
    return value


def annotated_type(annotation: object, where: str) -> str:
    """Return the Spark SQL type of a Python annotation. Raise ConfigError if it has none."""
    if _is_optional(annotation):
        inner = [each for each in get_args(annotation) if each is not type(None)]
        if len(inner) == 1:
            return annotated_type(inner[0], where)
    if get_origin(annotation) is list:
        return f"ARRAY<{annotated_type(get_args(annotation)[0], where)}>"
    if annotation in _TYPES:
        return _TYPES[annotation]
    known = "int, float, str, bool, bytes, datetime, date, Decimal, list[...] or ... | None"
    raise ConfigError(f"{where}: the annotation {annotation} has no SQL type", hint=f"Use {known}.")


def _is_optional(annotation: object) -> bool:
    return get_origin(annotation) in (typing.Union, types.UnionType) and type(None) in get_args(
        annotation
    )
