"""The difference between rows before and after an epoch, as a changelog."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from resurgence.connectors.exact_rows import ExactRows, quoted
from resurgence.graph.values import CHANGE

_FORM = "_form"
_ITEM = "__item"


def changed_rows(pairs: DataFrame, before: str, after: str) -> DataFrame:
    """Return the retractions and insertions that turn the column `before` into `after`: structs,
    null where there is no row. Nothing is returned for rows that are equal bit by bit.
    """
    kind = pairs.schema[after].dataType
    assert isinstance(kind, StructType)
    # Compared in a form in which only identical rows are equal.
    copies = [StructField(f"{side}{_FORM}", kind) for side in (before, after)]
    changed = (
        pairs.selectExpr(before, after, *(f"{side} AS {side}{_FORM}" for side in (before, after)))
        .selectExpr(before, after, *ExactRows(copies).forms)
        .where(f"NOT ({before}{_FORM} <=> {after}{_FORM})")
    )
    retraction = f"named_struct('row', {before}, 'change', -1)"
    insertion = f"named_struct('row', {after}, 'change', 1)"
    both = f"array({retraction}, {insertion})"
    return changed.selectExpr(
        f"explode(filter({both}, item -> item.row IS NOT NULL)) AS {_ITEM}"
    ).selectExpr(
        *(f"{_ITEM}.row.{quoted(each.name)} AS {quoted(each.name)}" for each in kind),
        f"{_ITEM}.change AS {CHANGE}",
    )
