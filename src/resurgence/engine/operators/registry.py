"""The operators, by the kind of their spec."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame

from resurgence.engine.operators.base import Operator, OperatorContext
from resurgence.engine.operators.changelogs.normalise import NormaliseOperator
from resurgence.engine.operators.changelogs.updating import UpdatingOperator
from resurgence.engine.operators.closed_query import ClosedQueryOperator
from resurgence.engine.operators.late_rows import LateRowsOperator
from resurgence.engine.operators.lookup_join import LookupJoinOperator
from resurgence.engine.operators.query import QueryOperator
from resurgence.engine.operators.sink import SinkOperator
from resurgence.engine.operators.source import SourceOperator
from resurgence.engine.operators.union import UnionOperator
from resurgence.engine.operators.windows.window_operator import WindowOperator
from resurgence.graph.specs import OperatorSpec

OPERATORS: dict[str, Any] = {
    "source": SourceOperator,
    "query": QueryOperator,
    "union": UnionOperator,
    "window_aggregate": WindowOperator,
    "late_rows": LateRowsOperator,
    "closed_query": ClosedQueryOperator,
    "updating_query": UpdatingOperator,
    "normalise": NormaliseOperator,
    "lookup_join": LookupJoinOperator,
    "sink": SinkOperator,
}


def make_operator(
    spec: OperatorSpec, inputs: Sequence[DataFrame], context: OperatorContext
) -> Operator:
    """Compile an operator against the columns of its inputs. Raise SqlError if Spark rejects it."""
    operator: Operator = OPERATORS[spec.kind](spec, inputs, context)
    return operator
