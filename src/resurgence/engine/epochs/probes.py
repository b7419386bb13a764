"""Runs the stateless steps of a pipeline over parts of an epoch's input, to find out whether they
fail.

Only steps that handle each row by itself are run: filters, projections, aggregate arguments, the
encoding of sinks. Nothing is written. Successful epochs do not pay for this.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import DataFrame

from resurgence.engine.epochs.pipeline import Pipeline
from resurgence.engine.spark.errors import translate
from resurgence.errors import ResurgenceError
from resurgence.ids import OperatorId
from resurgence.state.records import InputRange

_TAG = "resurgence-failing-input"
_INTERRUPT_SECONDS = 1


@dataclass(frozen=True)
class ProbeFailure:
    """The failure of a part of the input, and the operator whose step failed."""

    operator: OperatorId
    error: ResurgenceError


@dataclass(frozen=True)
class Probes:
    """Probes of one epoch's input."""

    pipeline: Pipeline
    time: int
    """When the epoch was planned, in microseconds."""

    def failure_of(
        self, source: OperatorId, piece: InputRange, deadline: Deadline
    ) -> ProbeFailure | None:
        """Return how a part of the input of a source fails by itself; None if it does not, or if
        time runs out.
        """
        if piece.all_rows == 0:
            return None
        operator_id = source
        try:
            probe = _Probe(self.pipeline, self.time, {source: piece})
            for operator in self.pipeline.operators.values():
                operator_id = operator.id
                for rows in operator.probe(probe):
                    if not deadline.has_time():
                        return None
                    rows.write.format("noop").mode("overwrite").save()
        except Exception as error:
            return ProbeFailure(operator_id, translate(error))
        return None

    def halves(self, source: OperatorId, piece: InputRange) -> tuple[InputRange, InputRange] | None:
        """Return both halves of a range, without records that are excluded already; None if the
        source cannot split it, or has lost it.
        """
        try:
            halves = self.pipeline.sources[source].halved(piece)
        except ResurgenceError:
            return None
        if halves is None or not all(0 < each.rows < piece.rows for each in halves):
            return None
        first, second = (
            each.model_copy(update={"excluded": piece.excluded, "planned_at": piece.planned_at})
            for each in halves
        )
        return first, second

    @contextmanager
    def within(self, patience: timedelta) -> Iterator[Deadline]:
        """Interrupt the Spark jobs of probes when patience ends."""
        spark = self.pipeline.spark
        spark.addTag(_TAG)
        is_over = threading.Event()

        def interrupt() -> None:
            wait = patience.total_seconds()
            # Again and again: an interrupt does not affect a job that starts after it.
            while not is_over.wait(wait):
                spark.interruptTag(_TAG)
                wait = _INTERRUPT_SECONDS

        deadline = Deadline(time.monotonic() + patience.total_seconds())
        interrupter = threading.Thread(target=interrupt, name="probe-interrupts", daemon=True)
        interrupter.start()
        try:
            yield deadline
        finally:
            is_over.set()
            spark.removeTag(_TAG)


@dataclass(frozen=True)
class Deadline:
    """The end of a search, by the monotonic clock."""

    ends: float

    def has_time(self) -> bool:
        return time.monotonic() < self.ends


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
