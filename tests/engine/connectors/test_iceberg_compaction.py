"""Compaction of Iceberg tables beside epochs: the same rows in fewer files.

How it is committed, whoever else commits, is tested in tests/unit/connectors/iceberg.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.table.snapshots import Operation
from pyspark.sql import SparkSession

from resurgence.connectors.iceberg import IcebergSink
from resurgence.connectors.iceberg.writing.marker import Writer
from resurgence.connectors.lakehouse import compaction
from resurgence.connectors.lakehouse.merge_plan import plan_merges
from resurgence.engine.epochs.engine import Engine
from resurgence.errors import SinkConflict
from resurgence.ids import Epoch
from tests.engine.connectors.crashes import Crash
from tests.engine.connectors.iceberg_targets import (
    COLUMNS,
    Target,
    before_each_commit,
    crash,
    sql_target,
)
from tests.engine.harness import Job, Leg, source_table, write_lines
from tests.iceberg_tables import JOB, SINK, numbered

MOST_SECONDS = timedelta(minutes=5)


@pytest.fixture
def target(spark: SparkSession, tmp_path: Path) -> Target:
    return sql_target(spark, tmp_path)


def compacting(target: Target, **options: str) -> IcebergSink:
    return target.open((), **{"compaction__min_files": "3", **options})


def compact(target: Target, sink: IcebergSink | None = None) -> bool:
    """One run, in this thread."""
    made = (sink or compacting(target))._compaction
    assert made is not None
    files = made._table.small_files(made._policy.small_bytes)
    return made._table.merge(target.spark, plan_merges(files, made._policy))


def live(target: Target) -> list[Path]:
    tasks = target.table().scan().plan_files()
    return sorted(Path(each.file.file_path.removeprefix("file://")) for each in tasks)


def compacted_files(target: Target) -> list[Path]:
    return sorted(target.folder.glob("wh/**/data/resurgence/compacted/*.parquet"))


def ids(target: Target) -> list[int]:
    return sorted(target.rows())


def three_epochs(target: Target) -> None:
    for epoch in (1, 2, 3):
        staged = target.stage(epoch, [(epoch, f"n{epoch}")])
        target.commit(epoch, staged)


# ---------------------------------------------------------------- files


def test_small_files_become_one_with_the_same_rows(target: Target) -> None:
    three_epochs(target)
    before = target.table()
    assert compact(target)
    assert ids(target) == [1, 2, 3]
    assert live(target) == compacted_files(target)
    assert len(live(target)) == 1
    newest = target.table().current_snapshot()
    assert newest is not None
    assert newest.summary is not None
    assert newest.summary.operation is Operation.REPLACE
    totals = newest.summary.additional_properties
    assert (totals["total-data-files"], totals["total-records"]) == ("1", "3")
    assert (totals["added-records"], totals["deleted-records"]) == ("3", "3")
    assert target.table().properties == before.properties
    assert Writer(JOB, SINK).read(target.table().properties).epoch == 3
    target.write(4, 4)
    assert ids(target) == [1, 2, 3, 4]


def test_a_replayed_epoch_is_known_after_its_files_were_merged(target: Target) -> None:
    staged = [target.write(epoch, epoch) for epoch in (1, 2, 3)]
    assert compact(target)
    for epoch, each in enumerate(staged, start=1):
        target.commit(epoch, each)
    target.open().sweep(JOB, Epoch(3))
    assert ids(target) == [1, 2, 3]


def test_partitions_and_the_order_of_rows_are_kept(target: Target) -> None:
    options = {"partitioning__fields": "truncate(1, name)", "sort__fields": "id DESC"}
    for epoch in range(1, 5):
        rows = [(epoch * 10 + number, "ab"[number % 2] * epoch) for number in range(6)]
        sink = target.open(**options)
        target.commit(epoch, target.stage(epoch, rows, sink=sink), sink)
    before = target.answer("t")
    assert compact(target, compacting(target, **options))
    assert target.answer("t") == before
    assert len(live(target)) == 2
    for each in live(target):
        found = pq.read_table(each, columns=["id"]).column("id").to_pylist()
        assert len(found) == 12
        assert found == sorted(found, reverse=True)
    pruned = target.table().scan("name = 'aaaa' and id > 41")
    assert len([*pruned.plan_files()]) == 1
    assert sorted(pruned.to_arrow().column("id").to_pylist()) == [42, 44]


def test_files_that_lack_added_columns_are_merged_with_those_that_have_them(
    target: Target,
) -> None:
    target.write(1, 1)
    target.write(2, 2)
    target.commit(3, target.stage(3, [(3, "c", 7)], f"{COLUMNS}, more INT"))
    assert compact(target)
    rows = target.table().scan().to_arrow().sort_by("id").to_pylist()
    assert [each["more"] for each in rows] == [None, None, 7]
    assert len(live(target)) == 1


# ---------------------------------------------------------------- conflicts


def test_a_compaction_gives_up_files_that_an_upsert_has_replaced(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    for epoch in (1, 2, 3):
        target.upsert(epoch, (epoch, "old", 1))
    staged = target.upsert(4, (2, "old", -1), (2, "new", 1), commit=False)
    with before_each_commit(monkeypatch, lambda: target.commit(4, staged, target.open(["id"]))):
        assert not compact(target)
    assert target.rows() == {1: "old", 2: "new", 3: "old"}
    assert compacted_files(target) == []


def test_an_upsert_is_planned_anew_after_a_compaction(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    for epoch in (1, 2, 3):
        target.upsert(epoch, (epoch, "old", 1))
    staged = target.upsert(4, (2, "old", -1), (2, "new", 1), (3, "old", -1), commit=False)
    with before_each_commit(monkeypatch, lambda: compact(target)) as made:
        target.commit(4, staged, target.open(["id"]))
    assert len(made) == 2
    assert target.rows() == {1: "old", 2: "new"}


# ---------------------------------------------------------------- failures


def test_a_crash_before_or_after_its_commit_changes_no_rows(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_epochs(target)
    with before_each_commit(monkeypatch, crash), pytest.raises(Crash):
        compact(target)
    assert ids(target) == [1, 2, 3]
    assert len(live(target)) == 3
    target.write(4, 4)
    assert compact(target)
    target.open().sweep(JOB, Epoch(4))
    assert ids(target) == [1, 2, 3, 4]


def test_what_a_failed_run_has_written_is_deleted(target: Target) -> None:
    options = {"partitioning__fields": "name"}
    for epoch in range(1, 4):
        sink = target.open(**options)
        rows = [(epoch, "a"), (10 + epoch, "b")]
        target.commit(epoch, target.stage(epoch, rows, sink=sink), sink)
    live(target)[-1].unlink()
    with pytest.raises(Exception, match="is part of the table that is updated, but does not exist"):
        compact(target, compacting(target, **options))
    assert compacted_files(target) == []


# ---------------------------------------------------------------- rollback


def test_a_rollback_undoes_compactions(target: Target) -> None:
    for epoch in (1, 2, 3, 4):
        target.write(epoch, epoch)
    assert compact(target)
    target.open().retract(JOB, Epoch(2), Epoch(4))
    assert ids(target) == [1, 2]
    target.write(5, 5)
    assert compact(target)
    assert ids(target) == [1, 2, 5]


def test_a_rollback_of_upserts_undoes_compactions(target: Target) -> None:
    for epoch in (1, 2, 3):
        target.upsert(epoch, (epoch, "old", 1))
    assert compact(target)
    target.upsert(4, (1, "old", -1), (1, "new", 1))
    target.open(["id"]).retract(JOB, Epoch(2), Epoch(4))
    assert target.rows() == {1: "old", 2: "old"}


def test_a_rollback_is_refused_if_rows_of_others_were_merged_with_ours(target: Target) -> None:
    three_epochs(target)
    target.table().append(numbered(100))
    assert compact(target)
    with pytest.raises(SinkConflict, match="merged or rewritten"):
        target.open().retract(JOB, Epoch(2), Epoch(3))
    assert ids(target) == [1, 2, 3, 100]


# ---------------------------------------------------------------- jobs


@pytest.mark.parametrize("keys", ["", "g"])
def test_a_job_compacts_its_table_while_readers_see_whole_epochs(
    target: Target, monkeypatch: pytest.MonkeyPatch, keys: str
) -> None:
    at_once = compaction.Pace(pause=timedelta(0), idle_share=0, retry=timedelta(0))
    monkeypatch.setattr(compaction, "Pace", lambda: at_once)
    count = 60
    path = write_lines(
        target.folder / "events.json", ({"id": each, "g": each % 20} for each in range(count))
    )
    columns = "(g BIGINT, n BIGINT, PRIMARY KEY (g))" if keys else "(id BIGINT, g BIGINT)"
    query = "g, count(*) AS n FROM events GROUP BY g" if keys else "id, g FROM events"
    sql = source_table(path, "id BIGINT, g BIGINT", delay=None)
    sql += target.sql("out", "sink", columns, compaction__min_files="2")
    sql += f"INSERT INTO out SELECT {query};"
    seen: set[int] = set()

    def total() -> int:
        found = target.table("out").scan().to_arrow()
        return sum(found.column("n").to_pylist()) if keys else found.num_rows

    def look(engine: Engine) -> None:
        seen.add(total())
        if engine.epoch == 3:
            # At the latest now there is something to merge.
            (sink,) = engine._pipeline.sinks.values()
            assert isinstance(sink, IcebergSink)
            assert sink._compaction is not None
            for _ in range(2):
                assert sink._compaction.wait(MOST_SECONDS)
                sink._compaction.after_commit(target.spark)
            assert sink._compaction.wait(MOST_SECONDS)

    Job(target.spark, target.folder, sql).run([Leg(rows=10)], look)
    assert total() == count
    assert seen <= {*range(0, count + 1, 10)}
    operations = [
        each.summary.operation for each in target.table("out").snapshots() if each.summary
    ]
    assert Operation.REPLACE in operations
    if keys:
        return
    everything = {"source__offset": "earliest", "source__stop_at": "latest"}
    first = target.table("out").snapshots()[0].snapshot_id
    for start in ("earliest", f'{{"snapshot": {first}}}'):
        name = f"copy{len(start)}"
        source = target.sql(
            "out", "source", "(id BIGINT)", **{**everything, "source__offset": start}
        )
        sql = f"{source}{target.sql(name, 'sink')}INSERT INTO {name} SELECT id FROM out;"
        Job(target.spark, target.folder, sql, name=name).run()
        copied = target.table(name).scan().to_arrow().column("id").to_pylist()
        assert sorted(copied) == [*range(count)]
