"""Appends of an Iceberg sink, without Spark: crashes, zombies, leftovers and rollbacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableUpdate, update_table_metadata
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType
from tests.iceberg_tables import (
    JOB,
    catalog_options,
    covering,
    expire_all_but_newest,
    numbered,
    opened_catalog,
    staged_files,
)

from resurgence.connectors.commit_log import CommitLog
from resurgence.connectors.connector import SinkDeclaration
from resurgence.connectors.contract import StagedOutput, merged_output
from resurgence.connectors.iceberg.catalogs.catalog import IcebergCatalog
from resurgence.connectors.iceberg.options import IcebergSinkOptions
from resurgence.connectors.iceberg.writing.data_files import location_of
from resurgence.connectors.iceberg.writing.sink import IcebergSink
from resurgence.connectors.iceberg.writing.sink_table import SinkTable
from resurgence.connectors.lakehouse.data_files import files_prefix
from resurgence.errors import SinkConflict, SinkError
from resurgence.ids import NO_EPOCH, Epoch, Generation

COLUMNS = StructType([StructField("id", LongType()), StructField("name", StringType())])
NO_SPARK = cast(SparkSession, None)
"""Appends are committed without Spark."""


class Crash(Exception):
    """The process is gone."""


@dataclass
class Target:
    """A table, a state dir, and sinks as new processes would open them."""

    folder: Path

    def open(self, state: str = "state", *, table: str = "out", suffix: str = "") -> IcebergSink:
        """`suffix` is that of the operator: each INSERT into the table has its own."""
        declared = SinkDeclaration(
            table,
            state_url=f"file://{self.folder}/{state}",
            state_folder=f"job/staged/sink-{table}{suffix}",
        )
        return IcebergSink(IcebergSinkOptions.read(catalog_options(self.folder)), declared)

    @property
    def catalog(self) -> IcebergCatalog:
        return opened_catalog(self.folder)

    def stage(
        self, epoch: int, *ids: int, generation: int = 1, sink: IcebergSink | None = None
    ) -> StagedOutput:
        table = SinkTable(self.catalog, "out", (), ()).prepare(COLUMNS)
        folder = (sink or self.open())._folder
        prefix = f"{files_prefix(folder, JOB, Epoch(epoch), Generation(generation))}-{ids[0]}"
        files = staged_files(table, numbered(*ids), prefix=prefix)
        return StagedOutput(rows=len(ids), files=files)

    def commit(
        self, epoch: int, staged: StagedOutput, sink: IcebergSink | None = None, lines: int = 10
    ) -> None:
        given = covering(epoch, lines)
        (sink or self.open()).commit(NO_SPARK, JOB, Epoch(epoch), staged, given)

    def write(self, epoch: int, *ids: int) -> StagedOutput:
        staged = self.stage(epoch, *ids)
        self.commit(epoch, staged)
        return staged

    def ids(self) -> list[int]:
        return sorted(self.catalog.load().scan().to_arrow().column("id").to_pylist())

    def files(self) -> list[str]:
        """The data files that exist, whether the table refers to them or not."""
        return sorted(each.name for each in self.folder.glob("wh/**/data/resurgence/**/*.parquet"))


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target(tmp_path)


def test_rows_are_invisible_until_their_epoch_is_committed_once(target: Target) -> None:
    staged = target.stage(1, 1, 2)
    assert target.ids() == []
    target.commit(1, staged)
    target.commit(1, staged)
    target.write(2, 3)
    target.commit(1, staged)
    assert target.ids() == [1, 2, 3]


def test_a_commit_computes_the_metadata_once_per_change(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyiceberg copies every snapshot of the table whenever it computes them."""
    staged = target.stage(1, 1)
    computed: list[int] = []

    def counted(base: TableMetadata, updates: tuple[TableUpdate, ...]) -> TableMetadata:
        computed.append(len(updates))
        return update_table_metadata(base, updates)

    with monkeypatch.context() as patch:
        patch.setattr("pyiceberg.table.update_table_metadata", counted)
        target.commit(1, staged)
    # With the properties, and with the snapshot and its reference, too.
    assert computed == [1, 3]
    assert target.ids() == [1]


