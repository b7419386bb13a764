"""Delta sinks on real tables: each epoch once, whoever else commits, crashes or cleans up."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from resurgence.connectors.contract import StagedOutput
from resurgence.connectors.delta.table import SinkTable, application_id
from resurgence.connectors.delta.writing.commit_record import record_of
from resurgence.connectors.lookups.files import FilePart
from resurgence.engine.spark.errors import translate
from resurgence.errors import MessageRefused, SinkConflict, SinkError, UserError
from resurgence.graph.values import CHANGE
from resurgence.ids import Epoch, Generation
from tests.engine.connectors.crashes import crash_at_every_step
from tests.engine.connectors.delta_tables import (
    COLUMNS,
    JOB,
    STEPS,
    WRITES,
    Target,
    before_each_commit,
    covering,
    other_rows,
)
from tests.engine.harness import Job, batch, random_legs, source_table, write_lines


@pytest.fixture
def target(spark: SparkSession, tmp_path: Path) -> Target:
    return Target(spark, f"file://{tmp_path}/table", f"file://{tmp_path}/state")


# ---------------------------------------------------------------- append


def test_rows_are_invisible_until_their_epoch_is_committed_once(target: Target) -> None:
    first = target.stage(1, [(1, "a"), (2, "b")])
    assert first.rows == 2
    assert target.ids() == []
    target.commit(1, first)
    target.commit(1, first)
    target.open().commit(target.spark, JOB, Epoch(1), first, covering(1))
    assert target.rows() == {1: "a", 2: "b"}
    target.write(2, 3)
    target.commit(1, first)
    assert target.ids() == [1, 2, 3]
    assert target.table.version() == 2


def test_a_zombie_commits_what_was_fixed_first(target: Target) -> None:
    ours = target.stage(1, [(1, "a")])
    zombie = target.stage(1, [(1, "a")], generation=2)
    sinks = target.open(), target.open()
    target.commit(1, ours, sinks[0])
    target.commit(1, zombie, sinks[1])
    assert target.ids() == [1]
    target.open().sweep(JOB, Epoch(1))
    left = [each.path for each in sinks[0]._store.list("resurgence")]
    assert left == [each.path for each in ours.files]


def test_an_attempt_that_staged_nothing_completes_what_an_earlier_one_has_fixed(
    target: Target,
) -> None:
    staged = target.stage(1, [(1, "a"), (2, "b")])
    target.open()._log.fix(JOB, Epoch(1), record_of(staged), covering(1))
    target.commit(1, StagedOutput())
    assert target.ids() == [1, 2]
    target.commit(2, StagedOutput())
    assert target.table.version() == 1


def test_of_two_commits_at_the_same_time_one_succeeds(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = target.stage(1, [(1, "a")])
    with before_each_commit(monkeypatch, lambda: target.commit(1, staged)):
        target.commit(1, staged)
    assert target.ids() == [1]
    assert target.table.version() == 1


def test_a_sweep_in_another_thread_does_not_move_the_version_of_a_commit(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = target.stage(1, [(1, "a")])
    sink = target.open()

    def commit_elsewhere_and_sweep() -> None:
        target.commit(1, staged)
        sink.sweep(JOB, Epoch(1))

    with before_each_commit(monkeypatch, commit_elsewhere_and_sweep):
        target.commit(1, staged, sink)
    assert target.table.version() == 1


def test_other_writers_commit_in_between(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    target.write(1, 1)
    staged = target.stage(2, [(2, "b")])
    with before_each_commit(
        monkeypatch,
        lambda: write_deltalake(target.url, other_rows(100), mode="append"),
        lambda: target.table.delete("id = 1"),
        lambda: target.table.optimize.compact(),
    ) as made:
        target.commit(2, staged)
    assert len(made) == 3 + (target.table.version() > 4)
    assert target.ids() == [2, 100]


@pytest.mark.parametrize("error", [OSError("connection reset"), SystemExit()])
def test_a_commit_whose_answer_was_lost_is_not_repeated(
    target: Target, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    target.write(1, 1)
    staged = target.stage(2, [(2, "b")])
    commit = SinkTable.commit

    def lost(self: SinkTable, *arguments: Any) -> None:
        commit(self, *arguments)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(SinkTable, "commit", lost)
        if isinstance(error, OSError):
            target.commit(2, staged)
        else:
            with pytest.raises(SystemExit):
                target.commit(2, staged)
    target.commit(2, staged)
    assert target.ids() == [1, 2]
    assert target.table.version() == 2


def test_a_commit_that_fails_is_an_error_and_can_be_repeated(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = target.stage(1, [(1, "a")])

    def unreachable(_self: SinkTable, *_arguments: Any) -> None:
        raise OSError("connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(SinkTable, "commit", unreachable)
        with pytest.raises(SinkError, match="epoch 1 could not be committed: connection refused"):
            target.commit(1, staged)
    assert target.ids() == []
    target.commit(1, staged)
    assert target.ids() == [1]


def test_an_epoch_is_known_after_compaction_vacuum_and_log_cleanup(target: Target) -> None:
    first = target.write(1, 1)
    second = target.write(2, 2)
    table = target.table
    table.optimize.compact()
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})
    table.create_checkpoint()
    table.cleanup_metadata()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert not [*Path(target.url.removeprefix("file://")).glob("_delta_log/*01.json")]
    for epoch, staged in ((1, first), (2, second)):
        target.commit(epoch, staged)
    assert target.ids() == [1, 2]
    assert target.open().recall(JOB, ()).newest == 2
    target.write(3, 3)
    assert target.ids() == [1, 2, 3]


def test_an_older_copy_of_the_state_is_a_conflict(target: Target) -> None:
    target.write(1, 1)
    staged = target.write(2, 2)
    older = Target(target.spark, target.url, f"{target.state}-older")
    assert older.open().recall(JOB, (Epoch(1),)).newest == 2
    with pytest.raises(
        SinkConflict, match="holds epoch 2 of this job, but the state has no record"
    ):
        older.commit(2, staged)


def test_an_epoch_over_other_input_is_a_conflict(target: Target) -> None:
    staged = target.write(1, 1)
    with pytest.raises(SinkConflict, match="over other input"):
        target.open().commit(target.spark, JOB, Epoch(1), staged, covering(1, rows=11))


def test_sweeping_spares_committed_files_and_newer_epochs(target: Target) -> None:
    target.write(1, 1)
    dead = target.stage(2, [(2, "dead")])
    ours = target.stage(2, [(2, "ours")], generation=2)
    target.commit(2, ours)
    newer = target.stage(3, [(3, "c")])
    sink = target.open()
    sink.sweep(JOB, Epoch(2))
    left = {each.path for each in sink._store.list("resurgence")}
    assert left.isdisjoint(each.path for each in dead.files)
    assert left.issuperset(each.path for each in (*ours.files, *newer.files))
    target.commit(3, newer)
    sink.forget(JOB, Epoch(3))
    target.open().sweep(JOB, Epoch(3))
    assert target.rows() == {1: "n1", 2: "ours", 3: "c"}


# ---------------------------------------------------------------- crashes


def test_a_commit_that_crashes_at_any_step_is_completed_once(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.write(1, 0)
    epochs = itertools.count(2)
    staged: dict[int, StagedOutput] = {}
    expected = [0]

    def act() -> None:
        epoch = max(staged)
        target.commit(epoch, staged[epoch])

    def check() -> None:
        expected.append(max(staged))
        assert target.ids() == expected
        begin()

    def begin() -> None:
        epoch = next(epochs)
        staged[epoch] = target.stage(epoch, [(epoch, "x")])

    begin()
    assert crash_at_every_step(monkeypatch, STEPS, act, check) >= 4


def test_a_retraction_that_crashes_at_any_step_is_completed_once(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.write(1, 0)
    epochs = itertools.count(2)
    dead = [next(epochs)]
    target.write(dead[0], dead[0])

    def act() -> None:
        target.open().retract(JOB, Epoch(dead[-1] - 1), Epoch(dead[-1]))

    def check() -> None:
        assert target.ids() == [0]
        dead.append(next(epochs))
        target.write(dead[-1], dead[-1])

    assert crash_at_every_step(monkeypatch, STEPS, act, check) >= 4


def test_an_upsert_that_crashes_at_any_step_is_completed_once(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.upsert(1, (0, "n1", 1), (1, "kept", 1))
    staged: dict[int, StagedOutput] = {}

    def begin(epoch: int) -> None:
        changes = (0, f"n{epoch - 1}", -1), (0, f"n{epoch}", 1)
        staged[epoch] = target.upsert(epoch, *changes, commit=False)

    def act() -> None:
        epoch = max(staged)
        target.commit(epoch, staged[epoch], target.open(["id"]))

    def check() -> None:
        assert target.rows() == {0: f"n{max(staged)}", 1: "kept"}
        begin(max(staged) + 1)

    begin(2)
    # The record, the new files' commit, the deletion of the staged changes.
    assert crash_at_every_step(monkeypatch, WRITES, act, check) >= 3


def test_a_retraction_of_upserts_that_crashes_at_any_step_is_completed_once(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.upsert(1, (0, "a", 1), (1, "kept", 1))
    dead = [1]

    def begin() -> None:
        dead.append(dead[-1] + 1)
        target.upsert(dead[-1], (0, "a", -1), (0, "dead", 1))

    def act() -> None:
        target.open(["id"]).retract(JOB, Epoch(dead[-1] - 1), Epoch(dead[-1]))

    def check() -> None:
        assert target.rows() == {0: "a", 1: "kept"}
        begin()

    begin()
    assert crash_at_every_step(monkeypatch, WRITES, act, check) >= 3


# ---------------------------------------------------------------- columns and files

TYPED = (
    "id BIGINT, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, price DECIMAL(10,2), ok BOOLEAN,"
    " score DOUBLE, tags ARRAY<STRING>, place STRUCT<x: INT, y: STRING>, raw BINARY"
)
ROWS = [
    (
        number,
        date(2024, 2, 28 + number % 2) if number % 5 else None,
        datetime(2024, 1, 1, 10, 0, 0, number, tzinfo=UTC),
        datetime(2024, 1, 1, 10, 0, 0, number),
        Decimal("1.25") * number,
        bool(number % 3),
        float("nan") if number == 7 else number / 4,
        [str(number), None],
        (number, None) if number % 2 else None,
        bytes([number]),
    )
    for number in range(20)
]


def test_all_types_are_read_back_by_partition_and_in_order(target: Target) -> None:
    sink = target.open(partitioning__fields="day, ok", sort__fields="price DESC")
    frame = target.spark.createDataFrame(ROWS, TYPED).repartition(2)
    target.commit(1, sink.stage(frame, JOB, Epoch(1), Generation(1)), sink)
    table = target.table
    assert table.metadata().partition_columns == ["day", "ok"]
    found = sorted(table.to_pyarrow_table().to_pylist(), key=lambda row: row["id"])
    expected = [row.asDict(recursive=True) for row in frame.orderBy("id").collect()]
    for row, wanted in zip(found, expected, strict=True):
        assert row["at"].astimezone(UTC) == datetime(2024, 1, 1, 10, 0, 0, row["id"], tzinfo=UTC)
        del row["at"], wanted["at"]
        assert repr({**row, "raw": bytes(row["raw"])}) == repr(
            {name: bytes(each) if name == "raw" else each for name, each in wanted.items()}
            if list(row) == list(wanted)
            else {name: wanted[name] for name in row}
        )
    for each in table.file_uris():
        prices = pa.parquet.read_table(each.removeprefix("file://")).column("price").to_pylist()
        assert prices == sorted(prices, reverse=True)
    pruned = table.to_pyarrow_table(filters=[("id", "=", 7)])
    assert pruned.column("id").to_pylist() == [7]
    for name, above, count in (("score", 4.0, 3), ("price", Decimal("20.1"), 3)):
        assert table.to_pyarrow_table(filters=[(name, ">", above)]).num_rows == count


def test_files_are_rolled_at_their_target_size(target: Target) -> None:
    frame = target.spark.range(0, 60_000, 1, 1).selectExpr("id", "uuid() AS name")
    sink = target.open(rolling_policy__file_size="300kB")
    staged = sink.stage(frame, JOB, Epoch(1), Generation(1))
    target.commit(1, staged, sink)
    assert len(staged.files) > 2
    assert len(target.ids()) == 60_000


def test_columns_are_added_and_other_differences_are_refused(target: Target) -> None:
    target.write(1, 1)
    target.commit(2, target.stage(2, [(2, "b", 7)], "id BIGINT, NAME STRING, more INT"))
    rows = target.table.to_pyarrow_table().sort_by("id").to_pylist()
    assert rows == [
        {"id": 1, "name": "n1", "more": None},
        {"id": 2, "name": "b", "more": 7},
    ]
    target.write(3, 3)
    with pytest.raises(UserError, match=r"'id' is string, but .* has it as bigint"):
        target.stage(4, [("x", "b")], "id STRING, name STRING")
    with pytest.raises(UserError, match="is partitioned by nothing"):
        target.stage(4, [(1, "b")], sink=target.open(partitioning__fields="name"))
    with pytest.raises(UserError, match="there is no column 'nam'"):
        target.stage(4, [(1, "b")], sink=target.open(sort__fields="nam"))


def test_tables_with_rules_that_would_not_be_kept_are_refused(target: Target) -> None:
    write_deltalake(target.url, other_rows(1))
    target.table.alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(UserError, match="it has the constraint positive"):
        target.open().check()
    with pytest.raises(UserError, match="it has the constraint positive"):
        target.stage(1, [(-1, "a")])


def test_nulls_in_required_columns_are_refused(target: Target) -> None:
    required = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    DeltaTable.create(target.url, required)
    target.commit(1, target.stage(1, [(1, None)]))
    with pytest.raises(Exception, match="null") as caught:
        target.stage(2, [(None, "a")])
    assert isinstance(translate(caught.value), MessageRefused)


# ---------------------------------------------------------------- upsert


def test_a_changelog_is_applied_by_key(target: Target) -> None:
    target.upsert(1, (1, "a", 1), (2, "b", 1), (3, "c", 1))
    assert target.rows() == {1: "a", 2: "b", 3: "c"}
    target.upsert(2, (1, "a", -1), (1, "A", 1), (2, "b", -1), (4, "d", 1))
    assert target.rows() == {1: "A", 3: "c", 4: "d"}
    target.upsert(3, (1, "A", -1), (3, "c", -1), (4, "d", -1))
    assert target.rows() == {}
    assert target.table.version() == 3
    left = target.open()._log._store.list("job/staged/sink-out")
    assert [each.path for each in left if "/staged/0" in each.path] == []


def test_a_key_may_be_null(target: Target) -> None:
    target.commit(
        1,
        target.stage(
            1, [(None, "a", 1), (1, "b", 1)], f"{COLUMNS}, {CHANGE} INT", sink=target.open(["id"])
        ),
        target.open(["id"]),
    )
    target.commit(
        2,
        target.stage(
            2,
            [(None, "a", -1), (None, "A", 1)],
            f"{COLUMNS}, {CHANGE} INT",
            sink=target.open(["id"]),
        ),
        target.open(["id"]),
    )
    assert target.rows() == {None: "A", 1: "b"}


def test_only_files_with_changed_keys_are_rewritten(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    for epoch, first in ((1, 0), (2, 100), (3, 200)):
        target.upsert(epoch, *((first + each, "old", 1) for each in range(10)))
    before = {*target.table.file_uris()}
    read: list[str] = []
    parts = FilePart.__init__

    def noted(self: FilePart, path: str, *arguments: Any, **named: Any) -> None:
        read.append(path)
        parts(self, path, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(FilePart, "__init__", noted)
        target.upsert(4, (105, "old", -1), (105, "new", 1), (999, "new", 1))
    after = {*target.table.file_uris()}
    assert len(before - after) == 1
    assert not [each for each in read if "/0000000001-" in each]
    assert len(target.rows()) == 31
    assert target.rows()[105] == "new"


@pytest.mark.parametrize("disturbance", ["compact", "append", "delete", "same epoch"])
def test_an_upsert_is_repeated_on_the_version_of_others(
    target: Target, monkeypatch: pytest.MonkeyPatch, disturbance: str
) -> None:
    target.upsert(1, (1, "a", 1), (2, "b", 1))
    target.upsert(2, (3, "c", 1))
    staged = target.upsert(3, (1, "a", -1), (1, "A", 1), commit=False)
    steps: Mapping[str, Callable[[], object]] = {
        "compact": lambda: target.table.optimize.compact(),
        "append": lambda: write_deltalake(target.url, other_rows(1, 9), mode="append"),
        "delete": lambda: target.table.delete("id = 2"),
        "same epoch": lambda: target.commit(3, staged, target.open(["id"])),
    }
    with before_each_commit(monkeypatch, steps[disturbance]) as made:
        target.commit(3, staged, target.open(["id"]))
    expected = {1: "A", 2: "b", 3: "c"}
    if disturbance == "append":
        expected[9] = "other"
    if disturbance == "delete":
        del expected[2]
    assert target.rows() == expected
    assert len(made) == 2
    live = {each.rsplit("/", 1)[1] for each in target.table.file_uris()}
    stored = {each.path.rsplit("/", 1)[1] for each in target.open()._store.list("resurgence")}
    assert {each for each in stored if each.startswith("0000000003")} <= live


def test_an_upsert_of_a_partitioned_table_moves_rows(target: Target) -> None:
    sink = target.open(["id"], partitioning__fields="name")
    columns = f"{COLUMNS}, {CHANGE} INT"
    first = target.stage(1, [(1, "a", 1), (2, "a", 1), (3, "b", 1)], columns, sink=sink)
    target.commit(1, first, sink)
    second = target.stage(2, [(1, "a", -1), (1, "b", 1), (3, "b", -1)], columns, sink=sink)
    target.commit(2, second, sink)
    assert target.rows() == {1: "b", 2: "a"}


def test_an_empty_text_in_a_key_that_partitions_the_table_is_refused_before_it_is_stored_as_null(
    target: Target,
) -> None:
    sink = target.open(["id", "name"], partitioning__fields="name")
    columns = f"{COLUMNS}, {CHANGE} INT"
    kept = target.stage(1, [(1, "a", 1), (1, None, 1)], columns, sink=sink)
    target.commit(1, kept, sink)
    with pytest.raises(Exception, match="key column 'name' of a row is an empty text") as raised:
        target.stage(2, [(1, "", 1)], columns, sink=sink)
    assert isinstance(translate(raised.value), MessageRefused)
    again = target.stage(2, [(1, None, -1), (1, None, 1)], columns, sink=sink)
    target.commit(2, again, sink)
    assert len(target.table.to_pyarrow_table()) == 2
    # Where the column is no key, no change is looked up by it.
    appended = target.stage(3, [(2, "")], sink=sink)
    target.commit(3, appended, sink)
    assert target.table.to_pyarrow_table(filters=[("id", "=", 2)])["name"].to_pylist() == [None]


def test_an_upsert_is_not_committed_to_a_table_that_lacks_one_of_its_columns_by_then(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.upsert(1, (1, "a", 1))
    staged = target.upsert(2, (2, "b", 1), commit=False)

    def replace() -> None:
        kept = target.table.to_pyarrow_table().select(["id"])
        write_deltalake(target.url, kept, mode="overwrite", schema_mode="overwrite")

    with (
        before_each_commit(monkeypatch, replace),
        pytest.raises(UserError, match="it has no column 'name' any more"),
    ):
        target.commit(2, staged, target.open(["id"]))
    assert target.ids() == [1]
    target.open(["id"]).retract(JOB, Epoch(1), Epoch(2))
    target.upsert(3, (2, "b", 1))
    assert target.rows() == {1: None, 2: "b"}


def test_columns_are_added_again_when_somebody_removed_them_while_the_job_runs(
    target: Target,
) -> None:
    sink = target.open()
    target.write(1, 1, sink=sink)
    kept = pa.table({"id": pa.array([7], pa.int64())})
    write_deltalake(target.url, kept, mode="overwrite", schema_mode="overwrite")
    sink.recall(JOB, ())
    target.write(2, 2, sink=sink)
    assert target.rows() == {7: None, 2: "n2"}


def test_upserts_of_append_only_tables_are_refused(target: Target) -> None:
    write_deltalake(target.url, other_rows(1), configuration={"delta.appendOnly": "true"})
    with pytest.raises(UserError, match="append-only"):
        target.upsert(1, (1, "a", 1))
    target.write(1, 2)
    assert target.ids() == [1, 2]


# ---------------------------------------------------------------- rollback


def test_a_rollback_restores_the_version_before(target: Target) -> None:
    for epoch in (1, 2, 3):
        target.write(epoch, epoch)
    target.table.optimize.compact()
    zombie = target.stage(3, [(3, "zombie")], generation=7)
    target.open().retract(JOB, Epoch(1), Epoch(3))
    assert target.ids() == [1]
    target.open().retract(JOB, Epoch(1), Epoch(3))
    target.commit(3, zombie)
    assert target.ids() == [1]
    assert target.open().recall(JOB, ()).retracted == ((2, 3),)
    target.write(4, 40)
    assert target.ids() == [1, 40]


def test_a_rollback_of_upserts_restores_replaced_rows(target: Target) -> None:
    target.upsert(1, (1, "a", 1), (2, "b", 1))
    target.upsert(2, (1, "a", -1), (1, "A", 1), (2, "b", -1))
    target.open(["id"]).retract(JOB, Epoch(1), Epoch(2))
    assert target.rows() == {1: "a", 2: "b"}


def test_a_rollback_that_was_interrupted_is_completed(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.write(1, 1)
    target.write(2, 2)
    sink = target.open()
    with monkeypatch.context() as patch:
        patch.setattr(sink._log, "mark_retracted", lambda *_: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception):
            sink.retract(JOB, Epoch(1), Epoch(2))
    version = target.table.version()
    target.open().retract(JOB, Epoch(1), Epoch(2))
    assert target.table.version() == version
    assert target.ids() == [1]


def test_a_rollback_removes_appended_files_beside_those_of_others(target: Target) -> None:
    target.write(1, 1)
    target.write(2, 2)
    write_deltalake(target.url, other_rows(100), mode="append")
    target.write(3, 3)
    target.open().retract(JOB, Epoch(1), Epoch(3))
    assert target.ids() == [1, 100]


def test_a_rollback_is_refused_if_others_have_mixed_their_rows_with_ours(target: Target) -> None:
    target.write(1, 1)
    target.write(2, 2)
    write_deltalake(target.url, other_rows(100), mode="append")
    target.table.optimize.compact()
    with pytest.raises(SinkConflict, match=r"somebody else has written .* version 3 \(WRITE\)"):
        target.open().retract(JOB, Epoch(1), Epoch(2))
    assert target.ids() == [1, 2, 100]
    target.table.restore(1)
    target.open().retract(JOB, Epoch(1), Epoch(2))
    assert target.ids() == [1]


def test_a_rollback_without_output_still_fences_zombies(target: Target) -> None:
    target.write(1, 1)
    zombie = target.stage(2, [(2, "zombie")])
    target.open().retract(JOB, Epoch(1), Epoch(3))
    target.commit(2, zombie)
    assert target.ids() == [1]
    assert target.table.transaction_version(application_id(JOB, "out")) == 3


# ---------------------------------------------------------------- jobs


EVENTS = [{"id": number, "kind": "abc"[number * 7 % 3], "n": number % 11} for number in range(300)]
EVENT_COLUMNS = "id BIGINT, kind TEXT, n BIGINT"


def job(spark: SparkSession, folder: Path, sink: str, query: str) -> Job:
    write_lines(folder / "events.json", EVENTS)
    sql = source_table(folder / "events.json", EVENT_COLUMNS, delay=None)
    return Job(spark, folder, f"{sql}{sink}INSERT INTO out {query}")


def as_texts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted(repr(sorted(each.items())) for each in rows)


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("SELECT id, kind, n FROM events WHERE n > 2", ""),
        ("SELECT kind, n, count(*) AS c, sum(id) AS s FROM events GROUP BY kind, n", "kind, n"),
    ],
)
def test_jobs_write_the_batch_answer(
    spark: SparkSession, tmp_path: Path, query: str, keys: str
) -> None:
    columns = {
        "": "(id BIGINT, kind TEXT, n BIGINT)",
        "kind, n": "(kind TEXT, n BIGINT, c BIGINT, s BIGINT, PRIMARY KEY (kind, n))",
    }[keys]
    sink = (
        f"CREATE TABLE out {columns} WITH (connector = 'delta', path = '{tmp_path}/out',"
        " type = 'sink', 'partitioning.fields' = 'kind');\n"
    )
    made = job(spark, tmp_path, sink, query)
    made.run(random_legs(3, 300, 4, (2, 1)))
    found = DeltaTable(tmp_path / "out").to_pyarrow_table().to_pylist()
    answer = batch(spark, tmp_path / "events.json", EVENT_COLUMNS, query).collect()
    assert as_texts(found) == as_texts([each.asDict() for each in answer])
