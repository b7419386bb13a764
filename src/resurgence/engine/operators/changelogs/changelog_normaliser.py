"""Converts changes by key into a changelog: whole rows, and a retraction of the previous row for
each row that is replaced or deleted.

A record of such a source upserts a row, deletes one by its key, or truncates the table. An upsert
may lack values that the database did not send; they stay unchanged.

State is one KeyTable `rows`. The records of a key in one epoch are folded into one row, by their
position in the input; it describes what the epoch did to the key. The rows of a key in several
epochs are folded in the same way, by epoch, and so are those that a compaction merges. Compaction
therefore merges only files that are adjacent in time. It leaves one row per key, and none of a
deleted key once all files are merged.

An epoch writes its folded rows, in one Spark job with one shuffle. Then each subtask reads the rows
of the touched keys and folds them twice, without the epoch's row and with it. The changes are the
difference. A truncate drops all files before it: the epoch is folded again from the records after
the truncate, and all keys are compared.

Within one epoch, changes are net: a key emits at most one retraction and one insertion.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructField, StructType

from resurgence.connectors.exact_rows import quoted
from resurgence.connectors.formats.debezium.types import unavailable_sql
from resurgence.engine.operators.changelogs.row_changes import RowChanges
from resurgence.engine.spark.empty_rows import empty_rows
from resurgence.engine.tables.key_table import NEW, KeyTable
from resurgence.engine.tables.keyed_table import TIME
from resurgence.engine.tables.live_files import LiveFiles, run_bytes, runs
from resurgence.engine.tables.observed import observed
from resurgence.engine.tables.sorted_rows import KEY
from resurgence.graph.specs.normalise import NormaliseSpec
from resurgence.graph.values import CHANGE, OPERATION, POSITION
from resurgence.ids import Epoch
from resurgence.state.records import StateFile

RESET = "__reset"
"""The column that marks rows whose key was deleted before: older values are ignored."""

_LAST, _RESET_AT = "__last", "__reset_at"
_BEFORE, _AFTER = "__before", "__after"


class ChangelogNormaliser:
    """The operator compiled against the columns of its source."""

    def __init__(
        self,
        operator: NormaliseSpec,
        rows: DataFrame,
        *,
        url: str,
        folder: str,
        parallelism: int,
    ) -> None:
        """`rows` is empty and has the columns of the source."""
        self._spark: SparkSession = rows.sparkSession
        self._keys = [quoted(each) for each in operator.keys]
        self._columns = [each for each in rows.schema if each.name not in (OPERATION, POSITION)]
        self._parallelism = parallelism
        self._cached: DataFrame | None = None
        self._difference: RowChanges | None = None
        self.table = KeyTable(
            url=url,
            folder=folder,
            columns=(*self._columns, StructField(RESET, BooleanType())),
            parallelism=parallelism,
        )
        nothing = empty_rows(self._spark, self.table.schema)
        self.shape = self._changes(nothing.selectExpr("*", f"false AS {NEW}"))
        """The columns of its changes, without rows: those of the source and `CHANGE`."""

    # ---------------------------------------------------------------- append

    def delta(self, rows: DataFrame, epoch: Epoch, after: int | None = None) -> DataFrame:
        """Return the effect of an epoch on each key, in the columns of the table. With `after`,
        only of records after that position.
        """
        condition = f"{OPERATION} <> 'truncate'"
        if after is not None:
            condition += f" AND {POSITION} > {after}L"
        keys = ", ".join(self._keys)
        keyed = rows.where(condition).selectExpr(
            f"shiftrightunsigned(xxhash64({keys}), 2) AS {KEY}",
            *(quoted(each.name) for each in self._columns),
            f"false AS {RESET}",
            f"IF({OPERATION} = 'delete', -1L, 1L) AS {CHANGE}",
            f"{POSITION} AS {TIME}",
        )
        folded = self._folded(self.table.shuffled(keyed))
        return self.table.gathered(folded.withColumn(TIME, F.lit(epoch).cast("bigint")))

    def inserted(self, rows: DataFrame) -> DataFrame:
        """Return the rows that records insert into an empty table."""
        names = (quoted(each.name) for each in self._columns)
        return rows.where(f"{OPERATION} = 'upsert'").selectExpr(*names, f"1 AS {CHANGE}")

    def changes(
        self, live: LiveFiles, files: tuple[StateFile, ...], *, truncated: bool
    ) -> DataFrame | None:
        """Return the changes by new files, which are added to the live ones, or replace them if the
        table was truncated; None if nothing changes. They are valid until `release`.
        """
        subtasks = self.table.read_touched(self._spark, live, files, all_keys=truncated)
        changes = [self._changes(each, from_new=truncated) for each in subtasks]
        if not changes:
            return None
        self._cached = functools.reduce(DataFrame.unionAll, changes).persist()
        return self._cached

    def release(self) -> None:
        """Drop the cached rows of the last changes."""
        if self._cached is not None:
            self._cached.unpersist()
            self._cached = None

    # ---------------------------------------------------------------- fold

    def _folded(self, rows: DataFrame) -> DataFrame:
        """Fold the rows of each key into one, in the order of `TIME`."""
        folded = rows.groupBy(KEY, *self._keys).agg(*self._aggregates("", "true"))
        return folded.selectExpr(
            KEY,
            *self._values(""),
            f"`{_RESET_AT}` IS NOT NULL AS {RESET}",
            f"`{_LAST}`.{CHANGE} AS {CHANGE}",
            f"`{_LAST}`.{TIME} AS {TIME}",
        )

    def _aggregates(self, prefix: str, only: str) -> list[Column]:
        """Return one pass over the rows of a key: the last row, the time of the last reset, and the
        last known value of each column that may lack it.
        """
        names = [each.name for each in self._columns]
        last = ", ".join(map(quoted, [*names, CHANGE, TIME]))
        calls = [
            f"max_by(struct({last}), {TIME}) FILTER (WHERE {only}) AS `{prefix}{_LAST}`",
            f"max({TIME}) FILTER (WHERE {only} AND ({RESET} OR {CHANGE} < 0))"
            f" AS `{prefix}{_RESET_AT}`",
        ]
        for number, each in enumerate(self._columns):
            missing = unavailable_sql(quoted(each.name), each.dataType)
            if missing is not None:
                known = f"{only} AND {CHANGE} > 0 AND NOT coalesce({missing}, false)"
                calls.append(
                    f"max_by(struct({TIME} AS at, {quoted(each.name)} AS value), {TIME})"
                    f" FILTER (WHERE {known}) AS `{prefix}{number}`"
                )
        return [F.expr(each) for each in calls]

    def _values(self, prefix: str) -> list[str]:
        """Return the columns of the folded row. A value comes from an older row only if no reset is
        in between. If there is no value at all, the placeholder of the source is used.
        """
        values = []
        for number, each in enumerate(self._columns):
            name = quoted(each.name)
            value = f"`{prefix}{_LAST}`.{name}"
            if unavailable_sql(value, each.dataType) is not None:
                known = f"`{prefix}{number}`"
                is_valid = f"{known}.at >= coalesce(`{prefix}{_RESET_AT}`, {known}.at)"
                value = f"IF({is_valid}, {known}.value, {value})"
            values.append(f"{value} AS {name}")
        return values

    # ---------------------------------------------------------------- changes

    def _changes(self, rows: DataFrame, *, from_new: bool = False) -> DataFrame:
        """Return the difference between the rows of each key without the new row and with it. With
        `from_new`, rows that are not new are ignored in the latter.
        """
        sides = {_BEFORE: f"NOT {NEW}", _AFTER: NEW if from_new else "true"}
        calls = [call for side, only in sides.items() for call in self._aggregates(side, only)]
        pairs = rows.groupBy(KEY, *self._keys).agg(*calls)
        pairs = pairs.selectExpr(*(self._row(side) for side in sides))
        if self._difference is None:
            kind = pairs.schema[_AFTER].dataType
            assert isinstance(kind, StructType)
            self._difference = RowChanges(_BEFORE, _AFTER, kind)
        return self._difference.of(pairs)

    def _row(self, side: str) -> str:
        """Return one side of the difference: a struct of the columns, null if there is no row."""
        values = ", ".join(self._values(side))
        return f"IF(`{side}{_LAST}`.{CHANGE} > 0, struct({values}), NULL) AS {side}"

    # ---------------------------------------------------------------- compaction

    def mergeable(self, live: LiveFiles) -> frozenset[str]:
        """Return the paths of files worth merging: the newest ones, up to the oldest that is no
        larger than all newer ones together. All rows of the other files are older.
        """
        newest = sorted(
            runs(live.files), key=lambda run: max(each.time_end for each in run), reverse=True
        )
        chosen, size = 0, 0
        for number, run in enumerate(newest):
            if size and run_bytes(run) * self._parallelism <= size:
                chosen = number + 1
            size += run_bytes(run)
        if not chosen:
            return frozenset()
        files = live.files
        start = min(each.time_start for run in newest[:chosen] for each in run)
        while any(each.time_start < start <= each.time_end for each in files):
            start = min(each.time_start for each in files if each.time_end >= start)
        return frozenset(each.path for each in files if each.time_end >= start)

    def merged(self, live: LiveFiles, replaced: frozenset[str]) -> DataFrame:
        """Return the merged rows of some files, one per key, to be written as their replacement."""
        is_whole = replaced >= live.paths
        parts: Sequence[DataFrame] = self.table.read(self._spark, live, replaced, 0)
        merged = [self._folded(each.drop(NEW)) for each in parts]
        if is_whole:
            merged = [each.where(f"{CHANGE} > 0") for each in merged]
        return functools.reduce(DataFrame.unionAll, merged)


def truncation(rows: DataFrame) -> tuple[DataFrame, Observation]:
    """Return rows of the source with an observation of the position of their last truncate."""
    observation = Observation()
    last = F.expr(f"max(IF({OPERATION} = 'truncate', {POSITION}, NULL)) AS truncated_at")
    return rows.observe(observation, last), observation


def truncated_at(observation: Observation) -> int | None:
    """Return the observed position, once a Spark job has read the rows."""
    found = observed(observation).get("truncated_at")
    return None if found is None else int(found)
