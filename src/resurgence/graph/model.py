"""The compiled dataflow: immutable specs of operators, wired by id.

Nothing here knows Spark, storage or the parser. `specs` has a module for each operator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TypeVar

from resurgence.graph.specs import OperatorSpec
from resurgence.graph.specs.base import Spec
from resurgence.graph.specs.lookup_join import LookupJoinSpec, LookupSpec
from resurgence.graph.specs.sink import SinkSpec
from resurgence.graph.specs.source import SourceSpec
from resurgence.graph.specs.window_aggregate import WINDOW_KINDS, WindowAggregateSpec
from resurgence.graph.values import Value
from resurgence.ids import OperatorId

S = TypeVar("S", bound=Spec)


def _is_by_processing_time(operator: OperatorSpec) -> bool:
    return isinstance(operator, WindowAggregateSpec) and operator.by_processing_time


class Graph(Value):
    """Operators in topological order: an operator's input stands before it."""

    operators: tuple[OperatorSpec, ...]

    def operator(self, operator_id: OperatorId) -> OperatorSpec:
        """The operator with that id."""
        return next(each for each in self.operators if each.id == operator_id)

    def all_of(self, kind: type[S]) -> tuple[S, ...]:
        """The operators of a kind."""
        return tuple(each for each in self.operators if isinstance(each, kind))

    def sources(self) -> tuple[SourceSpec, ...]:
        return self.all_of(SourceSpec)

    def sinks(self) -> tuple[SinkSpec, ...]:
        return self.all_of(SinkSpec)

    def window_aggregates(self) -> tuple[WindowAggregateSpec, ...]:
        return self.all_of(WindowAggregateSpec)

    def lookup_tables(self) -> tuple[LookupSpec, ...]:
        """The tables at rest that rows are joined with, each once."""
        return tuple({each.table.name: each.table for each in self.all_of(LookupJoinSpec)}.values())

    def durable(self) -> tuple[OperatorSpec, ...]:
        """The operators that have something in a checkpoint."""
        return tuple(each for each in self.operators if each.is_durable)

    def upstream(self, operator_id: OperatorId) -> Iterator[OperatorSpec]:
        """The operators that feed this one, each once, nearest first."""
        seen = {operator_id}
        waiting = deque(self.operator(operator_id).input_ids)
        while waiting:
            current = waiting.popleft()
            if current not in seen:
                seen.add(current)
                operator = self.operator(current)
                yield operator
                waiting.extend(operator.input_ids)

    def reads_changes(self, operator_id: OperatorId) -> bool:
        """Whether changes reach this operator as a source has them: a row may come and go, or go
        and come, in one epoch.
        """
        for each in map(self.operator, self.operator(operator_id).input_ids):
            if isinstance(each, SourceSpec) and each.is_updating:
                return True
            if each.is_transparent and self.reads_changes(each.id):
                return True
        return False

    def sources_of(self, operator_id: OperatorId) -> tuple[OperatorId, ...]:
        """The sources whose watermarks this operator follows: those that feed it, and those that
        feed what its rows meet in a closed query. Windows that meet must close in the same epoch.
        """
        return tuple(
            each.id
            for each in self.operators
            if each.id in self._follows(operator_id) and isinstance(each, SourceSpec)
        )

    def event_time_sources_of(self, operator_id: OperatorId) -> tuple[OperatorId, ...]:
        """The sources among `sources_of` whose event time counts: they feed the operator, or what
        it meets, without a window by processing time between.
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
        """Whether the planning time bounds the watermark of an operator: it is a window by
        processing time, is fed by one, or meets one.
        """
        followed = self._follows(operator_id)
        return any(each.id in followed for each in self.operators if _is_by_processing_time(each))

    def lag_micros(self, operator_id: OperatorId) -> int:
        """How far an operator is behind the watermarks of its sources: the same for all that meet.

        By the lateness that is allowed. And a session closes when the watermark is beyond its end,
        not at it: for every session, one over the other, a microsecond.
        """
        windows = [
            each for each in self.window_aggregates() if each.id in self._follows(operator_id)
        ]
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

    def _brings_together(self, operator: OperatorSpec) -> bool:
        """Whether rows of several operators meet here, or in what is stateless before it."""
        inputs = operator.input_ids
        return len(inputs) > 1 or any(
            each.is_transparent and self._brings_together(each)
            for each in map(self.operator, inputs)
        )

    def _follows(self, operator_id: OperatorId) -> set[OperatorId]:
        """The operators that share this one's watermark, and all that feed them."""
        feeds = {
            each.id: {each.id, *(fed.id for fed in self.upstream(each.id))}
            for each in self.operators
            if each.aligns_inputs and self._brings_together(each)
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
