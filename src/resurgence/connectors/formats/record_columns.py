"""The columns that all readers return, however they parse a record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from resurgence.connectors.contract import RECORD_POSITION
from resurgence.graph.values import Column

NO_METADATA: Mapping[str, SparkColumn] = MappingProxyType({})
RECORD_POSITION_SQL = f"position AS `{RECORD_POSITION}`"


def carried(
    columns: Sequence[Column], metadata: Mapping[str, SparkColumn]
) -> tuple[list[SparkColumn], list[str]]:
    """Return the metadata that a table declares, as expressions over its records, and the names of
    the resulting columns. A reader evaluates the expressions first and keeps the columns.
    """
    declared = [each for each in columns if each.metadata is not None]
    values = [metadata[each.metadata or ""].alias(_carried(each)) for each in declared]
    return values, [f"`{_carried(each)}`" for each in declared]


def declared_values(
    columns: Sequence[Column], inside: Callable[[Column], str]
) -> Iterator[SparkColumn]:
    """Yield the declared columns of a record: its carried metadata, or the SQL that `inside`
    returns.
    """
    for each in columns:
        sql = inside(each) if each.metadata is None else f"`{_carried(each)}`"
        yield F.expr(sql).alias(each.name)


def _carried(column: Column) -> str:
    return f"metadata_{column.name}"
