"""Finds the record that an epoch failed on, by bisection of the epoch's input.

A failure names a value, but not the position of its record. After a failure, halves of the input
are run again, and a half that fails by itself replaces the whole. Successful epochs do not pay for
this. Only steps that handle each row by itself are run: filters, projections, aggregate arguments.
Nothing is written. If only a later step fails, over results of many rows, the position is the whole
range.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import DataFrame

from resurgence.engine.epochs.pipeline import Pipeline
from resurgence.engine.spark.errors import translate
from resurgence.errors import ResurgenceError
from resurgence.graph.specs.source import SourceSpec
from resurgence.ids import OperatorId
from resurgence.state.records import InputRange

_TAG = "resurgence-failing-input"


@dataclass(frozen=True)
class FailingInput:
    """The search for the input that an epoch failed on."""

    pipeline: Pipeline
    inputs: Mapping[OperatorId, InputRange]
    time: int
    """When the epoch was planned, in microseconds."""
    failure: ResurgenceError

    def position(self, patience: timedelta) -> str:
        """Return the smallest failing range that is known when patience ends, as text.

        Runs Spark jobs: query Spark's status of the failed job before calling this.
        """
        deadline = time.monotonic() + patience.total_seconds()
        spark = self.pipeline.spark
        spark.addTag(_TAG)
        timer = threading.Timer(patience.total_seconds(), spark.interruptTag, [_TAG])
        timer.start()
        try:
            for source in self.pipeline.graph.sources():
                found = self._narrowed(source, lambda: time.monotonic() < deadline)
                if found is not None:
                    return self._in_words(source, found)
        finally:
            timer.cancel()
            spark.removeTag(_TAG)
        return "; ".join(
            self._in_words(source, self.inputs[source.id])
            for source in self.pipeline.graph.sources()
            if self.inputs[source.id].rows
        )

    def _in_words(self, source: SourceSpec, piece: InputRange) -> str:
        return f"table {source.table}, {self.pipeline.sources[source.id].in_words(piece)}"

    def _narrowed(self, source: SourceSpec, has_time: Callable[[], bool]) -> InputRange | None:
        """Return the smallest range that is known to fail by itself; None if not even the whole
        does.
        """
        failing = self.inputs[source.id]
        if not has_time() or not self._fails(source, failing):
            return None
        while failing.rows > 1 and has_time():
            halves = self._halves(source, failing)
            if halves is None:
                break
            first, second = halves
            if self._fails(source, first):
                failing = first
            elif has_time() and self._fails(source, second):
                failing = second
            else:
                break
        return failing

    def _halves(
        self, source: SourceSpec, piece: InputRange
    ) -> tuple[InputRange, InputRange] | None:
        """Return both halves of a range; None if the source cannot split it, or has lost it."""
        try:
            halves = self.pipeline.sources[source.id].halved(piece)
        except ResurgenceError:
            return None
        is_smaller = halves is not None and all(0 < each.rows < piece.rows for each in halves)
        return halves if is_smaller else None

    def _fails(self, source: SourceSpec, piece: InputRange) -> bool:
        """Return whether the range causes the same kind of failure. Another kind, such as an
        interrupt, proves nothing.
        """
        if piece.rows == 0:
            return False
        try:
            probe = _Probe(self.pipeline, self.time, {source.id: piece})
            for operator in self.pipeline.operators.values():
                for rows in operator.probe(probe):
                    rows.write.format("noop").mode("overwrite").save()
        except Exception as error:
            return translate(error).code == self.failure.code
        return False


class _Probe:
    """Part of the input of one source, and what each operator computes from it without state."""

    def __init__(
        self, pipeline: Pipeline, time: int, ranges: Mapping[OperatorId, InputRange]
    ) -> None:
        self.time = time
        self._pipeline = pipeline
        self._outputs: dict[OperatorId, DataFrame | None] = {
            operator_id: each.read(ranges[operator_id], time).rows
            if operator_id in ranges
            else None
            for operator_id, each in pipeline.source_operators.items()
        }

    def rows(self, operator_id: OperatorId) -> DataFrame | None:
        if operator_id not in self._outputs:
            self._outputs[operator_id] = self._pipeline.operators[operator_id].probe_output(self)
        return self._outputs[operator_id]
