"""Finds expressions in which Spark would read the clock, and guards or rejects them.

Spark reads the clock when it casts texts to dates and timestamps (see `clock_free`), even if the
cast is implicit, as in `at > 'now'`. Whether a cast has a text operand is known once Spark has
analyzed the expression over its input types. This happens once, when a pipeline is compiled.
Expressions without such casts stay as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame

from resurgence.engine.functions.clock_free import TIME_ONLY, guarded
from resurgence.errors import SqlError
from resurgence.graph.aggregate_call import AggregateCall
from resurgence.graph.values import Column, Expression, Position

_COLUMN = re.compile(r"`[^`]+`")
_GENERATORS = ("explode(", "explode_outer(")
_SPECIAL = re.compile(r"\s*(now|today|tomorrow|yesterday)\b.*", re.IGNORECASE | re.DOTALL)
_NO_DATE = re.compile(r"\s*(T|\d+:)")
_DATE_TYPES = ("timestamp", "timestamp_ntz", "date")
_PARSERS = {"ParseToTimestamp": "timestamp", "ParseToDate": "date"}
_REPLAY = "a replay would produce different rows"


@dataclass(frozen=True)
class _Fault:
    message: str
    hint: str


def free_columns(columns: tuple[Column, ...], rows: DataFrame) -> tuple[Column, ...]:
    """Return declared columns whose expressions never read the clock. Raise SqlError if one would.
    `rows` is empty and has the columns that they read.
    """
    return tuple(_computed(each, rows) for each in columns)


def refuse_clock_reads(rows: DataFrame, place: Position | None) -> None:
    """Raise SqlError if a query casts texts to timestamps, as a comparison of the two does."""
    plan = json.loads(_analyzed(rows).toJSON())
    for nodes in _expressions(plan):
        for number, node in enumerate(nodes):
            kind = _cast_to(node)
            if kind is None or nodes[number + 1].get("dataType") != "string":
                continue
            operand = nodes[number + 1]
            fault = _TEXT if kind == "timestamp" else None
            if "value" in operand:
                fault = _constant_fault(str(operand["value"]), kind)
            if fault is not None:
                raise _error(fault, place)


def _computed(column: Column, rows: DataFrame) -> Column:
    """Return a computed column, cast to its declared type if it has one."""
    if column.generated is None:
        return column
    sql = column.generated.sql
    cast = column.generated.model_copy(
        update={"sql": f"CAST({sql} AS {column.type})" if column.type else sql}
    )
    (free,) = free_expressions((cast,), rows)
    return column if free == cast else column.model_copy(update={"generated": free})


def free_call(call: AggregateCall, rows: DataFrame) -> AggregateCall:
    """Return an aggregate that never reads the clock. Raise SqlError if it would."""
    parts = tuple(
        Expression(name="value", sql=each, position=call.position) for each in call.expressions
    )
    return call if free_expressions(parts, rows) == parts else call.over(guarded)


def free_expressions(parts: tuple[Expression, ...], rows: DataFrame) -> tuple[Expression, ...]:
    """Return expressions that never read the clock. Raise SqlError if one would."""
    has_text = re.search(r"\b(string|variant)\b", rows.schema.simpleString()) is not None
    candidates = [
        each
        for each in parts
        if (has_text or "'" in each.sql)
        and not _COLUMN.fullmatch(each.sql)
        and not each.sql.startswith(_GENERATORS)
    ]
    faults = _faults(candidates, rows)
    unsafe = [each for each, fault in zip(candidates, faults, strict=True) if fault is not None]
    safe = [each.model_copy(update={"sql": guarded(each.sql)}) for each in unsafe]
    for each, fault in zip(safe, _faults(safe, rows), strict=True):
        if fault is not None:
            raise _error(fault, each.position)
    by_text = {one.sql: other.sql for one, other in zip(unsafe, safe, strict=True)}
    return tuple(
        each.model_copy(update={"sql": by_text[each.sql]}) if each.sql in by_text else each
        for each in parts
    )


def _faults(parts: Sequence[Expression], rows: DataFrame) -> list[_Fault | None]:
    """Return how each expression would read the clock. Errors of Spark are reported elsewhere."""
    if not parts:
        return []
    try:
        plan = _analyzed(rows.selectExpr(*(f"{each.sql} AS value" for each in parts)))
    except (AnalysisException, ParseException):
        return [None] * len(parts)
    expressions = plan.expressions()
    return [_fault_in(expressions.apply(number)) for number in range(len(parts))]


def _fault_in(expression: Any) -> _Fault | None:
    """Return how an analyzed expression of Spark would read the clock."""
    nodes: list[dict[str, Any]] = json.loads(expression.toJSON())
    for place, node in enumerate(nodes):
        kind = _cast_to(node)
        if kind is None or _is_guarded(nodes, place):
            continue
        cast = expression
        for child in _path(nodes, place):
            cast = cast.children().apply(child)
        fault = _cast_fault(cast.children().apply(0), kind)
        if fault is not None:
            return fault
    return None


_TEXT = _Fault(
    f"implicit cast of a text to TIMESTAMP adds today's date if the text has none: {_REPLAY}",
    "Write CAST(text AS TIMESTAMP), which rejects such texts.",
)


def _cast_fault(operand: Any, kind: str) -> _Fault | None:
    type_name = operand.dataType().typeName()
    if type_name == "variant" and kind == "timestamp":
        return _TEXT
    if not type_name.startswith("string"):
        return None
    if operand.foldable():
        return _constant_fault(str(operand.eval(None)), kind)
    return _TEXT if kind == "timestamp" else None


def _constant_fault(text: str, kind: str) -> _Fault | None:
    if _SPECIAL.fullmatch(text):
        message = f"'{text}' as a {kind.upper()} reads the clock: {_REPLAY}"
        return _Fault(message, "Use now() or current_date, which return the epoch's planning time.")
    if kind == "timestamp" and _NO_DATE.match(text):
        message = f"'{text}' has no date, and a cast to TIMESTAMP would add today's: {_REPLAY}"
        return _Fault(message, "Write the date before the time.")
    return None


def _error(fault: _Fault, place: Position | None) -> SqlError:
    place = place or Position(line=1, column=1)
    return SqlError(fault.message, line=place.line, column=place.column, hint=fault.hint)


def _analyzed(rows: DataFrame) -> Any:
    return rows._jdf.queryExecution().analyzed()


def _cast_to(node: dict[str, Any]) -> str | None:
    """Return the type to which a node casts its first child, if such a cast may read the clock."""
    name = str(node["class"]).rpartition(".")[2]
    if name == "Cast":
        return node["dataType"] if node["dataType"] in _DATE_TYPES else None
    # to_timestamp(), to_date(): the optimizer replaces them with a cast.
    return _PARSERS.get(name) if node["num-children"] == 1 else None


def _is_guarded(nodes: list[dict[str, Any]], place: int) -> bool:
    """Return whether the operand of a cast is a guard."""
    pattern = TIME_ONLY.replace("\\\\", "\\")
    return str(nodes[place + 1]["class"]).endswith(".If") and any(
        each.get("value") == pattern for each in nodes[place + 2 :]
    )


def _path(nodes: list[dict[str, Any]], place: int) -> list[int]:
    """Return the child indices from the root to a node, in a tree in preorder."""
    path: list[list[int]] = []
    for node in nodes[:place]:
        path.append([0, int(node["num-children"])])
        while path and path[-1][0] >= path[-1][1]:
            path.pop()
            if path:
                path[-1][0] += 1
    return [index for index, _ in path]


def _expressions(value: Any) -> list[list[dict[str, Any]]]:
    """Return the expressions in a plan: lists of nodes, at any depth."""
    if isinstance(value, list):
        is_tree = bool(value) and all(isinstance(each, dict) and "class" in each for each in value)
        inner = [found for each in value for found in _expressions(each)]
        return [value, *inner] if is_tree else inner
    if isinstance(value, dict):
        return [found for each in value.values() for found in _expressions(each)]
    return []