@pytest.mark.parametrize("step", ["before the record", "after the record", "before the commit"])
def test_an_epoch_is_completed_after_a_crash_at_any_step(
    target: Target, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    staged = target.stage(1, 1, 2)
    fix, request = CommitLog.fix, SqlCatalog.commit_table

    def crashing_fix(self: CommitLog, *arguments: Any) -> Any:
        if step == "before the record":
            raise Crash
        fix(self, *arguments)
        raise Crash

    def crashing_request(self: SqlCatalog, *arguments: Any) -> Any:
        raise Crash

    with monkeypatch.context() as patch, pytest.raises(Crash):
        if step == "before the commit":
            patch.setattr(SqlCatalog, "commit_table", crashing_request)
        else:
            patch.setattr(CommitLog, "fix", crashing_fix)
        target.commit(1, staged)
    assert request is SqlCatalog.commit_table
    target.open().sweep(JOB, Epoch(0))
    # The replay has other files, but the record decides.
    again = target.stage(1, 1, 2, generation=2)
    target.commit(1, again)
    assert target.ids() == [1, 2]
    target.open().sweep(JOB, Epoch(1))
    assert len(target.files()) == 1


def test_an_epoch_that_crashed_after_its_commit_is_not_committed_again(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = target.stage(1, 1, 2)
    request = SqlCatalog.commit_table

    def crashing(self: SqlCatalog, *arguments: Any) -> Any:
        request(self, *arguments)
        raise Crash

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(SqlCatalog, "commit_table", crashing)
        target.commit(1, staged)
    target.commit(1, target.stage(1, 1, 2, generation=2))
    assert target.ids() == [1, 2]


def test_a_replay_in_other_files_does_not_change_what_was_committed(target: Target) -> None:
    target.write(1, 1, 2)
    target.commit(1, target.stage(1, 1, 2, generation=7))
    assert target.ids() == [1, 2]
    assert len(target.files()) == 1


def test_an_epoch_over_other_input_is_refused(target: Target) -> None:
    staged = target.write(1, 1)
    with pytest.raises(SinkConflict, match="over other input"):
        target.commit(1, staged, lines=99)
    with pytest.raises(SinkConflict, match="over other input"):
        target.commit(1, staged, target.open(state="restored"), lines=99)


def test_an_epoch_that_another_copy_of_the_state_dir_has_left_behind_is_a_conflict(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = target.stage(1, 1)
    request = SqlCatalog.commit_table

    def disturbed(self: SqlCatalog, *arguments: Any) -> Any:
        patch.setattr(SqlCatalog, "commit_table", request)
        copy = target.open(state="copy")
        target.commit(1, target.stage(1, 2, generation=2), copy, lines=20)
        target.commit(2, target.stage(2, 3, generation=2), copy, lines=20)
        return request(self, *arguments)

    with (
        monkeypatch.context() as patch,
        pytest.raises(SinkConflict, match="holds epoch 2 of this job, but the state has no record"),
    ):
        patch.setattr(SqlCatalog, "commit_table", disturbed)
        target.commit(1, own)
    with pytest.raises(SinkConflict, match="has no record"):
        target.commit(1, own)
    assert target.ids() == [2, 3]


def test_staged_output_that_was_removed_is_not_committed(target: Target) -> None:
    staged = target.stage(1, 1)
    io = target.catalog.load().io
    (location,) = map(location_of, staged.files)
    io.delete(location)
    with pytest.raises(SinkError, match=r"staged output of .* is missing: 1 data files .*parquet"):
        target.commit(1, staged)
    assert target.ids() == []
    # The files of an epoch that is committed may be gone, as after a compaction.
    with io.new_output(location).create() as restored:
        restored.write(b"from a backup")
    target.commit(1, staged)
    io.delete(location)
    target.commit(1, staged)


def test_the_table_remembers_what_a_restored_state_dir_has_forgotten(target: Target) -> None:
    target.write(1, 1)
    target.write(2, 2)
    expire_all_but_newest(target.catalog.load())
    memory = target.open(state="restored").recall(JOB, [Epoch(1), Epoch(2)])
    assert memory.newest == 2
    assert memory.inputs == {2: covering(2)}
    own = target.open().recall(JOB, [Epoch(1), Epoch(2)])
    assert own.inputs == {1: covering(1), 2: covering(2)}


def test_a_table_that_does_not_exist_holds_nothing(target: Target) -> None:
    sink = target.open()
    assert sink.recall(JOB, [Epoch(1)]).newest == NO_EPOCH
    sink.sweep(JOB, Epoch(1))
    sink.retract(JOB, Epoch(0), Epoch(1))


def test_two_sink_tables_of_a_job_in_one_table_do_not_skip_each_other(target: Target) -> None:
    target.write(1, 1)
    other = target.open(table="other")
    target.commit(1, target.stage(1, 2, sink=other), other)
    assert target.ids() == [1, 2]


# ---------------------------------------------------------------- leftovers


def test_leftovers_are_removed_and_committed_files_are_kept(target: Target) -> None:
    target.stage(1, 1, generation=1)
    staged = target.stage(1, 1, generation=2)
    target.commit(1, staged)
    pending = target.stage(2, 2)
    target.open().sweep(JOB, Epoch(1))
    assert target.files() == ["0000000001-2-1-0.parquet", "0000000002-1-2-0.parquet"]
    target.commit(2, pending)
    assert target.ids() == [1, 2]


def test_a_file_that_a_snapshot_refers_to_is_kept_also_without_its_record(
    target: Target,
) -> None:
    target.write(1, 1)
    target.write(2, 2)
    current = target.catalog.load()
    current.delete("id = 2")
    target.open(state="restored").sweep(JOB, Epoch(2))
    assert len(target.files()) == 2
    assert sorted(
        current.scan(snapshot_id=current.history()[1].snapshot_id).to_arrow()["id"].to_pylist()
    ) == [1, 2]


def write_by_two(target: Target, epoch: int) -> tuple[IcebergSink, IcebergSink]:
    """Commit an epoch of two INSERTs into one table as the engine does: by the first sink."""
    first, second = target.open(), target.open(suffix="-2")
    staged = [target.stage(epoch, epoch), target.stage(epoch, 10 + epoch, sink=second)]
    target.commit(epoch, merged_output(staged), first)
    return first, second


def test_the_sweep_of_a_second_insert_reads_only_what_was_committed_since(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    for epoch in range(1, 7):
        _, second = write_by_two(target, epoch)
    second.sweep(JOB, Epoch(6))
    write_by_two(target, 7)
    target.stage(7, 99, sink=second)
    read: list[str] = []
    fetch = ManifestFile.fetch_manifest_entry

    def counted(self: ManifestFile, *arguments: Any, **named: Any) -> Any:
        read.append(self.manifest_path)
        return fetch(self, *arguments, **named)

    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", counted)
    second.sweep(JOB, Epoch(7))
    assert len(read) == 2
    assert len(target.files()) == 14
    assert target.ids() == [*range(1, 8), *range(11, 18)]


def test_discarded_output_is_removed(target: Target) -> None:
    staged = target.stage(1, 1)
    target.open().discard(staged)
    assert target.files() == []


# ---------------------------------------------------------------- rollback


def retract(target: Target, after: int, up_to: int, sink: IcebergSink | None = None) -> None:
    (sink or target.open()).retract(JOB, Epoch(after), Epoch(up_to))


def test_a_rollback_removes_the_rows_of_dead_epochs_and_their_numbers(target: Target) -> None:
    staged = [target.write(each, each) for each in (1, 2, 3)]
    retract(target, 1, 3)
    retract(target, 1, 3)
    assert target.ids() == [1]
    target.commit(3, staged[2])
    assert target.ids() == [1]
    assert target.open().recall(JOB, ()).newest == 3
    target.write(4, 4)
    assert target.ids() == [1, 4]


@pytest.mark.parametrize("state", ["state", "restored"])
def test_a_rollback_removes_the_rows_of_all_inserts_into_the_table(
    target: Target, state: str
) -> None:
    for epoch in (1, 2, 3):
        write_by_two(target, epoch)
    for suffix in ("", "-2"):
        retract(target, 1, 3, target.open(state, suffix=suffix))
    assert target.ids() == [1, 11]
    write_by_two(target, 4)
    assert target.ids() == [1, 4, 11, 14]


def test_a_rollback_may_reach_back_further_than_the_one_before_it(target: Target) -> None:
    for each in (1, 2, 3):
        target.write(each, each)
    retract(target, 2, 3)
    retract(target, 1, 3)
    assert target.ids() == [1]
    target.write(4, 4)
    retract(target, 0, 4)
    assert target.ids() == []


def test_a_rollback_leaves_what_others_have_appended_since(target: Target) -> None:
    target.write(1, 1)
    target.write(2, 2)
    target.catalog.load().append(numbered(7))
    retract(target, 1, 2)
    assert target.ids() == [1, 7]


def test_a_rollback_works_after_snapshots_have_expired(target: Target) -> None:
    for each in (1, 2, 3):
        target.write(each, each)
    expire_all_but_newest(target.catalog.load())
    retract(target, 1, 3)
    assert target.ids() == [1]


def test_a_rollback_is_refused_if_others_have_rewritten_the_rows(target: Target) -> None:
    target.write(1, 1)
    target.write(2, 2, 3)
    target.catalog.load().delete("id = 3")
    with pytest.raises(SinkConflict, match="merged or rewritten 1 of their files"):
        retract(target, 1, 2)
    assert target.ids() == [1, 2]


def test_a_rollback_continues_once_the_table_was_restored_by_hand(target: Target) -> None:
    target.write(1, 1)
    before = target.catalog.load().metadata.current_snapshot_id
    assert before is not None
    target.write(2, 2, 3)
    target.catalog.load().delete("id = 3")
    target.catalog.load().manage_snapshots().rollback_to_snapshot(before).commit()
    retract(target, 1, 2)
    target.write(3, 9)
    assert target.ids() == [1, 9]


def test_a_rollback_of_epochs_that_were_not_committed_stops_their_zombies(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.write(1, 1)
    staged = target.stage(2, 2)
    request = SqlCatalog.commit_table
    steps: Sequence[Any] = [lambda: retract(target, 1, 2)]
    made: list[int] = []

    def disturbed(self: SqlCatalog, *arguments: Any) -> Any:
        made.append(1)
        if len(made) == 1:
            steps[0]()
        return request(self, *arguments)

    with monkeypatch.context() as patch:
        # The zombie has read its record and built its commit when the epoch is closed.
        patch.setattr(SqlCatalog, "commit_table", disturbed)
        target.commit(2, staged)
    assert target.ids() == [1]
