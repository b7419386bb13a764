"""The changelog of files that were replaced: a row that was only copied from one to another is no
change.

Copy-on-write replaces whole files. So most rows of a removed file are rows of an added one, too. They
are cancelled, row by row: what is left has the positions that it has in its files.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from resurgence.connectors.exact_rows import ExactRows
from resurgence.graph.values import CHANGE

_ROW, _INSERTS, _DELETES, _PLACE = "__row_form", "__inserts", "__deletes", "__place"


def without_carried(rows: DataFrame, group: str, columns: Sequence[str], order: str) -> DataFrame:
    """Return rows with CHANGE without those that are both inserted and deleted in a group, such as a
    snapshot. Two rows are the same if these columns are. `order` is an SQL text that is another for
    each of them, so that the result is the same whenever it is computed.
    """
    exact = ExactRows(each for each in rows.schema if each.name in columns)
    same = Window.partitionBy(group, _ROW)
    counted = (
        rows.selectExpr("*", f"struct({', '.join(exact.forms)}) AS {_ROW}")
        .withColumn(_INSERTS, F.sum(F.expr(f"IF({CHANGE} > 0, 1, 0)")).over(same))
        .withColumn(_DELETES, F.sum(F.expr(f"IF({CHANGE} < 0, 1, 0)")).over(same))
        .withColumn(
            _PLACE,
            F.row_number().over(Window.partitionBy(group, _ROW, CHANGE).orderBy(F.expr(order))),
        )
    )
    is_left = f"{_PLACE} > IF({CHANGE} > 0, {_DELETES}, {_INSERTS})"
    return counted.where(is_left).drop(_ROW, _INSERTS, _DELETES, _PLACE)
