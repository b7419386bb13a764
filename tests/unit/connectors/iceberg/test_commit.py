"""Commits to a table of a SQL catalog: each epoch once, whoever else commits or cleans up."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from tests.iceberg_tables import (
    JOB,
    SINK,
    covering,
    expire_all_but_newest,
    numbered,
    opened_catalog,
    staged_files,
)

from resurgence.connectors.contract import StagedFile
from resurgence.connectors.iceberg.catalogs.catalog import IcebergCatalog
from resurgence.connectors.iceberg.partitioning import partition_terms
from resurgence.connectors.iceberg.writing.commit import Committer, TableChange
from resurgence.connectors.iceberg.writing.data_files import added_file, needs_rewrite
from resurgence.connectors.iceberg.writing.marker import Marker, Writer
from resurgence.connectors.iceberg.writing.sink_table import SinkTable
from resurgence.connectors.lakehouse.options import sort_fields
from resurgence.errors import ConnectionLost, SinkConflict, SinkError, UserError
from resurgence.ids import Epoch

WRITER = Writer(JOB, SINK)


def columns(**types: DataType) -> StructType:
    return StructType([StructField(name, each) for name, each in types.items()])


COLUMNS = columns(id=LongType(), name=StringType())


@pytest.fixture
def catalog(tmp_path: Path) -> IcebergCatalog:
    return opened_catalog(tmp_path)


def prepared(catalog: IcebergCatalog, shape: StructType = COLUMNS, **options: str) -> Table:
    partitions = partition_terms(options.get("partitions"))
    return SinkTable(catalog, "out", partitions, sort_fields(options.get("sort"))).prepare(shape)


def append(catalog: IcebergCatalog, epoch: int, *ids: int) -> bool:
    """Commit an epoch, as any process would."""
    files = staged_files(catalog.load(), numbered(*ids), epoch)
    return committed(catalog, epoch, files)


def committed(catalog: IcebergCatalog, epoch: int, files: Sequence[StagedFile]) -> bool:
    return Committer(catalog, WRITER, sleep=lambda _: None).commit(
        Marker(Epoch(epoch), covering(epoch)),
        lambda table: TableChange([added_file(table, each) for each in files]),
    )


def ids(catalog: IcebergCatalog) -> list[int]:
    return sorted(catalog.load().scan().to_arrow().column("id").to_pylist())


@contextmanager
def at_each_commit(
    monkeypatch: pytest.MonkeyPatch,
    before: list[Callable[[], object]],
    after: list[Callable[[], object]] | None = None,
) -> Iterator[list[int]]:
    """Do one step before, or after, each request of a commit; how many were made."""
    made: list[int] = []
    commit = SqlCatalog.commit_table

    def disturbed(self: SqlCatalog, *arguments: Any) -> Any:
        number = len(made)
        made.append(number)
        if number < len(before):
            before[number]()
        answer = commit(self, *arguments)
        if after and number < len(after):
            after[number]()
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", disturbed)
        yield made


def lost() -> None:
    raise ConnectionResetError("the answer is lost")


def test_an_epoch_is_committed_once_however_often_it_is_tried(catalog: IcebergCatalog) -> None:
    prepared(catalog)
    assert append(catalog, 1, 1, 2)
    assert not append(catalog, 1, 1, 2)
    assert append(catalog, 2, 3)
    assert not append(catalog, 1, 1, 2)
    assert ids(catalog) == [1, 2, 3]


def test_a_zombie_that_was_ahead_of_its_successor_changes_nothing(
    catalog: IcebergCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(catalog)
    files = staged_files(catalog.load(), numbered(1, 2))
    # The zombie has built its commit when its successor commits the same epoch.
    with at_each_commit(
        monkeypatch, [lambda: committed(opened_catalog(tmp_path), 1, files)]
    ) as made:
        assert not committed(catalog, 1, files)
    assert len(made) == 2
    assert ids(catalog) == [1, 2]


def test_a_commit_is_built_anew_when_others_have_committed(
    catalog: IcebergCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(catalog)
    files = staged_files(catalog.load(), numbered(1))
    undone: list[int] = []

    def others_commit() -> None:
        # Their own commit is the next request, which is not disturbed.
        catalog.load().append(numbered(7))

    with at_each_commit(monkeypatch, [others_commit, int, others_commit]) as made:
        Committer(catalog, WRITER, sleep=lambda _: None).commit(
            Marker(Epoch(1), covering(1)),
            lambda table: TableChange(
                [added_file(table, each) for each in files], (), lambda: undone.append(1)
            ),
        )
    assert ids(catalog) == [1, 7, 7]
    assert len(undone) == 2
    assert len(made) == 5


def test_a_lost_answer_is_resolved_by_the_marker(
    catalog: IcebergCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(catalog)
    with at_each_commit(monkeypatch, [], [lost]) as made:
        assert not append(catalog, 1, 1, 2)
    assert len(made) == 1
    assert ids(catalog) == [1, 2]


def test_a_request_that_did_not_arrive_is_repeated(
    catalog: IcebergCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(catalog)
    with at_each_commit(monkeypatch, [lost, lost]) as made:
        assert append(catalog, 1, 1, 2)
    assert len(made) == 3
    assert ids(catalog) == [1, 2]


def test_a_commit_gives_up_after_its_deadline(
    catalog: IcebergCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(catalog)
    clock = iter(range(0, 10_000, 200))
    with at_each_commit(monkeypatch, [lost] * 9), pytest.raises(SinkError, match="cannot be"):
        Committer(catalog, WRITER, lambda: float(next(clock)), lambda _: None).commit(
            Marker(Epoch(1), covering(1)), lambda _: TableChange()
        )


def test_of_many_processes_exactly_one_commits_an_epoch(
    catalog: IcebergCatalog, tmp_path: Path
) -> None:
    prepared(catalog)
    files = staged_files(catalog.load(), numbered(1, 2))
    ready = threading.Barrier(6)

    def commit(_: int) -> bool:
        own = opened_catalog(tmp_path)
        own.load()
        ready.wait(30)
        return committed(own, 1, files)

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(commit, range(6))) == [False] * 5 + [True]
    assert ids(catalog) == [1, 2]


def test_an_epoch_is_known_after_its_snapshot_has_expired(catalog: IcebergCatalog) -> None:
    prepared(catalog)
    append(catalog, 1, 1)
    catalog.load().append(numbered(7))
    expire_all_but_newest(catalog.load())
    assert not append(catalog, 1, 1)
    assert ids(catalog) == [1, 7]


def test_an_epoch_over_other_input_is_refused(catalog: IcebergCatalog) -> None:
    prepared(catalog)
    append(catalog, 1, 1)
    with pytest.raises(SinkConflict, match="holds epoch 1 over other input"):
        Committer(catalog, WRITER).commit(
            Marker(Epoch(1), covering(1, lines=99)), lambda _: TableChange()
        )


def test_every_commit_adds_a_snapshot_so_that_one_under_way_fails(
    catalog: IcebergCatalog,
) -> None:
    prepared(catalog)
    Committer(catalog, WRITER).commit(Marker(Epoch(3)), lambda _: TableChange())
    assert len(catalog.load().snapshots()) == 1
    assert not append(catalog, 2, 1)


def test_files_can_be_replaced_for_ever_with_a_bounded_number_of_manifests(
    catalog: IcebergCatalog,
) -> None:
    with prepared(catalog).transaction() as transaction:
        transaction.set_properties({"commit.manifest.min-count-to-merge": "5"})

    def change(table: Table, epoch: int) -> TableChange:
        files = [
            *staged_files(table, numbered(epoch), epoch),
            *staged_files(table, numbered(100 + epoch), epoch, generation=2),
        ]
        live = [each.file for each in table.scan().plan_files()]
        return TableChange([added_file(table, each) for each in files], live[:1])

    for epoch in range(1, 21):
        marker = Marker(Epoch(epoch), covering(epoch))
        Committer(catalog, WRITER).commit(marker, functools.partial(change, epoch=epoch))
    table = catalog.load()
    newest = table.current_snapshot()
    assert newest is not None
    assert newest.summary is not None
    assert len(newest.manifests(table.io)) < 8
    assert newest.summary["total-data-files"] == "21"
    assert len(ids(catalog)) == 21
    # Older snapshots are as they were.
    assert len(table.scan(snapshot_id=table.snapshots()[9].snapshot_id).to_arrow()) == 11


def test_manifests_of_removed_files_are_dropped_also_where_none_are_merged(
    catalog: IcebergCatalog,
) -> None:
    with prepared(catalog).transaction() as transaction:
        transaction.set_properties({"commit.manifest-merge.enabled": "false"})

    def change(table: Table, epoch: int) -> TableChange:
        files = staged_files(table, numbered(epoch), epoch)
        live = [each.file for each in table.scan().plan_files()]
        return TableChange([added_file(table, each) for each in files], live)

    for epoch in range(1, 6):
        marker = Marker(Epoch(epoch), covering(epoch))
        Committer(catalog, WRITER).commit(marker, functools.partial(change, epoch=epoch))
    newest = catalog.load().current_snapshot()
    assert newest is not None
    assert len(newest.manifests(catalog.load().io)) == 2
    assert ids(catalog) == [5]


def test_transforms_and_statistics_survive_the_record_of_a_file(catalog: IcebergCatalog) -> None:
    wide = columns(
        id=LongType(),
        at=TimestampType(),
        day=DateType(),
        since=TimestampType(),
        price=DecimalType(9, 2),
        name=StringType(),
        x=DoubleType(),
    )
    fields = "hour(at), day, price, truncate(2, name), bucket(4, id), month(day), year(since)"
    table = prepared(catalog, wide, partitions=fields, sort="x DESC")
    at = pa.array([datetime(2024, 2, 29, 10), None], pa.timestamp("us", "UTC"))
    rows = pa.table(
        {
            "id": pa.array([1, 2], pa.int64()),
            "at": at,
            "since": at,
            "day": [date(2024, 2, 29), None],
            "price": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
            "name": ["größe", None],
            "x": [1.5, float("nan")],
        }
    )
    files = staged_files(table, rows)
    assert len(files) == 2
    restored = [StagedFile.model_validate_json(each.model_dump_json()) for each in files]
    assert committed(catalog, 1, restored)
    scanned = catalog.load().scan().to_arrow().sort_by("id")
    assert scanned.select(["id", "name", "day"]).to_pylist() == [
        {"id": 1, "name": "größe", "day": date(2024, 2, 29)},
        {"id": 2, "name": None, "day": None},
    ]
    found = catalog.load().scan("at >= '2024-02-29T09:00:00+00:00' and name = 'größe'").to_arrow()
    assert found.column("id").to_pylist() == [1]
    assert len([*catalog.load().scan("price = 1.50").plan_files()]) == 1
    assert [str(each.transform) for each in catalog.load().spec().fields] == [
        "hour",
        "identity",
        "identity",
        "truncate[2]",
        "bucket[4]",
        "month",
        "year",
    ]


def test_a_file_staged_before_the_partitions_changed_is_written_again(
    catalog: IcebergCatalog,
) -> None:
    (file,) = staged_files(prepared(catalog), numbered(1))
    assert not needs_rewrite(catalog.load(), file)
    assert needs_rewrite(catalog.load(), file.model_copy(update={"rows": 0}))
    with catalog.load().update_spec() as spec:
        spec.add_field("id", "bucket[4]")
    assert needs_rewrite(catalog.load(), file)


def test_a_table_gets_the_columns_that_it_lacks_and_keeps_the_others(
    catalog: IcebergCatalog,
) -> None:
    prepared(catalog)
    append(catalog, 1, 1)
    wider = prepared(catalog, columns(ID=IntegerType(), city=StringType()))
    assert [each.name for each in wider.schema().fields] == ["id", "name", "city"]
    with pytest.raises(UserError, match="column 'name' is of type int64"):
        prepared(catalog, columns(name=LongType()))
    assert ids(catalog) == [1]


def test_a_table_that_does_not_exist_is_named(catalog: IcebergCatalog) -> None:
    assert catalog.find() is None
    with pytest.raises(UserError, match=r"Iceberg table db\.t does not exist"):
        catalog.load()


def test_a_database_that_is_out_of_reach_is_retried(tmp_path: Path) -> None:
    with pytest.raises(ConnectionLost, match="cannot open its catalog"):
        opened_catalog(tmp_path / "missing").load()
