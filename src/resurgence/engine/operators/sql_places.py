"""Puts what Spark refuses at its place in the user's SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame

from resurgence.engine.spark.errors import translate
from resurgence.errors import SqlError
from resurgence.graph.values import Position


@dataclass(frozen=True)
class Part:
    """An expression over rows that can be tried by itself."""

    rows: DataFrame
    sql: str
    position: Position | None


@contextmanager
def places(
    position: Position | None, parts: Callable[[], Iterable[Part]] = tuple
) -> Iterator[None]:
    """Raise what Spark refuses inside as an SqlError: at the first of the parts that it refuses by
    itself, else at `position`. Without a position, it is an error without a place.
    """
    try:
        yield
    except (AnalysisException, ParseException) as error:
        for part in parts():
            _try(part)
        raise _placed(error, position) from error


def _try(part: Part) -> None:
    try:
        part.rows.selectExpr(f"{part.sql} AS value")
    except (AnalysisException, ParseException) as error:
        raise _placed(error, part.position) from error


def _placed(error: Exception, position: Position | None) -> Exception:
    failure = translate(error)
    if position is None:
        return failure
    return SqlError(failure.message, line=position.line, column=position.column)
