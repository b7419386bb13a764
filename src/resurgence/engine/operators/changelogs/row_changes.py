"""The difference between rows before and after an epoch, as a changelog."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from resurgence.connectors.exact_rows import ExactRows, quoted
from resurgence.graph.values import CHANGE
from resurgence.spark_plans.projection import Projection

_FORM = "_form"
_ITEM = "__item"


class RowChanges:
    """The retractions and insertions that turn the column `before` into `after`: structs, null
    where there is no row. Nothing is emitted for rows that are equal bit by bit.
    """

    def __init__(self, before: str, after: str, kind: StructType) -> None:
        # Compared in a form in which only identical rows are equal.
        copies = [StructField(f"{side}{_FORM}", kind) for side in (before, after)]
        exact = ExactRows(copies)
        copied = (f"{side} AS {side}{_FORM}" for side in (before, after))
        self._forms = [Projection(before, after, *copied)]
        if exact.forms != exact.names:
            self._forms.append(Projection(before, after, *exact.forms))
        self._differ = f"NOT ({before}{_FORM} <=> {after}{_FORM})"
        retraction = f"named_struct('row', {before}, 'change', -1)"
        insertion = f"named_struct('row', {after}, 'change', 1)"
        both = f"array({retraction}, {insertion})"
        self._items = Projection(
            f"explode(filter({both}, item -> item.row IS NOT NULL)) AS {_ITEM}"
        )
        self._columns = Projection(
            *(f"{_ITEM}.row.{quoted(each.name)} AS {quoted(each.name)}" for each in kind),
            f"{_ITEM}.change AS {CHANGE}",
        )

    def of(self, pairs: DataFrame) -> DataFrame:
        """Return the changes of pairs of rows."""
        for forms in self._forms:
            pairs = forms.of(pairs)
        return self._columns.of(self._items.of(pairs.where(self._differ)))
