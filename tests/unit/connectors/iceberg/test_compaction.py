"""Which files a compaction replaces, whoever else commits. Tasks are replaced: rows are merged here."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType
from tests.iceberg_tables import (
    JOB,
    SINK,
    covering,
    delete_by_position,
    numbered,
    opened_catalog,
    staged_files,
)

from resurgence.connectors.contract import StagedFile
from resurgence.connectors.iceberg.catalogs.catalog import IcebergCatalog
from resurgence.connectors.iceberg.partitioning import partition_terms
from resurgence.connectors.iceberg.writing.commit import Committer, TableChange
from resurgence.connectors.iceberg.writing.compaction import IcebergCompaction
from resurgence.connectors.iceberg.writing.data_files import added_file
from resurgence.connectors.iceberg.writing.marker import Marker, Writer
from resurgence.connectors.iceberg.writing.sink_table import SinkTable
from resurgence.connectors.lakehouse import compaction as lakehouse
from resurgence.connectors.lakehouse.merge_plan import MergePolicy, plan_merges
from resurgence.errors import SinkError
from resurgence.ids import Epoch

COLUMNS = StructType([StructField("id", LongType()), StructField("name", StringType())])
NO_SPARK = cast(SparkSession, None)
POLICY = MergePolicy(min_files=3, target_bytes=1 << 20)


class Compaction(IcebergCompaction):
    """Merges rows in this process."""

    def __init__(self, folder: Path) -> None:
        self.commits = threading.Lock()
        super().__init__(opened_catalog(folder), _no_layout, self.commits, SINK)
        self.lost_rows = 0

    def _write(
        self, spark: SparkSession, table: Table, replaced: Sequence[Sequence[DataFile]]
    ) -> Mapping[int, tuple[StagedFile, ...]]:
        written = {}
        for number, files in enumerate(replaced):
            paths = [each.file_path.removeprefix("file://") for each in files]
            rows = pa.concat_tables([pq.read_table(each) for each in paths])
            prefix = f"resurgence/compacted/{uuid.uuid4().hex}"
            kept = rows.slice(self.lost_rows).select(["id", "name"])
            written[number] = staged_files(table, kept, prefix=prefix)
        return written

    def run(self) -> bool:
        merges = plan_merges(self.small_files(POLICY.small_bytes), POLICY)
        assert merges
        return self.merge(NO_SPARK, merges)


def _no_layout(table: Table, names: Sequence[str]) -> Any:
    raise AssertionError("tasks write nothing")


@pytest.fixture
def catalog(tmp_path: Path) -> IcebergCatalog:
    found = opened_catalog(tmp_path)
    SinkTable(found, "out", (), ()).prepare(COLUMNS)
    return found


def append(catalog: IcebergCatalog, epoch: int, *ids: int) -> None:
    files = staged_files(catalog.load(), numbered(*ids), epoch)
    Committer(catalog, Writer(JOB, SINK)).commit(
        Marker(Epoch(epoch), covering(epoch)),
        lambda table: TableChange([added_file(table, each) for each in files]),
    )


def ids(catalog: IcebergCatalog) -> list[int]:
    return sorted(catalog.load().scan().to_arrow().column("id").to_pylist())


def live(catalog: IcebergCatalog) -> set[str]:
    return {each.file.file_path for each in catalog.load().scan().plan_files()}


def compacted(folder: Path) -> set[str]:
    return {f"file://{each}" for each in folder.glob("wh/**/compacted/*.parquet")}


@contextmanager
def before_each_request(
    monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], object]
) -> Iterator[list[int]]:
    """Do one step before each request of a commit that is not part of a step; how many were made."""
    made: list[int] = []
    commit = SqlCatalog.commit_table
    is_inside = [False]

    def disturbed(self: SqlCatalog, *arguments: Any) -> Any:
        if not is_inside[0]:
            made.append(1)
            if len(made) <= len(steps):
                is_inside[0] = True
                try:
                    steps[len(made) - 1]()
                finally:
                    is_inside[0] = False
        return commit(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", disturbed)
        yield made


def test_files_are_replaced_in_a_snapshot_that_changes_nothing_else(
    catalog: IcebergCatalog, tmp_path: Path
) -> None:
    for epoch in (1, 2, 3):
        append(catalog, epoch, epoch)
    before = catalog.load()
    assert Compaction(tmp_path).run()
    after = catalog.load()
    assert ids(catalog) == [1, 2, 3]
    assert live(catalog) == compacted(tmp_path)
    assert len(live(catalog)) == 1
    newest = after.current_snapshot()
    assert newest is not None
    assert newest.summary is not None
    assert newest.summary.operation is Operation.REPLACE
    counts = newest.summary.additional_properties
    assert (counts["added-records"], counts["deleted-records"]) == ("3", "3")
    assert (counts["total-data-files"], counts["total-records"]) == ("1", "3")
    assert after.properties == before.properties
    assert Writer(JOB, SINK).epoch_of(counts) is None


def test_a_run_that_would_lose_rows_is_given_up(catalog: IcebergCatalog, tmp_path: Path) -> None:
    for epoch in (1, 2, 3):
        append(catalog, epoch, epoch)
    made = Compaction(tmp_path)
    made.lost_rows = 1
    with pytest.raises(SinkError, match="has lost rows"):
        made.run()
    assert ids(catalog) == [1, 2, 3]
    assert compacted(tmp_path) == set()


def test_commits_of_epochs_and_others_in_between_do_not_matter(
    catalog: IcebergCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for epoch in (1, 2, 3):
        append(catalog, epoch, epoch)
    steps = (lambda: catalog.load().append(numbered(100)), lambda: append(catalog, 4, 4))
    with before_each_request(monkeypatch, *steps) as made:
        assert Compaction(tmp_path).run()
    assert len(made) == 3
    assert ids(catalog) == [1, 2, 3, 4, 100]
    assert len(live(catalog)) == 3


def test_an_epoch_can_be_committed_between_two_attempts(
    catalog: IcebergCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for epoch in (1, 2, 3):
        append(catalog, epoch, epoch)
    made, turns = Compaction(tmp_path), list[bool]()

    def pause(_seconds: float) -> None:
        turns.append(made.commits.acquire(blocking=False))
        append(catalog, 4, 4)
        made.commits.release()

    monkeypatch.setattr(lakehouse, "time", SimpleNamespace(sleep=pause, monotonic=time.monotonic))
    with before_each_request(monkeypatch, lambda: catalog.load().append(numbered(100))):
        assert made.run()
    assert turns == [True]
    assert ids(catalog) == [1, 2, 3, 4, 100]


@pytest.mark.parametrize("disturbance", ["delete", "merge-on-read", "compaction", "partitions"])
def test_files_that_others_have_changed_are_given_up(
    catalog: IcebergCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disturbance: str
) -> None:
    for epoch in (1, 2, 3):
        append(catalog, epoch, epoch)

    def other_partitions() -> None:
        with catalog.load().update_spec() as spec:
            spec.add_field("name", "identity")
        # Without a snapshot, the commit would not be refused.
        append(catalog, 4)

    steps: Mapping[str, Callable[[], object]] = {
        "delete": lambda: catalog.load().delete("id = 3"),
        "merge-on-read": lambda: delete_by_position(catalog.load(), tmp_path),
        "compaction": Compaction(tmp_path).run,
        "partitions": other_partitions,
    }
    with before_each_request(monkeypatch, steps[disturbance]):
        assert not Compaction(tmp_path).run()
    left = {"delete": 2, "merge-on-read": 2}.get(disturbance, 3)
    assert len(ids(catalog)) == left
    assert compacted(tmp_path) <= live(catalog)


def test_files_of_other_partitions_are_merged_when_some_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = opened_catalog(tmp_path)
    SinkTable(catalog, "out", partition_terms("bucket(2, id)"), ()).prepare(COLUMNS)
    for epoch in (1, 2, 3):
        append(catalog, epoch, *range(epoch * 10, epoch * 10 + 10))
    assert len(live(catalog)) == 6
    with before_each_request(monkeypatch, lambda: catalog.load().delete("id = 11")):
        assert not Compaction(tmp_path).run()
    assert ids(catalog) == [10, *range(12, 40)]
    assert len(live(catalog)) == 4
    assert len(compacted(tmp_path)) == 1


def test_files_with_deletes_and_of_older_partitions_are_left_alone(
    catalog: IcebergCatalog, tmp_path: Path
) -> None:
    for epoch in (1, 2, 3, 4):
        append(catalog, epoch, epoch)
    delete_by_position(catalog.load(), tmp_path)
    assert len(Compaction(tmp_path).small_files(1 << 20)) == 3
    with catalog.load().update_spec() as spec:
        spec.add_field("name", "identity")
    assert Compaction(tmp_path).small_files(1 << 20) == []


def test_a_commit_whose_answer_was_lost_is_known(
    catalog: IcebergCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for epoch in (1, 2, 3):
        append(catalog, epoch, epoch)
    commit = SqlCatalog.commit_table

    def lost(self: SqlCatalog, *arguments: Any) -> Any:
        commit(self, *arguments)
        raise ConnectionResetError("the answer is lost")

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", lost)
        assert Compaction(tmp_path).run()
    assert ids(catalog) == [1, 2, 3]
    assert compacted(tmp_path) == live(catalog)


def test_a_commit_whose_answer_was_lost_is_known_after_its_file_was_replaced(
    catalog: IcebergCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for epoch in (1, 2, 3):
        append(catalog, epoch, epoch)
    commit = SqlCatalog.commit_table
    made: list[int] = []

    def lost(self: SqlCatalog, *arguments: Any) -> Any:
        answer = commit(self, *arguments)
        made.append(1)
        if len(made) == 1:
            catalog.load().delete("id = 1")
            raise ConnectionResetError("the answer is lost")
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", lost)
        assert Compaction(tmp_path).run()
    assert ids(catalog) == [2, 3]
    # Older snapshots have it.
    assert len(compacted(tmp_path)) == 1


def test_files_stay_while_their_commit_may_still_arrive(
    catalog: IcebergCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for epoch in (1, 2, 3):
        append(catalog, epoch, epoch)

    def lost(_self: SqlCatalog, *_arguments: Any) -> Any:
        raise ConnectionResetError("the request is under way")

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", lost)
        with pytest.raises(SinkError, match="it is not known whether"):
            Compaction(tmp_path).run()
    assert len(compacted(tmp_path)) == 1
    assert Compaction(tmp_path).run()
    assert ids(catalog) == [1, 2, 3]
