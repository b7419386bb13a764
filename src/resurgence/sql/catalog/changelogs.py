"""Tables whose records are changes by key: a source, the operator that normalises its records to a
changelog, and the computed columns.
"""

from __future__ import annotations

from resurgence.graph.values import CHANGE, Expression
from resurgence.ids import OperatorId
from resurgence.sql.catalog.table_columns import computed_sql
from resurgence.sql.catalog.tables import Table
from resurgence.sql.planner.operators import Operators


def normalised(table: Table, operators: Operators) -> OperatorId:
    """Return the changelog of the table. Columns are computed after it, because a record can lack
    values. It has no event time, so the source needs no watermark.
    """
    columns, keys = table.columns or (), table.primary_key
    read = tuple(
        each.model_copy(update={"nullable": each.nullable and each.name not in keys})
        for each in columns
        if each.generated is None
    )
    source = operators.source(
        table.name,
        table.connector,
        table.options,
        read,
        None,
        table.idle_micros,
        keys=keys,
        is_changelog=True,
    )
    changes = operators.normalise(source, keys)
    if len(read) == len(columns):
        return changes
    values = tuple(
        Expression(
            name=each.name,
            sql=computed_sql(each) if each.generated else f"`{each.name}`",
            position=each.generated.position if each.generated else None,
        )
        for each in columns
    )
    return operators.query(changes, (*values, Expression(name=CHANGE, sql=f"`{CHANGE}`")))
