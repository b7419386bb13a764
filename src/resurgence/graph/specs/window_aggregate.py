"""Aggregates by time window, and ASOF joins, which wait for the watermark in the same way.

`WINDOW_KINDS` describes the kinds of windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from resurgence.graph.aggregate_call import AggregateCall
from resurgence.graph.specs.base import Definition, Spec, duration_text, subtasks_in_words
from resurgence.graph.values import Expression, Value
from resurgence.ids import OperatorId

WindowKind = Literal["tumble", "hop", "cumulate", "session", "asof"]


class AsofSpec(Value):
    """An ASOF join over the union of its two sides: each left row matches the newest right row with
    the same keys that is not newer than itself.
    """

    is_right: str
    """The column that is true for rows of the right side."""
    left: tuple[str, ...]
    right: tuple[str, ...]
    is_outer: bool
    """An unmatched left row is returned with nulls."""
    is_strict: bool
    """The right row must be strictly older."""


class WindowAggregateSpec(Spec):
    """Groups rows by time window and keys; emits a window's rows when the watermark passes its end.

    Its output columns are `window` (struct of start and end), the keys, the aggregates, and event
    time.
    """

    kind: Literal["window_aggregate"] = "window_aggregate"
    input: OperatorId
    window: WindowKind = "tumble"
    width_micros: int
    """For a session, the gap that ends it. For cumulating windows, the width of the last one."""
    slide_micros: int | None = None
    """For a hop, from the start of a window to the start of the next. For cumulating windows, from
    the end of a window to the end of the next, which has the same start.
    """
    offset_micros: int = 0
    """Windows are aligned to 1970-01-01 00:00 UTC plus this offset."""
    lateness_micros: int = 0
    """The allowed lateness: a window closes when the watermark is this far beyond its end."""
    by_processing_time: bool = False
    """The event time of its rows, and its watermark, are the planning time of their epoch."""
    keys: tuple[Expression, ...]
    aggregates: tuple[AggregateCall, ...]
    asof: AsofSpec | None = None
    """Set if rows are not aggregated, but joined when the watermark passes them. The output columns
    are those of both sides, and event time.
    """

    has_state: ClassVar[bool] = True
    is_durable: ClassVar[bool] = True

    @property
    def input_ids(self) -> tuple[OperatorId, ...]:
        return (self.input,)

    @property
    def rows_in_words(self) -> str:
        return f"the closed bins of {self.id}"

    @property
    def job_in_words(self) -> str:
        return "partial aggregates, one shuffle, writes state files"

    def definition(self, needed: set[str] | None) -> Definition:
        shape: list[Any] = []
        if WINDOW_KINDS[self.window].is_part_of_identity:
            shape = [self.window, self.slide_micros]
        if self.offset_micros:
            shape.append(f"offset {self.offset_micros}")
        if self.asof is not None:
            shape.append(self.asof.model_dump(mode="json"))
        if self.lateness_micros:
            shape.append(f"lateness {self.lateness_micros}")
        if self.by_processing_time:
            shape.append("processing time")
        return Definition.reading_names(
            [
                *shape,
                self.width_micros,
                *([each.name, each.sql] for each in self.keys),
                *(
                    [each.name, each.function, each.condition, *each.identity]
                    for each in self.aggregates
                ),
            ]
        )

    def explain(self, parallelism: int) -> Iterator[str]:
        kind = WINDOW_KINDS[self.window]
        yield f"{self.id}: window aggregate"
        yield f"  input        {self.input}"
        yield f"  window       {self._window_in_words()}"
        if self.by_processing_time:
            yield "  time         processing time: the planning time of the row's epoch"
        yield f"  keys         {', '.join(each.sql for each in self.keys) or 'none'}"
        for index, each in enumerate(self.aggregates):
            yield f"  {'aggregates' if index == 0 else '':<12} {each.name} = {_call_in_words(each)}"
        hashed = "the window and the keys" if self.keys else "the window"
        if kind.is_hashed_by_keys:
            hashed = "the keys"
        yield f"  parallelism  {subtasks_in_words(parallelism)}, by hash of {hashed}"
        yield f"  state        TimeTable 'partials': {kind.state}"
        yield f"  dropped      {kind.dropped}"

    def _window_in_words(self) -> str:
        text = WINDOW_KINDS[self.window].in_words(self)
        if self.offset_micros:
            text += f", shifted by {duration_text(self.offset_micros)}"
        if self.lateness_micros:
            text += f", with allowed lateness {duration_text(self.lateness_micros)}"
        return text


def _call_in_words(call: AggregateCall) -> str:
    text = f"{call.function}({', '.join(call.identity) or '*'})"
    return f"{text} where {call.condition}" if call.condition else text


@dataclass(frozen=True)
class WindowTraits:
    """The properties of a kind of window, and its EXPLAIN output."""

    in_words: Callable[[WindowAggregateSpec], str]
    state: str
    dropped: str
    is_hashed_by_keys: bool = True
    """Rows are partitioned by their keys alone, not by window and keys."""
    has_function: bool = True
    """A function of its name defines it; the other kinds have special syntax."""
    has_fixed_width: bool = False
    """All its windows have the same width."""
    is_made_by_rows: bool = False
    """The bounds of its windows depend on the rows of each group."""
    closing_lag_micros: int = 0
    """How far the watermark must be beyond the end of a window to close it."""
    is_part_of_identity: bool = True
    """Its name is hashed into operator ids."""


def _width(spec: WindowAggregateSpec) -> str:
    return duration_text(spec.width_micros)


def _slide(spec: WindowAggregateSpec) -> str:
    return duration_text(spec.slide_micros or 0)


WINDOW_KINDS: dict[WindowKind, WindowTraits] = {
    "tumble": WindowTraits(
        lambda spec: f"tumbling, {_width(spec)} of event time",
        "a row per window, group and epoch, in one bin per window",
        "a bin, when the watermark passes the end of its window and its rows have been emitted",
        is_hashed_by_keys=False,
        has_fixed_width=True,
        is_part_of_identity=False,
    ),
    "hop": WindowTraits(
        lambda spec: f"hopping, {_width(spec)} of event time every {_slide(spec)}",
        "a row per pane, group and epoch, in one bin per pane",
        "a pane, when the watermark passes the end of its last window",
        has_fixed_width=True,
    ),
    "cumulate": WindowTraits(
        lambda spec: f"cumulating, up to {_width(spec)} of event time in steps of {_slide(spec)}",
        "a row per step, group and epoch, in one bin per step",
        "a bin, when the watermark passes its end and its rows have been merged into a later one",
    ),
    "session": WindowTraits(
        lambda spec: f"session, ended by {_width(spec)} of event time without a row",
        "a row per open session, group and epoch",
        "a session, when the watermark passes its end and its row has been emitted",
        is_made_by_rows=True,
        closing_lag_micros=1,
    ),
    "asof": WindowTraits(
        lambda _spec: "asof join: a row is emitted when the watermark passes it",
        "rows ahead of the watermark, the newest right row of each key",
        "a row, when the watermark passes it; a right row, when the watermark passes a newer one",
        has_function=False,
    ),
}
