"""Compaction of Delta tables beside epochs: the same rows in fewer files, whoever else commits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from resurgence.connectors.contract import StagedFile
from resurgence.connectors.delta import DeltaSink
from resurgence.connectors.delta.log import Version, read_version
from resurgence.connectors.delta.table import SinkTable, application_id
from resurgence.connectors.lakehouse import compaction
from resurgence.connectors.lakehouse.merge_plan import plan_merges
from resurgence.connectors.lakehouse.merged_files import write_merged
from resurgence.engine.epochs.engine import Engine
from resurgence.engine.spark.errors import translate
from resurgence.errors import SinkConflict, SinkError, SinkFileMissing, UserError
from resurgence.graph.values import CHANGE
from resurgence.ids import Epoch
from resurgence.storage.object_store import ObjectStore
from tests.engine.connectors.crashes import crash_at_every_step
from tests.engine.connectors.delta_tables import (
    COLUMNS,
    JOB,
    STEPS,
    Target,
    before_each_commit,
    other_rows,
)
from tests.engine.harness import Job, Leg, source_table, write_lines

MOST_SECONDS = timedelta(minutes=5)
AT_ONCE = compaction.Pace(pause=timedelta(0), idle_share=0, retry=timedelta(0))


@pytest.fixture
def target(spark: SparkSession, tmp_path: Path) -> Target:
    return Target(spark, f"file://{tmp_path}/table", f"file://{tmp_path}/state")


def compacting(target: Target, *keys: str, **options: str) -> DeltaSink:
    return target.open(keys, **{"compaction__min_files": "3", **options})


def compact(target: Target, sink: DeltaSink | None = None) -> bool:
    """One run, in this thread."""
    made = (sink or compacting(target))._compaction
    assert made is not None
    files = made._table.small_files(made._policy.small_bytes)
    return made._table.merge(target.spark, plan_merges(files, made._policy))


def newest_version(target: Target) -> Version:
    found = read_version(ObjectStore(target.url), target.table.version())
    assert found is not None
    return found


def compacted_files(target: Target) -> set[str]:
    return {each.path for each in ObjectStore(target.url).list("resurgence/compacted")}


def live_paths(target: Target) -> set[str]:
    return {each.removeprefix(f"{target.url.removeprefix('file://')}/") for each in uris(target)}


def uris(target: Target) -> list[str]:
    return [each.removeprefix("file://") for each in target.table.file_uris()]


def four_epochs(target: Target) -> None:
    for epoch in range(1, 5):
        target.write(epoch, epoch)


# ---------------------------------------------------------------- files


def test_small_files_become_one_with_the_same_rows(target: Target) -> None:
    four_epochs(target)
    assert compact(target)
    assert target.ids() == [1, 2, 3, 4]
    assert len(uris(target)) == 1
    version = newest_version(target)
    assert version.is_ours
    assert version.moves_rows
    assert version.changed_rows == ()
    assert version.transactions == {}
    assert target.table.transaction_version(application_id(JOB, "out")) == 4
    target.write(5, 5)
    assert target.ids() == [1, 2, 3, 4, 5]


def test_a_replayed_epoch_is_known_after_its_files_were_merged(target: Target) -> None:
    staged = [target.write(epoch, epoch) for epoch in (1, 2, 3)]
    assert compact(target)
    for epoch, each in enumerate(staged, start=1):
        target.commit(epoch, each)
    target.open().sweep(JOB, Epoch(3))
    assert target.ids() == [1, 2, 3]


def test_partitions_and_the_order_of_rows_are_kept(target: Target) -> None:
    options = {"partitioning__fields": "name", "sort__fields": "id DESC"}
    for epoch in range(1, 5):
        rows = [(epoch * 10 + number, "ab"[number % 2]) for number in range(6)]
        sink = target.open(**options)
        target.commit(epoch, target.stage(epoch, rows, sink=sink), sink)
    before = sorted(map(str, target.table.to_pyarrow_table().to_pylist()))
    assert len(uris(target)) > 6
    assert compact(target, compacting(target, **options))
    assert sorted(map(str, target.table.to_pyarrow_table().to_pylist())) == before
    assert len(uris(target)) == 2
    for each in uris(target):
        ids = pyarrow.parquet.read_table(each, columns=["id"]).column("id").to_pylist()
        assert len(ids) == 12
        assert ids == sorted(ids, reverse=True)
    pruned = target.table.to_pyarrow_table(filters=[("name", "=", "a"), ("id", ">", 40)])
    assert sorted(pruned.column("id").to_pylist()) == [42, 44]


def test_files_that_lack_added_columns_are_merged_with_those_that_have_them(
    target: Target,
) -> None:
    target.write(1, 1)
    target.write(2, 2)
    target.commit(3, target.stage(3, [(3, "c", 7)], f"{COLUMNS}, more INT"))
    assert compact(target)
    rows = target.table.to_pyarrow_table().sort_by("id").to_pylist()
    assert [each["more"] for each in rows] == [None, None, 7]


def test_a_table_that_is_append_only_can_be_compacted(target: Target) -> None:
    write_deltalake(target.url, other_rows(9), configuration={"delta.appendOnly": "true"})
    four_epochs(target)
    assert compact(target)
    assert target.ids() == [1, 2, 3, 4, 9]
    assert len(uris(target)) == 1


def test_a_table_whose_rules_would_not_be_kept_is_not_compacted(target: Target) -> None:
    four_epochs(target)
    target.table.alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(UserError, match="it has the constraint positive"):
        compact(target)


def test_files_with_deletion_vectors_are_left_alone(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    four_epochs(target)
    kept = uris(target)[0]
    names = frozenset([kept.rsplit("/", 1)[1]])
    with monkeypatch.context() as patch:
        patch.setattr(SinkTable, "names_with_deletion_vectors", lambda _self: names)
        assert compact(target)
    assert len(uris(target)) == 2
    assert kept in uris(target)
    # One that appears while files are merged.
    target.write(5, 5)
    found = iter([frozenset[str](), frozenset([uris(target)[0].rsplit("/", 1)[1]])])
    with monkeypatch.context() as patch:
        patch.setattr(SinkTable, "names_with_deletion_vectors", lambda _self: next(found))
        assert not compact(target)
    assert target.ids() == [1, 2, 3, 4, 5]


# ---------------------------------------------------------------- conflicts


def test_commits_of_epochs_and_others_in_between_do_not_matter(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    four_epochs(target)
    staged = target.stage(5, [(5, "e")])
    steps = (
        lambda: write_deltalake(target.url, other_rows(100), mode="append"),
        # This is an attempt of its own.
        lambda: target.commit(5, staged),
    )
    with before_each_commit(monkeypatch, *steps) as made:
        assert compact(target)
    assert len(made) == 4
    assert target.ids() == [1, 2, 3, 4, 5, 100]
    assert len(uris(target)) == 3


@pytest.mark.parametrize("disturbance", ["upsert", "delete", "optimize", "compaction"])
def test_a_compaction_gives_up_files_that_others_have_replaced(
    target: Target, monkeypatch: pytest.MonkeyPatch, disturbance: str
) -> None:
    for epoch in (1, 2, 3):
        target.upsert(epoch, (epoch, "old", 1))
    staged = target.upsert(4, (2, "old", -1), (2, "new", 1), commit=False)
    steps: Mapping[str, Callable[[], object]] = {
        "upsert": lambda: target.commit(4, staged, target.open(["id"])),
        "delete": lambda: target.table.delete("id = 3"),
        "optimize": lambda: target.table.optimize.compact(),
        "compaction": lambda: compact(target),
    }
    with before_each_commit(monkeypatch, steps[disturbance]):
        assert not compact(target)
    expected = {1: "old", 2: "old", 3: "old"}
    if disturbance == "upsert":
        expected[2] = "new"
    if disturbance == "delete":
        del expected[3]
    assert target.rows() == expected
    assert compacted_files(target) <= live_paths(target)


def test_files_of_other_partitions_are_merged_when_some_are_lost(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"partitioning__fields": "name"}
    for epoch in range(1, 4):
        sink = target.open(**options)
        rows = [(epoch, "a"), (10 + epoch, "b")]
        target.commit(epoch, target.stage(epoch, rows, sink=sink), sink)
    with before_each_commit(monkeypatch, lambda: target.table.delete("id = 2")):
        assert not compact(target, compacting(target, **options))
    assert target.ids() == [1, 3, 11, 12, 13]
    assert len(uris(target)) == 3
    assert compacted_files(target) <= live_paths(target)
    assert len(compacted_files(target)) == 1


def test_an_upsert_is_planned_anew_after_a_compaction(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    for epoch in (1, 2, 3):
        target.upsert(epoch, (epoch, "old", 1))
    staged = target.upsert(4, (2, "old", -1), (2, "new", 1), (3, "old", -1), commit=False)
    with before_each_commit(monkeypatch, lambda: compact(target)) as made:
        target.commit(4, staged, target.open(["id"]))
    assert len(made) == 3
    assert target.rows() == {1: "old", 2: "new"}


def test_commits_of_epochs_and_compactions_of_a_process_exclude_each_other(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    four_epochs(target)
    sink = compacting(target)
    held: list[bool] = []
    commit = SinkTable.commit

    def noted(self: SinkTable, *arguments: Any, **named: Any) -> None:
        held.append(sink._commits.locked())
        commit(self, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(SinkTable, "commit", noted)
        assert compact(target, sink)
        target.write(5, 5, sink=sink)
    assert held == [True, True]
    assert not sink._commits.locked()
    assert sink._compaction is not None
    assert sink._compaction.wait(MOST_SECONDS)


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_commit_whose_answer_was_lost_is_known(
    target: Target, monkeypatch: pytest.MonkeyPatch, is_replaced: bool
) -> None:
    four_epochs(target)
    commit = SinkTable.commit

    def lost(self: SinkTable, *arguments: Any, **named: Any) -> None:
        commit(self, *arguments, **named)
        if is_replaced:
            target.table.delete("id = 1")
        raise OSError("connection reset")

    with monkeypatch.context() as patch:
        patch.setattr(SinkTable, "commit", lost)
        assert compact(target)
    assert target.ids() == [1, 2, 3, 4][is_replaced:]
    # Older versions still need it.
    assert len(compacted_files(target)) == 1
    assert is_replaced or compacted_files(target) == live_paths(target)


def test_files_stay_while_their_commit_may_still_arrive(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    four_epochs(target)
    with monkeypatch.context() as patch:
        patch.setattr(SinkTable, "commit", lambda *_, **__: (_ for _ in ()).throw(OSError("lost")))
        with pytest.raises(SinkError, match="it is not known whether"):
            compact(target)
    assert len(compacted_files(target)) == 1
    assert compact(target)
    assert target.ids() == [1, 2, 3, 4]


def test_what_a_failed_run_has_written_is_deleted(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    four_epochs(target)

    def failing(*arguments: Any, **named: Any) -> None:
        write_merged(*arguments, **named)
        assert len(compacted_files(target)) == 1
        raise RuntimeError("a task failed")

    with monkeypatch.context() as patch:
        patch.setattr("resurgence.connectors.delta.writing.compaction.write_merged", failing)
        with pytest.raises(RuntimeError, match="a task failed"):
            compact(target)
    assert compacted_files(target) == set()


def test_files_whose_rows_are_not_as_many_as_the_log_says_are_not_merged(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    four_epochs(target)

    def less(rows: DataFrame, *arguments: Any) -> Mapping[int, Sequence[StagedFile]]:
        return write_merged(rows.where("id <> 3"), *arguments)

    with monkeypatch.context() as patch:
        patch.setattr("resurgence.connectors.delta.writing.compaction.write_merged", less)
        with pytest.raises(SinkError, match="4 files of the table have 3 rows, but its log says 4"):
            compact(target)
    assert compacted_files(target) == set()
    assert target.ids() == [1, 2, 3, 4]


def test_a_file_that_is_missing_is_an_error_of_the_table(target: Target) -> None:
    four_epochs(target)
    Path(uris(target)[-1]).unlink()
    with pytest.raises(Exception, match="is part of the table") as caught:
        compact(target)
    assert isinstance(translate(caught.value), SinkFileMissing)


def test_a_compaction_that_crashes_at_any_step_changes_no_rows(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs = itertools.count(1)
    expected: list[int] = []

    def three_more() -> None:
        for epoch in itertools.islice(epochs, 3):
            target.write(epoch, epoch)
            expected.append(epoch)

    def act() -> None:
        compact(target)

    def check() -> None:
        assert target.ids() == expected
        three_more()

    three_more()
    assert crash_at_every_step(monkeypatch, STEPS, act, check) >= 2
    assert len(uris(target)) < len(expected)


# ---------------------------------------------------------------- rollback


def test_a_rollback_undoes_compactions(target: Target) -> None:
    four_epochs(target)
    assert compact(target)
    target.open().retract(JOB, Epoch(2), Epoch(4))
    assert target.ids() == [1, 2]
    target.write(5, 5)
    assert compact(target)
    assert target.ids() == [1, 2, 5]


def test_a_rollback_says_that_a_compaction_has_mixed_rows_of_others_with_ours(
    target: Target,
) -> None:
    four_epochs(target)
    write_deltalake(target.url, other_rows(100), mode="append")
    assert compact(target)
    with pytest.raises(
        SinkConflict, match=r"since: version 5 \(WRITE\), and version 6 has merged files"
    ):
        target.open().retract(JOB, Epoch(2), Epoch(4))
    assert target.ids() == [1, 2, 3, 4, 100]


def test_a_rollback_is_refused_if_the_merged_files_were_vacuumed(target: Target) -> None:
    four_epochs(target)
    assert compact(target)
    target.table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(SinkConflict, match="which it had then, was vacuumed"):
        target.open().retract(JOB, Epoch(2), Epoch(4))
    assert target.ids() == [1, 2, 3, 4]


# ---------------------------------------------------------------- jobs


def test_a_sink_compacts_its_table_after_commits_until_the_job_ends(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "Pace", lambda: AT_ONCE)
    sink = compacting(target)

    def write(*epochs: int) -> None:
        for epoch in epochs:
            target.write(epoch, epoch, sink=sink)
            assert sink._compaction is not None
            assert sink._compaction.wait(MOST_SECONDS)

    write(1, 2, 3)
    assert len(uris(target)) == 1
    sink.flush(target.spark, JOB, Epoch(4), lambda: None, datetime.now(UTC))
    write(4, 5, 6)
    assert len(uris(target)) == 2
    sink.flush(target.spark, JOB, Epoch(7), lambda: None)
    write(7, 8, 9)
    assert len(uris(target)) == 5
    assert target.ids() == [*range(1, 10)]


@pytest.mark.parametrize("keys", ["", "g"])
def test_a_job_compacts_its_table_while_readers_see_whole_epochs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: str
) -> None:
    monkeypatch.setattr(compaction, "Pace", lambda: AT_ONCE)
    rows = 60
    write_lines(tmp_path / "events.json", ({"id": each, "g": each % 30} for each in range(rows)))
    columns = "(g BIGINT, n BIGINT, PRIMARY KEY (g))" if keys else "(id BIGINT, g BIGINT)"
    query = "g, count(*) AS n FROM events GROUP BY g" if keys else "id, g FROM events"
    sql = source_table(tmp_path / "events.json", "id BIGINT, g BIGINT", delay=None) + (
        f"CREATE TABLE out {columns} WITH (connector = 'delta', path = '{tmp_path}/out',"
        f" type = 'sink', 'compaction.min_files' = '2'); INSERT INTO out SELECT {query};"
    )
    seen: set[int] = set()

    def total() -> int:
        found = DeltaTable(tmp_path / "out").to_pyarrow_table()
        return sum(found.column("n").to_pylist()) if keys else found.num_rows

    def look(engine: Engine) -> None:
        seen.add(total())
        if engine.epoch == 3:
            # At the latest now there is something to merge.
            (sink,) = engine._pipeline.sinks.values()
            assert isinstance(sink, DeltaSink)
            assert sink._compaction is not None
            for _ in range(2):
                assert sink._compaction.wait(MOST_SECONDS)
                sink._compaction.after_commit(spark)
            assert sink._compaction.wait(MOST_SECONDS)

    Job(spark, tmp_path, sql).run([Leg(rows=10)], look)
    assert total() == rows
    assert seen <= {*range(0, rows + 1, 10)}
    store = ObjectStore(f"file://{tmp_path}/out")
    versions = [
        read_version(store, number) for number in range(DeltaTable(tmp_path / "out").version())
    ]
    assert [each for each in versions if each is not None and each.moves_rows]


def test_a_changelog_of_a_compacted_table_has_no_more_changes(target: Target) -> None:
    columns = f"{COLUMNS}, {CHANGE} INT"
    sink = compacting(target, "id")
    for epoch in (1, 2, 3):
        target.commit(epoch, target.stage(epoch, [(epoch, "a", 1)], columns, sink=sink), sink)
    assert sink._compaction is not None
    assert sink._compaction.wait(MOST_SECONDS)
    assert compact(target) or len(uris(target)) == 1
    feed = target.table.load_cdf(starting_version=1).read_all()
    assert sorted(feed.column("id").to_pylist()) == [1, 2, 3]
