"""Cumulating windows: windows with the same start, each one step longer than the previous, up to a
width.

Bins are steps. When the watermark passes the end of a step, the window that ends there closes, and
its content is carried: written again, merged, into the bin of the step that is then open. So the
next windows read one partial of each key for all earlier steps, and rows in passed bins may be
dropped, as with all windows. A late row of a passed step is added to the open step: the windows
that still include it have the same start. All bins of a key are in one subtask.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame

from resurgence.engine.operators.windows.window_aggregate import WindowAggregate, together
from resurgence.engine.tables.time_table import BIN, Admission, SubtaskRows
from resurgence.graph.specs.window_aggregate import WindowAggregateSpec
from resurgence.graph.watermarks import END_OF_TIME
from resurgence.spark_plans.varying_literal import varying_literal
from resurgence.state.records import StateFile


class CumulateAggregate(WindowAggregate):
    """Windows of up to a width, one every step. In results, the bin is the end of a window."""

    def __init__(
        self, operator: WindowAggregateSpec, rows: DataFrame, shuffle_partitions: int
    ) -> None:
        assert operator.slide_micros is not None
        self._step = operator.slide_micros
        self.offset, self.width = operator.offset_micros, operator.width_micros
        self.start = self._aligned(f"({BIN} - 1L)", self.width)
        super().__init__(operator, rows, shuffle_partitions)

    @property
    def hashed(self) -> tuple[str, ...]:
        return self.keys

    @property
    def end(self) -> str:
        return BIN

    def partials(
        self,
        rows: DataFrame,
        watermark: int | None = None,
        *,
        count_rows: bool = False,
        spread: bool = False,
    ) -> DataFrame:
        return self._made_by_keys(self._binned(rows, self._step), count_rows, spread)

    def closed(
        self, subtasks: Sequence[SubtaskRows], open_from: int, still_open_from: int
    ) -> DataFrame:
        last = f"least({self._last_end}, {varying_literal(f'{still_open_from}L')})"
        ends = f"explode(sequence({BIN} + {self._step}L, {last}, {self._step}L)) AS {BIN}"
        windows = [each.rows.selectExpr(ends, *self.keys, *self.partial_names) for each in subtasks]
        return together([self.results(self._merged_by(each, self._group)) for each in windows])

    def carried(self, subtasks: Sequence[SubtaskRows], still_open_from: int) -> DataFrame | None:
        if still_open_from == END_OF_TIME:
            return None
        first_open = varying_literal(f"{still_open_from}L")
        carried = [
            self._merged_by(
                each.rows.where(f"{self._last_end} > {first_open}").selectExpr(
                    f"{first_open} AS {BIN}", *self.keys, *self.partial_names
                ),
                self._group,
            )
            for each in subtasks
        ]
        return together(carried)

    def timers(self, files: Iterable[StateFile], open_from: int) -> tuple[int, ...]:
        return tuple(sorted({max(each.time_start, open_from) + self._step for each in files}))

    def admission(self, watermark: int | None) -> Admission:
        admission = super().admission(watermark)
        if watermark is None or watermark == END_OF_TIME:
            return admission
        return replace(admission, late_before=self.late_before(watermark))

    def late_before(self, watermark: int) -> int:
        """Return the start of the open windows."""
        return watermark - (watermark - self.offset) % self.width

    @property
    def _last_end(self) -> str:
        """The end of the last window that includes a step."""
        return f"{self._aligned(BIN, self.width)} + {self.width}L"

    def _first_open(self, watermark: int) -> int:
        return watermark - (watermark - self.offset) % self._step
