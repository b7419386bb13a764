"""Maps errors of Spark's analyzer to positions in the user's SQL."""

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
class SqlFragment:
    """An expression over rows that can be analyzed by itself."""

    rows: DataFrame
    sql: str
    position: Position | None


@contextmanager
def places(
    position: Position | None, parts: Callable[[], Iterable[SqlFragment]] = tuple
) -> Iterator[None]:
    """Raise Spark's analysis errors inside the block as SqlError: at the first part that Spark
    rejects by itself, else at `position`. Without a position, raise the translated error.
    """
    try:
        yield
    except (AnalysisException, ParseException) as error:
        for part in parts():
            _check(part)
        raise _placed(error, position) from error


def _check(part: SqlFragment) -> None:
    try:
        part.rows.selectExpr(f"{part.sql} AS value")
    except (AnalysisException, ParseException) as error:
        raise _placed(error, part.position) from error


def _placed(error: Exception, position: Position | None) -> Exception:
    failure = translate(error)
    if position is None:
        return failure
    return SqlError(failure.message, line=position.line, column=position.column)
