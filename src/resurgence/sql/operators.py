"""Collects operators while statements are read: gives ids, shares what is equal, drops what no sink
needs.

The id of a window aggregate or a query is a digest of its definition and of all that feeds it,
without positions. So the same query written twice is one operator, and an edit elsewhere in the
file changes no id.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from typing import Any

from resurgence.graph.model import (
    AggregateCall,
    Column,
    Expression,
    Graph,
    Operator,
    QueryOperator,
    SinkOperator,
    SourceOperator,
    WatermarkSpec,
    WindowAggregateOperator,
)
from resurgence.ids import OperatorId

_PENDING = OperatorId("")


def slug(table: str) -> str:
    """A table's name as part of an operator's id."""
    return re.sub(r"[^a-z0-9_]", "_", table.lower())


class Operators:
    """The operators made so far, in the order in which they were made: inputs first."""

    def __init__(self) -> None:
        self._operators: dict[OperatorId, Operator] = {}
        self._digests: dict[OperatorId, str] = {}
        self._sinks: Counter[str] = Counter()

    def source(
        self,
        table: str,
        connector: str,
        options: dict[str, str],
        columns: tuple[Column, ...],
        watermark: WatermarkSpec | None,
    ) -> OperatorId:
        operator_id = OperatorId(f"source-{slug(table)}")
        operator = SourceOperator(
            id=operator_id,
            table=table,
            connector=connector,
            options=options,
            columns=columns,
            watermark=watermark,
        )
        return self._add(operator, _digest(operator, ""))

    def query(
        self, source: OperatorId, select: tuple[Expression, ...], where: Expression | None = None
    ) -> OperatorId:
        operator = QueryOperator(id=_PENDING, input=source, where=where, select=select)
        return self._add_by_digest("query", operator)

    def window_aggregate(
        self,
        source: OperatorId,
        width_micros: int,
        keys: tuple[Expression, ...],
        aggregates: tuple[AggregateCall, ...],
    ) -> OperatorId:
        operator = WindowAggregateOperator(
            id=_PENDING, input=source, width_micros=width_micros, keys=keys, aggregates=aggregates
        )
        return self._add_by_digest("window", operator)

    def sink(
        self,
        source: OperatorId,
        table: str,
        connector: str,
        options: dict[str, str],
        columns: tuple[Column, ...] | None,
    ) -> OperatorId:
        """A new sink operator; a second one for the same table gets a number."""
        name = slug(table)
        self._sinks[name] += 1
        number = self._sinks[name]
        operator = SinkOperator(
            id=OperatorId(f"sink-{name}" if number == 1 else f"sink-{name}-{number}"),
            input=source,
            table=table,
            connector=connector,
            options=options,
            columns=columns,
        )
        return self._add(operator, _digest(operator, self._digests[source]))

    def graph(self) -> Graph:
        """What the sinks need, inputs first."""
        everything = Graph(operators=tuple(self._operators.values()))
        needed: set[OperatorId] = set()
        for sink in everything.sinks():
            needed.update([sink.id, *(each.id for each in everything.upstream(sink.id))])
        return Graph(operators=tuple(each for each in everything.operators if each.id in needed))

    def _add_by_digest(
        self, prefix: str, operator: QueryOperator | WindowAggregateOperator
    ) -> OperatorId:
        digest = _digest(operator, self._digests[operator.input])
        length = 8
        # Two definitions with the same first digits must not become one operator.
        while self._digests.get(OperatorId(f"{prefix}-{digest[:length]}"), digest) != digest:
            length += 8
        operator_id = OperatorId(f"{prefix}-{digest[:length]}")
        return self._add(operator.model_copy(update={"id": operator_id}), digest)

    def _add(self, operator: Operator, digest: str) -> OperatorId:
        self._operators.setdefault(operator.id, operator)
        self._digests[operator.id] = digest
        return operator.id


def _digest(operator: Operator, upstream: str) -> str:
    definition = _without_positions(operator.model_dump(mode="json", exclude={"id", "input"}))
    text = json.dumps([definition, upstream], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _without_positions(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_positions(each) for key, each in value.items() if key != "position"}
    if isinstance(value, list):
        return [_without_positions(each) for each in value]
    return value
