"""Session windows: rows of a key form one session as long as no gap between them exceeds the
session gap.

A partial is a piece of a session: from its first row to one gap after its last. Pieces that touch
are one session, as in Spark: a row exactly one gap after the last one still belongs to it. So a
session closes when the watermark is beyond its end, and a row is late if a session of its own would
have closed when the epoch began. A late row between the start and the end of a session that was
open then is accepted: it changes neither. One that would extend the session backwards stays late,
because it could overlap a session that was already emitted.

The bin of a piece is the end of its session, as far as that was known when the piece was written: a
piece whose bin the watermark has passed is no longer read. If its session is still open then,
because of a later piece, it is carried: written again, into the bin where the session ends now. So
each open session has its pieces beyond the watermark and at most one before it, and rows in passed
bins may be dropped, as with all windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from resurgence.engine.operators.aggregates.aggregate_plan import Partial
from resurgence.engine.operators.windows.window_aggregate import (
    BEGINNING_OF_TIME,
    WindowAggregate,
    together,
)
from resurgence.engine.tables.time_table import BIN, ROWS, SubtaskRows
from resurgence.graph.specs.window_aggregate import WindowAggregateSpec
from resurgence.graph.values import EVENT_TIME
from resurgence.graph.watermarks import END_OF_TIME
from resurgence.spark_plans.varying_literal import varying_literal
from resurgence.state.records import StateFile

_AT = "__at"
_LATE = "__late"
_NUMBER = "__session"
_END = "__end"
_START = "__start"
_OPEN = "__open_"


class SessionAggregate(WindowAggregate):
    """Windows that end with a gap."""

    start = "session_start"

    def __init__(
        self, operator: WindowAggregateSpec, rows: DataFrame, shuffle_partitions: int
    ) -> None:
        self.spans = (
            Partial("session_start", f"min({_AT})", "min(session_start)"),
            Partial("session_end", f"max({_AT}) + {operator.width_micros}L", "max(session_end)"),
        )
        super().__init__(operator, rows, shuffle_partitions)

    @property
    def hashed(self) -> tuple[str, ...]:
        return self.keys

    @property
    def end(self) -> str:
        return "session_end"

    def partials(
        self,
        rows: DataFrame,
        watermark: int | None = None,
        *,
        count_rows: bool = False,
        spread: bool = False,
    ) -> DataFrame:
        is_late = "false" if watermark is None else self._is_late(watermark)
        timed = (
            rows.selectExpr(f"unix_micros(`{EVENT_TIME}`) AS {_AT}", *self._input)
            .where(f"{_AT} IS NOT NULL")
            .selectExpr("*", f"{is_late} AS {_LATE}")
        )
        over = f"OVER (PARTITION BY {', '.join((*self.keys, _LATE))} ORDER BY {_AT})"
        pieces = _numbered(self._by_keys(timed), f"{_AT} - lag({_AT}) {over} > {self.width}L", over)
        counted = [self._count_rows] if count_rows else []
        made = pieces.groupBy(*self.keys, _LATE, _NUMBER).agg(*self._make, *counted)
        return made.selectExpr(
            # Late rows go into a separate bin, which every watermark has passed.
            f"CASE WHEN {_LATE} THEN {BEGINNING_OF_TIME}L ELSE session_end END AS {BIN}",
            *self.keys,
            *self.partial_names,
            *([ROWS] if count_rows else []),
        )

    def late_bins(self, open_from: int) -> tuple[int, int] | None:
        return open_from, END_OF_TIME

    def accepted_late(
        self, rows: DataFrame, watermark: int, subtasks: Sequence[SubtaskRows]
    ) -> DataFrame:
        late = rows.selectExpr(f"unix_micros(`{EVENT_TIME}`) AS {_AT}", *self._input)
        inside = late.where(self._is_late(watermark)).join(
            self._open(subtasks), self._is_inside(), "inner"
        )
        # The bin is the end of the session, so that the piece is read together with its session.
        found = self._by_keys(inside.selectExpr(f"{_END} AS {BIN}", *late.columns))
        return found.groupBy(BIN, *self.keys).agg(*self._make, self._count_rows)

    def rejected_late(
        self, rows: DataFrame, watermark: int, subtasks: Sequence[SubtaskRows]
    ) -> DataFrame:
        late = super().rejected_late(rows, watermark, subtasks)
        keyed = late.selectExpr("*", f"unix_micros(`{EVENT_TIME}`) AS {_AT}", *self._keys)
        outside = keyed.join(self._open(subtasks), self._is_inside(), "left_anti")
        return outside.select(*(f"`{each}`" for each in late.columns))

    def _open(self, subtasks: Sequence[SubtaskRows]) -> DataFrame:
        """Return the bounds of the sessions in state, by key."""
        span = [f"{key} AS {_OPEN}{key}" for key in self.keys]
        span += [f"session_start AS {_START}", f"session_end AS {_END}"]
        sessions = [
            self._merged_by(self._sessions(each.rows), (*self.keys, _NUMBER)).selectExpr(*span)
            for each in subtasks
        ]
        return together(sessions)

    def _is_inside(self) -> Column:
        """Return the condition that a row, with `_AT` and its keys, falls into an open session."""
        same = [f"{key} <=> {_OPEN}{key}" for key in self.keys]
        return F.expr(" AND ".join([*same, f"{_AT} BETWEEN {_START} AND {_END}"]))

    def _is_late(self, watermark: int) -> str:
        return f"{_AT} + {self.width}L < {varying_literal(f'{watermark}L')}"

    def bins_to_close(self, open_from: int, still_open_from: int) -> tuple[int, int]:
        return open_from, END_OF_TIME

    def closed(
        self, subtasks: Sequence[SubtaskRows], open_from: int, still_open_from: int
    ) -> DataFrame:
        sessions = [
            self._merged_by(self._sessions(each.rows), (*self.keys, _NUMBER)).where(
                f"session_end < {varying_literal(f'{still_open_from}L')}"
            )
            for each in subtasks
        ]
        return together([self.results(each) for each in sessions])

    def carried(self, subtasks: Sequence[SubtaskRows], still_open_from: int) -> DataFrame | None:
        if still_open_from == END_OF_TIME:
            return None
        over = f"OVER (PARTITION BY {', '.join((*self.keys, _NUMBER))})"
        open_from = varying_literal(f"{still_open_from}L")
        carried = [
            self._merged_by(
                self._sessions(each.rows)
                .selectExpr("*", f"max(session_end) {over} AS {_END}")
                .where(f"{BIN} < {open_from} AND {_END} >= {open_from}"),
                (_END, *self.keys),
            ).withColumnRenamed(_END, BIN)
            for each in subtasks
        ]
        return together(carried)

    def _sessions(self, pieces: DataFrame) -> DataFrame:
        """Return pieces with the number of their session, counted by key."""
        partition = f"PARTITION BY {', '.join(self.keys)} " if self.keys else ""
        over = f"OVER ({partition}ORDER BY session_start, session_end ROWS UNBOUNDED PRECEDING)"
        before = over.replace(
            "ROWS UNBOUNDED PRECEDING", "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
        )
        return _numbered(pieces, f"session_start > max(session_end) {before}", over)

    def timers(self, files: Iterable[StateFile], open_from: int) -> tuple[int, ...]:
        return tuple(sorted({max(each.time_start, open_from) + 1 for each in files}))

    def late_before(self, watermark: int) -> int:
        return watermark - self.width

    def _first_open(self, watermark: int) -> int:
        return watermark


def _numbered(rows: DataFrame, begins: str, over: str) -> DataFrame:
    """Return rows with the number of their group. `begins` is SQL for whether a row starts a new
    group, compared with those before it; it is null for the first row.
    """
    marked = rows.selectExpr("*", f"CAST(coalesce({begins}, true) AS INT) AS __begins")
    return marked.selectExpr("*", f"sum(__begins) {over} AS {_NUMBER}").drop("__begins")
