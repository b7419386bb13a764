"""An updating query, run epoch by epoch on real files, and a strict reader of its changelog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from resurgence.engine.operators.changelogs.updating_query import UpdatingQuery
from resurgence.engine.tables.live_files import LiveFiles
from resurgence.graph.specs.updating_query import UpdatingInput, UpdatingQuerySpec
from resurgence.graph.values import CHANGE, Expression
from resurgence.ids import Epoch, Generation, OperatorId
from resurgence.state.key_groups import deal, shuffle_partitions

Row = tuple[object, ...]


def kept(columns: str, *keys: str, updating: bool = False) -> UpdatingInput:
    """What is kept of an input: columns by their names, all of its own."""
    names = [each.strip().split(" ")[0] for each in columns.split(",")]
    return UpdatingInput(
        operator=OperatorId("source"),
        columns=tuple(Expression(name=name, sql=f"`{name}`") for name in names),
        keys=keys,
        is_updating=updating,
    )


def query(sql: str, *inputs: UpdatingInput, ttl_micros: int | None = None) -> UpdatingQuerySpec:
    return UpdatingQuerySpec(
        id=OperatorId("updating-1"), inputs=inputs, sql=sql, ttl_micros=ttl_micros
    )


def merge(view: Counter[str], changes: Sequence[tuple[str, int]]) -> None:
    """Apply a changelog to what it tells of. What goes must be there."""
    for row, change in sorted(changes, key=lambda each: each[1]):
        assert change in (1, -1)
        view[row] += change
        assert view[row] >= 0, f"{row} went, but was not there"
    for row in [row for row, times in view.items() if not times]:
        del view[row]


def exact(row: Sequence[object]) -> str:
    """A row as text: equal only if all values are, to the bit."""
    return repr(tuple(row))


@dataclass
class UpdatingJob:
    """One updating query with its table on disk; restarted at will."""

    spark: SparkSession
    folder: Path
    operator: UpdatingQuerySpec
    schemas: tuple[str, ...]
    """The columns of each input, as DDL."""
    parallelism: int = 2
    epoch: int = 0
    time: int = 0
    view: Counter[str] = field(default_factory=Counter)
    """All changes, merged."""
    changes: list[tuple[str, int]] = field(default_factory=list)
    """Of the last epoch."""

    def __post_init__(self) -> None:
        self.query = self._open()
        self.live = LiveFiles.none(self.parallelism)

    def _open(self) -> UpdatingQuery:
        partitions = shuffle_partitions(self.parallelism)
        self.spark.conf.set("spark.sql.shuffle.partitions", partitions)
        return UpdatingQuery(
            self.operator,
            [self._frame(number, []) for number in range(len(self.schemas))],
            url=f"file://{self.folder}",
            folder="job/tables/updating-1/rows",
            parallelism=self.parallelism,
        )

    def _frame(self, number: int, rows: Sequence[Row]) -> DataFrame:
        updating = self.operator.inputs[number].is_updating
        columns = self.schemas[number] + (f", {CHANGE} INT" if updating else "")
        return self.spark.createDataFrame(list(rows), columns)

    def restart(self, parallelism: int) -> None:
        """Go on from the table's checkpoint alone, with so many subtasks."""
        checkpoint = self.query.table.checkpoint(self.live)
        self.parallelism = parallelism
        self.query = self._open()
        self.live = self.query.table.load(checkpoint, deal(checkpoint.files, parallelism))

    def run(self, *inputs: Sequence[Row] | None) -> None:
        """One epoch. None: an input that has nothing, and it is known."""
        self.epoch += 1
        given = [
            None if rows is None else self._frame(number, rows)
            for number, rows in enumerate(inputs)
        ]
        self.changes = []
        delta = self.query.delta(given, self.time)
        if delta is None:
            return
        changes = self.take(delta)
        if changes is not None:
            self.changes = [(exact(each[:-1]), each[-1]) for each in changes.collect()]
            merge(self.view, self.changes)
        self.query.release()

    def take(self, delta: DataFrame) -> DataFrame | None:
        """Write an epoch's rows; the changes that they bring."""
        written = self.query.table.write(
            delta, Epoch(self.epoch), Generation(1), after=(self.live, self.time)
        )
        changes = self.query.changes(self.live, written.files, self.time)
        self.live = self.live.appended(written.files)
        return changes

    def compact(self, replaced: frozenset[str] | None = None) -> None:
        """Merge all files, or some."""
        chosen = self.live.paths if replaced is None else replaced
        rows = self.query.merged(self.live, chosen, self.time)
        written = self.query.table.write(rows, Epoch(self.epoch + 1), Generation(1))
        self.live = self.live.exchanged(chosen, written.files)

    def batch(self, *inputs: Sequence[Row]) -> Counter[str]:
        """The batch answer: the same query over these rows, in an order of their own."""
        sql = self.operator.sql
        for number, rows in enumerate(inputs):
            self.spark.createDataFrame(list(rows), self.schemas[number]).createOrReplaceTempView(
                f"batch_{number}"
            )
            sql = sql.replace(f"{{input_{number}}}", f"batch_{number}")
        return Counter(exact(each) for each in self.spark.sql(sql).collect())
