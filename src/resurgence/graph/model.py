"""The compiled dataflow: immutable specs of operators, connected by id.

It does not depend on Spark, storage or the parser. `specs` has a module for each operator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TypeVar

from resurgence.config import OnError
from resurgence.graph.specs import OperatorSpec
from resurgence.graph.specs.base import Spec
from resurgence.graph.specs.lookup_join import LookupJoinSpec, LookupSpec
from resurgence.graph.specs.query import QuerySpec
from resurgence.graph.specs.sink import SinkSpec
from resurgence.graph.specs.source import SourceSpec
from resurgence.graph.specs.window_aggregate import WINDOW_KINDS, WindowAggregateSpec
from resurgence.graph.values import Value
from resurgence.ids import OperatorId

S = TypeVar("S", bound=Spec)


def _is_by_processing_time(operator: OperatorSpec) -> bool:
    return isinstance(operator, WindowAggregateSpec) and operator.by_processing_time


class Graph(Value):
    """Operators in topological order: inputs first."""

    operators: tuple[OperatorSpec, ...]
    on_error: OnError | None = None
    """What happens to rows on which an epoch fails; None: as in the settings."""

    def operator(self, operator_id: OperatorId) -> OperatorSpec:
        """Return the operator with this id."""
        return next(each for each in self.operators if each.id == operator_id)

    def all_of(self, kind: type[S]) -> tuple[S, ...]:
        """Return the operators of a kind."""
        return tuple(each for each in self.operators if isinstance(each, kind))

    def sources(self) -> tuple[SourceSpec, ...]:
        return self.all_of(SourceSpec)

    def sinks(self) -> tuple[SinkSpec, ...]:
        return self.all_of(SinkSpec)

    def window_aggregates(self) -> tuple[WindowAggregateSpec, ...]:
        return self.all_of(WindowAggregateSpec)

    def lookup_tables(self) -> tuple[LookupSpec, ...]:
        """Return the distinct lookup tables."""
        return tuple({each.table.name: each.table for each in self.all_of(LookupJoinSpec)}.values())

    def durable(self) -> tuple[OperatorSpec, ...]:
        """Return the operators that write to checkpoints."""
        return tuple(each for each in self.operators if each.is_durable)

    def upstream(self, operator_id: OperatorId) -> Iterator[OperatorSpec]:
        """Yield the operators that feed this one, each once, nearest first."""
        seen = {operator_id}
        waiting = deque(self.operator(operator_id).input_ids)
        while waiting:
            current = waiting.popleft()
            if current not in seen:
                seen.add(current)
                operator = self.operator(current)
                yield operator
                waiting.extend(operator.input_ids)

    def has_one_reader(self, operator_id: OperatorId) -> bool:
        """Return whether one sink alone reads the rows of an operator, directly or through filters
        and projections. So one Spark job reads them, each row once.
        """
        readers = [each for each in self.operators if operator_id in each.input_ids]
        if len(readers) != 1:
            return False
        (reader,) = readers
        if isinstance(reader, QuerySpec):
            return self.has_one_reader(reader.id)
        return isinstance(reader, SinkSpec)

    def reads_changes(self, operator_id: OperatorId) -> bool:
        """Return whether this operator reads unconsolidated changes of a source: a row can be
        inserted and deleted, or deleted and inserted, in one epoch.
        """
        for each in map(self.operator, self.operator(operator_id).input_ids):
            if isinstance(each, SourceSpec) and each.is_updating:
                return True
            if each.is_transparent and self.reads_changes(each.id):
                return True
        return False

    def sources_of(self, operator_id: OperatorId) -> tuple[OperatorId, ...]:
        """Return the sources whose watermarks this operator follows: those upstream of it, and
        those upstream of operators that it is combined with in a closed query. Windows that are
        combined must close in the same epoch.
        """
        followed = self._follows(operator_id)
        return tuple(each.id for each in self.sources() if each.id in followed)

    def event_time_sources_of(self, operator_id: OperatorId) -> tuple[OperatorId, ...]:
        """Return the sources among `sources_of` whose event time bounds the watermark: no
        processing-time window is between them and the operator, or an operator that it is combined
        with.
        """
        followed = self._follows(operator_id)
        windows = {each.id for each in self.window_aggregates() if each.id in followed}
        seen: set[OperatorId] = set()
        waiting = deque({operator_id, *windows})
        while waiting:
            operator = self.operator(waiting.popleft())
            is_new = operator.id not in seen
            seen.add(operator.id)
            if is_new and not _is_by_processing_time(operator):
                waiting.extend(operator.input_ids)
        return tuple(each.id for each in self.sources() if each.id in seen)

    def follows_planning_time(self, operator_id: OperatorId) -> bool:
        """Return whether the planning time bounds the watermark of an operator: it is a
        processing-time window, is downstream of one, or is combined with one.
        """
        followed = self._follows(operator_id)
        return any(each.id in followed for each in self.operators if _is_by_processing_time(each))

    def lag_micros(self, operator_id: OperatorId) -> int:
        """Return how far an operator's watermark is behind those of its sources: the same for all
        operators that are combined.

        The lag is the allowed lateness, plus a microsecond for each session window in a chain,
        because a session closes when the watermark is beyond its end, not at it.
        """
        followed = self._follows(operator_id)
        windows = [each for each in self.window_aggregates() if each.id in followed]
        own = {each.id for each in windows} | {operator_id}
        closing = max(
            sum(
                WINDOW_KINDS[fed.window].closing_lag_micros
                for fed in self.upstream(each)
                if isinstance(fed, WindowAggregateSpec)
            )
            for each in own
        )
        return closing + max((each.lateness_micros for each in windows), default=0)

    def _combines_inputs(self, operator: OperatorSpec) -> bool:
        """Return whether an operator, or a stateless one directly upstream, has several inputs."""
        inputs = operator.input_ids
        return len(inputs) > 1 or any(
            each.is_transparent and self._combines_inputs(each)
            for each in map(self.operator, inputs)
        )

    def _follows(self, operator_id: OperatorId) -> set[OperatorId]:
        """Return the operators that share this one's watermark, and all upstream of them."""
        feeds = {
            each.id: {each.id, *(fed.id for fed in self.upstream(each.id))}
            for each in self.operators
            if each.aligns_inputs and self._combines_inputs(each)
        }
        found = {operator_id, *(each.id for each in self.upstream(operator_id))}
        windows = {each.id for each in self.window_aggregates()}
        while True:
            more = set(found)
            for members in feeds.values():
                if members & found & windows:
                    more |= members
            if more == found:
                return found
            found = more
