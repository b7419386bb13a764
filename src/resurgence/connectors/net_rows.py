"""The effect of an epoch's changes on each key: an upsert or a delete."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from resurgence.graph.values import CHANGE

IS_DELETED = "__is_deleted"
"""The column that marks the rows of deleted keys."""


def net_rows(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the newest row of each key: the inserted one, or else the deleted one, marked by
    IS_DELETED.
    """
    names = [each for each in rows.columns if each != CHANGE]
    row = "struct(" + ", ".join(f"`{each}`" for each in names) + ")"
    by_key = rows.groupBy(*(f"`{each}`" for each in keys)).agg(
        F.expr(f"first(IF(`{CHANGE}` > 0, {row}, NULL), true) AS after"),
        F.expr(f"first(IF(`{CHANGE}` < 0, {row}, NULL), true) AS before"),
    )
    newest = by_key.selectExpr(f"after IS NULL AS {IS_DELETED}", "coalesce(after, before) AS row")
    return newest.selectExpr(IS_DELETED, *(f"row.`{each}`" for each in names))
