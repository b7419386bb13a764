"""Hopping windows: partials are stored by pane, and a window is merged from its panes when it
closes.

A pane is as wide as the greatest common divisor of width and slide, so that every window consists
of whole panes. A pane is dropped when its last window has closed. All panes of a key are in one
subtask, so merging them needs no shuffle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame

from resurgence.engine.operators.windows.window_aggregate import WindowAggregate, together
from resurgence.engine.tables.time_table import BIN, Admission, SubtaskRows
from resurgence.graph.specs.window_aggregate import WindowAggregateSpec
from resurgence.graph.watermarks import END_OF_TIME
from resurgence.spark_plans.varying_literal import varying_literal
from resurgence.state.records import StateFile


class HopAggregate(WindowAggregate):
    """Windows of a width, one every slide. Its bins are panes."""

    def __init__(
        self, operator: WindowAggregateSpec, rows: DataFrame, shuffle_partitions: int
    ) -> None:
        assert operator.slide_micros is not None
        self._slide = operator.slide_micros
        self._pane = math.gcd(operator.width_micros, self._slide)
        super().__init__(operator, rows, shuffle_partitions)

    @property
    def hashed(self) -> tuple[str, ...]:
        return self.keys

    def partials(
        self,
        rows: DataFrame,
        watermark: int | None = None,
        *,
        count_rows: bool = False,
        spread: bool = False,
    ) -> DataFrame:
        return self._made_by_keys(self._binned(rows, self._pane), count_rows, spread)

    def bins_to_close(self, open_from: int, still_open_from: int) -> tuple[int, int]:
        if still_open_from == END_OF_TIME:
            return open_from, END_OF_TIME
        return open_from, still_open_from - self._slide + self.width

    def closed(
        self, subtasks: Sequence[SubtaskRows], open_from: int, still_open_from: int
    ) -> DataFrame:
        since = f"{BIN} - {self.width}L"
        first = f"{self._aligned(since, self._slide)} + {self._slide}L"
        last = self._aligned(BIN, self._slide)
        first_closed = varying_literal(f"{open_from}L")
        last_closed = varying_literal(f"{still_open_from - self._slide}L")
        starts = (
            f"explode(sequence(greatest({first}, {first_closed}),"
            f" least({last}, {last_closed}), {self._slide}L)) AS {BIN}"
        )
        windows = [
            each.rows.selectExpr(starts, *self.keys, *self.partial_names) for each in subtasks
        ]
        return together([self.results(self._merged_by(each, self._group)) for each in windows])

    def timers(self, files: Iterable[StateFile], open_from: int) -> tuple[int, ...]:
        firsts = {max(self._first_open(each.time_start), open_from) for each in files}
        return tuple(sorted(each + self.width for each in firsts))

    def admission(self, watermark: int | None) -> Admission:
        admission = super().admission(watermark)
        if watermark is None or watermark == END_OF_TIME:
            return admission
        return replace(admission, partly_late_before=admission.open_from - self._slide + self.width)

    def _first_open(self, watermark: int) -> int:
        """Return the start of the first window that ends after the watermark."""
        since = watermark - self.width
        return since - (since - self.offset) % self._slide + self._slide
