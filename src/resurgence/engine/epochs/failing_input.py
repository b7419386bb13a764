"""Finds the record that an epoch failed on, by bisection of the epoch's input.

A failure names a value, but not the position of its record. After a failure, halves of the input
are run again, and a half that fails by itself replaces the whole. If only a later step fails, over
results of many rows, the position is the whole range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

from resurgence.engine.epochs.pipeline import Pipeline
from resurgence.engine.epochs.probes import Deadline, Probes
from resurgence.errors import ResurgenceError
from resurgence.graph.specs.source import SourceSpec
from resurgence.ids import OperatorId
from resurgence.state.records import InputRange


@dataclass(frozen=True)
class FailingInput:
    """The search for the input that an epoch failed on."""

    pipeline: Pipeline
    inputs: Mapping[OperatorId, InputRange]
    time: int
    """When the epoch was planned, in microseconds."""
    failure: ResurgenceError

    @cached_property
    def _probes(self) -> Probes:
        return Probes(self.pipeline, self.time)

    def position(self, patience: timedelta) -> str:
        """Return the smallest failing range that is known when patience ends, as text.

        Runs Spark jobs: query Spark's status of the failed job before calling this.
        """
        with self._probes.within(patience) as deadline:
            for source in self.pipeline.graph.sources():
                found = self._narrowed(source, deadline)
                if found is not None:
                    return self._in_words(source, found)
        return "; ".join(
            self._in_words(source, self.inputs[source.id])
            for source in self.pipeline.graph.sources()
            if self.inputs[source.id].rows
        )

    def _in_words(self, source: SourceSpec, piece: InputRange) -> str:
        return f"table {source.table}, {self.pipeline.sources[source.id].in_words(piece)}"

    def _narrowed(self, source: SourceSpec, deadline: Deadline) -> InputRange | None:
        """Return the smallest range that is known to fail by itself; None if not even the whole
        does.
        """
        failing = self.inputs[source.id].model_copy(update={"replay": None})
        if not self._fails(source, failing, deadline):
            return None
        while failing.rows > 1 and deadline.has_time():
            halves = self._probes.halves(source.id, failing)
            if halves is None:
                break
            first, second = halves
            if self._fails(source, first, deadline):
                failing = first
            elif self._fails(source, second, deadline):
                failing = second
            else:
                break
        return failing

    def _fails(self, source: SourceSpec, piece: InputRange, deadline: Deadline) -> bool:
        """Return whether the range causes the same kind of failure. Another kind, such as an
        interrupt, proves nothing.
        """
        failure = self._probes.failure_of(source.id, piece, deadline)
        return failure is not None and failure.error.code == self.failure.code
