"""Collection of operators while statements are compiled: assigns ids, merges equal operators and
removes those that feed no sink.

The id of a window aggregate or a query is a digest of its lineage: its definition and, of all its
upstream operators, the filters and the columns that it needs. So the same query written twice is
one operator, and an edit elsewhere, or of columns that it does not read, changes no id.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from resurgence.errors import SqlError
from resurgence.graph.aggregate_call import AggregateCall
from resurgence.graph.model import Graph
from resurgence.graph.specs import OperatorSpec
from resurgence.graph.specs.base import slug
from resurgence.graph.specs.closed_query import ClosedQuerySpec
from resurgence.graph.specs.late_rows import LateRowsSpec
from resurgence.graph.specs.lookup_join import LookupJoinKind, LookupJoinSpec, LookupSpec
from resurgence.graph.specs.normalise import NormaliseSpec
from resurgence.graph.specs.query import QuerySpec
from resurgence.graph.specs.sink import SinkSpec
from resurgence.graph.specs.source import SourceSpec, WatermarkSpec
from resurgence.graph.specs.union import UnionSpec
from resurgence.graph.specs.updating_query import (
    FirstRows,
    InnerJoin,
    UpdatingInput,
    UpdatingQuerySpec,
)
from resurgence.graph.specs.window_aggregate import AsofSpec, WindowAggregateSpec
from resurgence.graph.values import PLANNED_AT, Column, Expression, Position
from resurgence.ids import OperatorId

if TYPE_CHECKING:
    from resurgence.sql.catalog.relation import Relation
    from resurgence.sql.planner.windows.first_rows import Numbering
    from resurgence.sql.planner.windows.window_call import WindowCall

_PENDING = OperatorId("")


class Operators:
    """The operators created so far, in order of creation: inputs first."""

    def __init__(self) -> None:
        self._operators: dict[OperatorId, OperatorSpec] = {}
        self._digests: dict[OperatorId, str] = {}
        self._sinks: Counter[str] = Counter()
        self.ttl_micros: int | None = None
        """The state TTL of updating queries."""
        self.lateness_micros = 0
        """The allowed lateness of windows."""
        self.diverts_late_rows = False
        """Late rows of windows are written to a table, unchanged and with all their columns."""
        self.windows: list[tuple[OperatorId, Relation]] = []
        """Each event-time window over an append-only input, with its input."""
        self.numberings: dict[OperatorId, Numbering] = {}
        """The updating queries that number the rows of each key, and do nothing else."""

    def source(
        self,
        table: str,
        connector: str,
        options: dict[str, str],
        columns: tuple[Column, ...],
        watermark: WatermarkSpec | None,
        idle_micros: int | None = None,
        max_future_micros: int | None = None,
        keys: tuple[str, ...] = (),
        *,
        is_changelog: bool = False,
    ) -> OperatorId:
        operator_id = OperatorId(f"source-{slug(table)}")
        operator = SourceSpec(
            id=operator_id,
            table=table,
            connector=connector,
            options=options,
            columns=columns,
            watermark=watermark,
            idle_micros=idle_micros,
            max_future_micros=max_future_micros,
            is_changelog=is_changelog,
            keys=keys,
        )
        return self._add(operator)

    def is_source(self, operator_id: OperatorId) -> bool:
        """Return whether an operator reads a table. Its rows can have undeclared columns."""
        return isinstance(self._operators[operator_id], SourceSpec)

    def query(
        self, source: OperatorId, select: tuple[Expression, ...], where: Expression | None = None
    ) -> OperatorId:
        operator = QuerySpec(id=_PENDING, input=source, where=where, select=select)
        return self._add_by_digest("query", operator)

    def window_aggregate(
        self,
        source: OperatorId,
        window: WindowCall,
        keys: tuple[Expression, ...],
        aggregates: tuple[AggregateCall, ...],
    ) -> OperatorId:
        operator = WindowAggregateSpec(
            id=_PENDING,
            input=source,
            window=window.kind,
            width_micros=window.width_micros,
            slide_micros=window.slide_micros,
            offset_micros=window.offset_micros,
            lateness_micros=self.lateness_micros,
            by_processing_time=window.by_processing_time,
            keys=keys,
            aggregates=aggregates,
        )
        return self._add_by_digest("window", operator)

    def asof_join(
        self, source: OperatorId, keys: tuple[Expression, ...], spec: AsofSpec
    ) -> OperatorId:
        operator = WindowAggregateSpec(
            id=_PENDING,
            input=source,
            window="asof",
            width_micros=0,
            lateness_micros=self.lateness_micros,
            keys=keys,
            aggregates=(),
            asof=spec,
        )
        return self._add_by_digest("asof", operator)

    def late_rows(self, source: OperatorId, window: OperatorId) -> OperatorId:
        return self._add_by_digest("late", LateRowsSpec(id=_PENDING, input=source, window=window))

    def union(self, inputs: tuple[OperatorId, ...]) -> OperatorId:
        return self._add_by_digest("union", UnionSpec(id=_PENDING, inputs=inputs))

    def closed_query(
        self, inputs: tuple[OperatorId, ...], sql: str, position: Position
    ) -> OperatorId:
        operator = ClosedQuerySpec(id=_PENDING, inputs=inputs, sql=sql, position=position)
        return self._add_by_digest("closed", operator)

    def updating_query(
        self,
        inputs: tuple[UpdatingInput, ...],
        sql: str,
        position: Position,
        keep_micros: int | None = None,
        aggregates: tuple[AggregateCall, ...] | None = None,
        first_rows: FirstRows | None = None,
        inner_join: InnerJoin | None = None,
    ) -> OperatorId:
        """Add an updating query. It has no TTL if its state expires by event time."""
        if f"`{PLANNED_AT}`" in sql:
            # The query is computed again whenever one of its rows changes.
            raise SqlError(
                "the planning time, as in now(), is not supported in an updating query",
                line=position.line,
                column=position.column,
                hint="Compute it as a column in a subquery of FROM.",
            )
        operator = UpdatingQuerySpec(
            id=_PENDING,
            inputs=inputs,
            sql=sql,
            ttl_micros=self.ttl_micros if keep_micros is None else None,
            keep_micros=keep_micros,
            aggregates=aggregates,
            first_rows=first_rows,
            inner_join=inner_join,
            position=position,
        )
        return self._add_by_digest("updating", operator)

    def normalise(self, source: OperatorId, keys: tuple[str, ...]) -> OperatorId:
        operator = NormaliseSpec(id=_PENDING, input=source, keys=keys)
        return self._add_by_digest("normalise", operator)

    def lookup_join(
        self,
        source: OperatorId,
        table: LookupSpec,
        join: LookupJoinKind,
        on: Expression,
        found: tuple[Expression, ...],
        scalar: Expression | None = None,
    ) -> OperatorId:
        operator = LookupJoinSpec(
            id=_PENDING, input=source, table=table, join=join, on=on, found=found, scalar=scalar
        )
        return self._add_by_digest("lookup", operator)

    def sink(
        self,
        source: OperatorId,
        table: str,
        connector: str,
        options: dict[str, str],
        columns: tuple[Column, ...] | None,
        keys: tuple[str, ...] = (),
        limit: int | None = None,
        *,
        pairs_changes: bool = False,
        guarantee: str | None = None,
    ) -> OperatorId:
        """Add a sink. A second one for the same table gets a number. One with another limit is
        another sink, because it counts its own rows.
        """
        name = slug(table) if limit is None else f"{slug(table)}-limit-{limit}"
        self._sinks[name] += 1
        number = self._sinks[name]
        operator = SinkSpec(
            id=OperatorId(f"sink-{name}" if number == 1 else f"sink-{name}-{number}"),
            input=source,
            table=table,
            connector=connector,
            options=options,
            columns=columns,
            keys=keys,
            pairs_changes=pairs_changes,
            guarantee=guarantee,
            limit=limit,
        )
        return self._add(operator)

    def graph(self) -> Graph:
        """Return the operators that feed a sink, inputs first."""
        everything = Graph(operators=tuple(self._operators.values()))
        needed: set[OperatorId] = set()
        above = {each.id: [*everything.upstream(each.id)] for each in everything.sinks()}
        late = {
            sink: next((each for each in found if isinstance(each, LateRowsSpec)), None)
            for sink, found in above.items()
        }
        # Sinks of late rows come last: they do not keep a window that no other sink needs.
        for sink in sorted(above, key=lambda each: late[each] is not None):
            diverted = late[sink]
            if diverted is None or diverted.window in needed:
                needed.update([sink, *(each.id for each in above[sink])])
        return Graph(operators=tuple(each for each in everything.operators if each.id in needed))

    def _add_by_digest(
        self,
        prefix: str,
        operator: OperatorSpec,
    ) -> OperatorId:
        text = json.dumps(self._lineage(operator, None), sort_keys=True, ensure_ascii=False)
        digest = hashlib.sha256(text.encode()).hexdigest()
        length = 8
        # Two definitions with the same first digits must not become one operator.
        while self._digests.get(OperatorId(f"{prefix}-{digest[:length]}"), digest) != digest:
            length += 8
        operator_id = OperatorId(f"{prefix}-{digest[:length]}")
        self._digests[operator_id] = digest
        return self._add(operator.model_copy(update={"id": operator_id}))

    def _add(self, operator: OperatorSpec) -> OperatorId:
        self._operators.setdefault(operator.id, operator)
        return operator.id

    def _lineage(self, operator: OperatorSpec, needed: set[str] | None) -> list[Any]:
        """Return the definitions that the needed columns, or all if None, are computed from."""
        definition = operator.definition(needed)
        above = (
            self._lineage(self._operators[each], definition.reads) for each in operator.input_ids
        )
        return [*definition.parts, *(part for parts in above for part in parts)]
