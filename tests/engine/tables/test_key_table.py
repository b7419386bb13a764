"""KeyTable: rows by key in files, found by any number of subtasks, and expired by the state TTL."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StringType, StructField

from resurgence.connectors.exact_rows import ExactRows, net_changes
from resurgence.engine.spark.errors import translate
from resurgence.engine.tables.key_table import NEW, KeyTable
from resurgence.engine.tables.keyed_table import TIME
from resurgence.engine.tables.live_files import LiveFiles
from resurgence.engine.tables.sorted_rows import KEY
from resurgence.errors import DamagedState
from resurgence.graph.values import CHANGE
from resurgence.ids import Epoch, Generation
from resurgence.state.key_groups import deal, owned_groups
from resurgence.state.records import StateFile, TableCheckpoint, TableKind
from resurgence.state.table_schema import schema_faults, table_columns
from tests.engine.harness import forget_cached_state
from tests.engine.updating import UpdatingJob, exact, kept, query

COLUMNS = (StructField("name", StringType()), StructField("value", IntegerType()))
EVENTS = "user STRING, item INT"
COUNTS = query(
    "SELECT user, count(*) AS n FROM {input_0} GROUP BY user", kept(EVENTS, "user", updating=True)
)


@dataclass
class Opened:
    """A table and its files."""

    table: KeyTable
    live: LiveFiles

    def append(self, files: tuple[StateFile, ...]) -> None:
        self.live = self.live.appended(files)

    def read_touched(
        self, spark: SparkSession, fresh: tuple[StateFile, ...]
    ) -> tuple[DataFrame, ...]:
        return self.table.read_touched(spark, self.live, fresh)

    def read(self, spark: SparkSession, only: frozenset[str], time: int) -> tuple[DataFrame, ...]:
        return self.table.read(spark, self.live, only, time)


def open_table(folder: Path, parallelism: int, ttl_micros: int | None = None) -> Opened:
    table = KeyTable(
        url=f"file://{folder}",
        folder="job/tables/x/rows",
        columns=COLUMNS,
        parallelism=parallelism,
        ttl_micros=ttl_micros,
    )
    return Opened(table, LiveFiles.none(parallelism))


def reopened(table: Opened, folder: Path, parallelism: int) -> Opened:
    """The table as another generation loads it, from JSON."""
    stored = table.table.checkpoint(table.live).model_dump_json()
    checkpoint = TableCheckpoint.model_validate_json(stored)
    found = open_table(folder, parallelism, table.table._ttl)
    found.live = found.table.load(checkpoint, deal(checkpoint.files, parallelism))
    return found


def written(
    spark: SparkSession, opened: Opened, epoch: int, rows: list[tuple[str | None, int]]
) -> tuple[StateFile, ...]:
    table = opened.table
    frame = spark.createDataFrame(rows, "name STRING, value INT").selectExpr(
        f"shiftrightunsigned(xxhash64(name), 2) AS {KEY}",
        "*",
        f"1L AS {CHANGE}",
        f"{epoch * 10}L AS {TIME}",
    )
    return table.write(
        table.dealt(frame), Epoch(epoch), Generation(1), after=(opened.live, epoch * 10)
    ).files


def named(frames: tuple[DataFrame, ...]) -> list[tuple[object, ...]]:
    rows = [each for frame in frames for each in frame.select("name", "value", NEW).collect()]
    return sorted((tuple(each) for each in rows), key=repr)


def test_rows_of_touched_keys_are_found_by_any_number_of_subtasks(
    spark: SparkSession, tmp_path: Path
) -> None:
    names: list[str | None] = [None, *(f"name {number}" for number in range(40))]
    table = open_table(tmp_path, 3)
    table.append(written(spark, table, 1, [(each, 1) for each in names]))
    table = reopened(table, tmp_path, 4)
    table.append(written(spark, table, 2, [(each, 2) for each in names[:20]]))
    table = reopened(table, tmp_path, 2)
    fresh = written(spark, table, 3, [(None, 3), ("name 3", 3), ("name 30", 3), ("other", 3)])
    assert named(table.read_touched(spark, fresh)) == sorted(
        [
            *((each, 1, False) for each in (None, "name 3", "name 30")),
            *((each, 2, False) for each in (None, "name 3")),
            *((each, 3, True) for each in (None, "name 3", "name 30", "other")),
        ],
        key=repr,
    )
    table.append(fresh)
    assert len(named(table.read(spark, table.live.paths, 30))) == 41 + 20 + 4
    assert table.live.touched_at == 30
    assert reopened(table, tmp_path, 3).live.touched_at == 30


def test_files_match_their_records(spark: SparkSession, tmp_path: Path) -> None:
    table = open_table(tmp_path, 2)
    files = written(spark, table, 7, [(f"name {number}", number) for number in range(30)])
    table.append(files)
    checkpoint = table.table.checkpoint(table.live)
    assert checkpoint.kind is TableKind.KEY
    assert sum(each.rows for each in files) == 30
    for each in files:
        data = (tmp_path / each.path).read_bytes()
        assert len(data) == each.bytes
        assert (each.time_start, each.time_end) == (70, 70)
        assert each.key_groups & ~owned_groups(each.subtask, 2) == 0
        schema = pq.read_schema(tmp_path / each.path)
        assert list(schema_faults(table_columns(checkpoint.schema_text), schema)) == []


def test_a_damaged_file_is_detected_when_it_is_read(spark: SparkSession, tmp_path: Path) -> None:
    table = open_table(tmp_path, 1)
    table.append(written(spark, table, 1, [("a", 1)]))
    path = tmp_path / table.live.files[0].path
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    fresh = written(spark, table, 2, [("a", 2)])
    assert len(named(table.read_touched(spark, fresh))) == 2, "read from the local disk"
    forget_cached_state(spark)
    with pytest.raises(Exception, match="digest") as raised:
        named(table.read_touched(spark, fresh))
    assert isinstance(translate(raised.value), DamagedState)


def test_only_keys_idle_for_the_state_ttl_expire(spark: SparkSession, tmp_path: Path) -> None:
    table = open_table(tmp_path, 2, ttl_micros=19)
    table.append(written(spark, table, 1, [("idle", 1), ("busy", 1), ("gone", 1)]))
    table.append(written(spark, table, 2, [("busy", 2)]))
    fresh = written(spark, table, 3, [("idle", 3), ("busy", 3)])
    again = [("busy", 1, False), ("busy", 2, False), ("busy", 3, True), ("idle", 3, True)]
    assert named(table.read_touched(spark, fresh)) == again
    table.append(fresh)
    # Expired rows do not reappear when the key is used again.
    table = reopened(table, tmp_path, 3)
    fresh = written(spark, table, 4, [("idle", 4), ("gone", 4)])
    now = [("gone", 4, True), ("idle", 3, False), ("idle", 4, True)]
    assert named(table.read_touched(spark, fresh)) == now
    table.append(fresh)
    # What is merged is not all there is: other files know which keys are in use, and which rows
    # are dead.
    first = frozenset(each.path for each in table.live.files if each.epoch == 1)
    assert named(table.read(spark, first, 40)) == [("busy", 1, False)]
    others = table.live.paths - first
    rows = [("busy", 2, False), ("busy", 3, False), *((each[0], each[1], False) for each in now)]
    markers = [(None, None, False), (None, None, False)]
    assert named(table.read(spark, others, 40)) == sorted([*rows, *markers], key=repr)
    assert (None, None, False) not in named(table.read(spark, first | others, 40))


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_compacting_some_files_changes_no_row(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    job = UpdatingJob(spark, tmp_path, COUNTS, (EVENTS,), parallelism=3)
    held: list[tuple[str, int]] = []
    for _ in range(4):
        gone = rng.sample(held, len(held) // 2)
        added = [(rng.choice("abcde"), rng.randrange(3)) for _ in range(12)]
        held = list((Counter(held) - Counter(gone)).elements()) + added
        job.run([(*each, 1) for each in added] + [(*each, -1) for each in gone])
    some = frozenset(each.path for each in job.live.files if rng.random() < 0.6)
    job.compact(some)
    job.restart(2)
    job.compact()
    assert sum(each.rows for each in job.live.files) == len(set(held))
    job.run([(name, 9, 1) for name in "abcde"])
    assert job.view == job.batch([*held, *((name, 9) for name in "abcde")])


def test_compaction_drops_expired_keys_and_keeps_the_last_access_of_the_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    operator = COUNTS.model_copy(update={"ttl_micros": 100})
    job = UpdatingJob(spark, tmp_path, operator, (EVENTS,), parallelism=1)
    job.run([("idle", 1, 1), ("busy", 1, 1)])
    job.time = 60
    job.run([("busy", 2, 1)])
    job.time = 70
    job.run([("busy", 2, -1)])
    # The rows that came and went are not there any more, but they touched the key.
    job.compact(frozenset(each.path for each in job.live.files if each.epoch > 1))
    job.time = 150
    assert job.query.table.mergeable(job.live, job.time) == job.live.small_files()
    job.compact()
    assert sum(each.rows for each in job.live.files) == 1
    assert {each.time_start for each in job.live.files} == {70}
    job.time = 170
    job.run([("busy", 3, 1), ("idle", 3, 1)])
    assert sorted(job.changes) == [("('busy', 1)", -1), ("('busy', 2)", 1), ("('idle', 1)", 1)]
    job.time = 171 + 200
    assert job.query.table.mergeable(job.live, job.time) == {each.path for each in job.live.files}


def test_rows_are_grouped_bit_by_bit(spark: SparkSession) -> None:
    kinds = {
        "zero": "CAST({} AS DOUBLE)",
        "single": "CAST({} AS FLOAT)",
        "list": "array(CAST({} AS DOUBLE), NULL)",
        "record": "named_struct('a`b', CAST({} AS DOUBLE), 'c', array(map('k', {})))",
        "lookup": "map('x', {}, 'y', CAST(NULL AS DOUBLE))",
    }
    values = ["0.0D", "-0.0D", "double('nan')", "CAST(NULL AS DOUBLE)", "1.5D"]
    rows = spark.sql(
        " UNION ALL ".join(
            "SELECT "
            + ", ".join(f"{sql.format(*[value] * 2)} AS {name}" for name, sql in kinds.items())
            + ", CAST('a' AS BINARY) AS bytes"
            for value in values * 2
        )
    )
    shape = ExactRows(rows.schema)
    grouped = rows.selectExpr(*shape.forms).groupBy(*shape.names).count()
    assert {each["count"] for each in grouped.collect()} == {2}
    restored = grouped.selectExpr(*shape.restored)
    assert restored.dtypes == rows.dtypes
    assert sorted(map(exact, restored.collect())) == sorted(
        {exact(each) for each in rows.collect()}
    )
    turned = spark.sql("SELECT map('b', 1, 'a', 2) AS m UNION ALL SELECT map('a', 2, 'b', 1)")
    shape = ExactRows(turned.schema)
    assert turned.selectExpr(*shape.forms).groupBy(*shape.names).count().count() == 1


def test_equal_inserts_and_deletes_of_a_row_cancel_out(spark: SparkSession) -> None:
    given = {("stays", 0.0): [1, -1], ("goes", 0.0): [-1, 1, -1], ("comes", -0.0): [1, 1]}
    rows = spark.createDataFrame(
        [(*row, change) for row, changes in given.items() for change in changes],
        f"name STRING, value DOUBLE, {CHANGE} INT",
    )
    found = net_changes(rows)
    assert found.dtypes == rows.dtypes
    assert Counter(exact(each) for each in found.collect()) == Counter(
        {exact(("goes", 0.0, -1)): 1, exact(("comes", -0.0, 1)): 2}
    )
