"""Sources: read a range of input per epoch, observe its watermark and bad records, and return the
dead letters among its records.

If a source has partitions, each has its own watermark, and the source's is the lowest of them. So
rows of a partition that is read slower than the others are not late. The watermarks of partitions
are part of the checkpoint: a partition may have no rows for many epochs.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from resurgence.connectors.formats.options import BadData
from resurgence.connectors.registry import make_source
from resurgence.engine.functions.clock_reads import free_columns
from resurgence.engine.operators.base import Operator, OperatorContext, OperatorState
from resurgence.engine.operators.dead_letters import letter_rows, poison_letters
from resurgence.engine.operators.replayed_records import ReplayedRecords
from resurgence.engine.operators.source_reader import (
    Reading,
    Seen,
    SourceReader,
    read_shape,
    source_shape,
)
from resurgence.graph.specs.source import SourceSpec
from resurgence.graph.watermarks import (
    END_OF_TIME,
    idle_watermark,
    merged_marks,
    partitioned_watermark,
)
from resurgence.state.load_plan import OperatorLoad
from resurgence.state.records import (
    DEAD_LETTERS,
    OFFSETS,
    REPLAYS,
    WATERMARKS,
    InputRange,
    TableCheckpoint,
    TableKind,
)
from resurgence.state.replays import DONE, replays_done

if TYPE_CHECKING:
    from resurgence.engine.epochs.epoch_run import EpochRun

log = logging.getLogger(__name__)


class SourceOperator(Operator):
    """A source of a running job."""

    spec: SourceSpec

    def __init__(
        self, spec: SourceSpec, inputs: Sequence[DataFrame], context: OperatorContext
    ) -> None:
        super().__init__(spec, inputs, context)
        spark = context.spark
        columns = free_columns(spec.columns, read_shape(spark, spec))
        self.spec = spec.model_copy(update={"columns": columns})
        self.source = make_source(self.spec, context.paths.job)
        self.shape = source_shape(spark, self.spec)
        self.watermark: int | None = None
        """At the end of the newest sealed epoch."""
        self.partition_watermarks: dict[str, int] = {}
        """Of the partitions that have had rows, at the end of the newest sealed epoch."""
        self.replayed = 0
        """The newest replay that it has read."""
        replayed = ReplayedRecords(context.state_url, context.paths, context.dead)
        self._reader = SourceReader(self.spec, self.source, replayed)
        self._reading: Reading | None = None
        self._seen = Seen()
        self._has_warned = False

    def restore(self, load: OperatorLoad) -> None:
        self.watermark = load.metadata.watermark
        self.replayed = replays_done(load.metadata)
        if WATERMARKS in load.metadata.tables:
            values = load.metadata.tables[WATERMARKS].values
            self.partition_watermarks = {
                name: mark for name, mark in values.items() if isinstance(mark, int)
            }

    def read(self, input_range: InputRange, time: int) -> Reading:
        """Read a range of its input; `time` is when the epoch was planned, in microseconds."""
        context = self.context
        return self._reader.read(context.spark, input_range, context.parallelism, time)

    def records(self, input_range: InputRange) -> DataFrame:
        """Return the raw records of a range of its input."""
        context = self.context
        return self._reader.records(context.spark, input_range, context.parallelism)

    def open(self, run: EpochRun) -> None:
        self._reading, self._seen = None, Seen()
        input_range = run.inputs[self.id]
        if input_range.all_rows:
            self._reading = self.read(input_range, run.time)

    def output(self, run: EpochRun) -> DataFrame | None:
        return None if self._reading is None else self._reading.rows

    def observe(self, run: EpochRun) -> None:
        if self.id in run.effects.watermarks:
            return
        input_range, mark, seen = run.inputs[self.id], self.watermark, Seen()
        if self._reading is not None:
            seen = self._seen = self._reading.seen(was_read=self.id in run.were_read)
            if seen.first_bad is not None and self.source.bad_data is BadData.FAIL:
                raise self._reader.bad_record(input_range, seen, run.time)
            keeps_bad = self.source.bad_data is BadData.DEAD_LETTER
            run.effects.bad_rows[self.id] = 0 if keeps_bad else seen.bad_rows
            dead = len(input_range.excluded) + (seen.bad_rows if keeps_bad else 0)
            if dead:
                run.effects.dead_rows[self.id] = dead
            if seen.watermark is not None:
                mark = seen.watermark if mark is None else max(seen.watermark, mark)
        left_out = len(input_range.excluded)
        run.effects.rows_in[self.id] = (
            input_range.all_rows if seen.rows is None else seen.rows + left_out
        )
        run.effects.record_times[self.id] = seen.record_times
        if seen.rows is not None:
            self.source.measured(seen.rows, seen.bytes)
        names = [each.name for each in self.source.partitions(input_range)]
        if names and self.spec.watermark is not None:
            marks = merged_marks(self.partition_watermarks, seen.partition_watermarks, names)
            run.effects.partition_watermarks[self.id] = marks
            idle = set(input_range.idle_partitions)
            mark = partitioned_watermark(mark, {name: marks.get(name) for name in names}, idle)
        if input_range.idle:
            others = [
                run.watermarks_before[each.id]
                for each in run.graph.sources()
                if each.watermark is not None
                and not run.inputs[each.id].idle
                and not run.inputs[each.id].final
            ]
            mark = idle_watermark(mark, others)
        run.effects.watermarks[self.id] = END_OF_TIME if input_range.final else mark

    def first_dead(self, run: EpochRun) -> tuple[str, str]:
        """Return the position of the first of its dead letters, once it was observed, and its
        description.
        """
        input_range = run.inputs[self.id]
        if self._seen.first_bad is not None and self.source.bad_data is BadData.DEAD_LETTER:
            bad = self._reader.bad_record(input_range, self._seen, run.time)
            return bad.position, bad.message
        position = str(input_range.excluded[0])
        return position, position

    def letters(self, run: EpochRun) -> DataFrame:
        """Return the dead letters of the epoch, once its rows were observed."""
        input_range, spark = run.inputs[self.id], self.context.spark
        parts = []
        if input_range.excluded:
            everything = self.records(input_range.model_copy(update={"excluded": ()}))
            known = run.poison.get(self.id, {})
            reasons = {
                # A record of a replay is where it was.
                place: known.get(each)
                for each in input_range.excluded
                for place in (each, self.source.located(each))
            }
            parts.append(poison_letters(spark, everything, reasons))
        keeps_bad = self.source.bad_data is BadData.DEAD_LETTER
        if keeps_bad and self._seen.bad_rows and self._reading is not None:
            records = self.records(input_range)
            parts.append(self._reader.bad_letters(self._reading, records, run.time))
        letters = functools.reduce(DataFrame.unionByName, parts)
        return letter_rows(letters, self.id, self.source.position_sql, run.epoch, run.time)

    def checkpoint(self, run: EpochRun) -> OperatorState:
        input_range = run.inputs[self.id]
        tables = {OFFSETS: TableCheckpoint(kind=TableKind.GLOBAL, values=input_range.end)}
        letters = run.effects.dead_letters.get(self.id)
        if letters is not None:
            values = letters.model_dump(mode="json")
            tables[DEAD_LETTERS] = TableCheckpoint(kind=TableKind.GLOBAL, values=values)
        if replayed := self._replayed_by(run):
            tables[REPLAYS] = TableCheckpoint(kind=TableKind.GLOBAL, values={DONE: replayed})
        marks = run.effects.partition_watermarks.get(self.id)
        if marks is not None:
            tables[WATERMARKS] = TableCheckpoint(kind=TableKind.GLOBAL, values={**marks})
        return OperatorState(tables, input=input_range, place=self.spec.place)

    def promote(self, run: EpochRun) -> None:
        self.watermark = run.effects.watermarks[self.id]
        self.replayed = self._replayed_by(run)
        marks = run.effects.partition_watermarks.get(self.id)
        if marks is not None:
            self.partition_watermarks = marks
            self._warn_of_empty_partitions(run.inputs[self.id])

    def _replayed_by(self, run: EpochRun) -> int:
        """Return the newest replay that is read when the epoch ends."""
        replay = run.inputs[self.id].replay
        return replay.number if replay else self.replayed

    def _warn_of_empty_partitions(self, input_range: InputRange) -> None:
        """Warn once if partitions that never had rows hold back the watermark for ever."""
        if self._has_warned or self.spec.idle_micros is not None or not self.partition_watermarks:
            return
        names = [each.name for each in self.source.partitions(input_range)]
        empty = [each for each in names if each not in self.partition_watermarks]
        if empty and not any(self.source.unread().get(each) for each in empty):
            self._has_warned = True
            log.warning(
                "table '%s': the watermark waits for %d of %d partitions, which have had no rows,"
                " such as %s. Set idle_timeout on the table so that they do not hold it back.",
                self.spec.table,
                len(empty),
                len(names),
                empty[0],
            )
