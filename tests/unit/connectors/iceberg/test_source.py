"""Ranges of snapshots: which files a source plans, and which snapshots it refuses."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import BadRequestError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT
from pyiceberg.types import StringType
from tests.iceberg_tables import catalog_options, delete_by_position, expire_all_but_newest

from resurgence.connectors.connector import SourceDeclaration
from resurgence.connectors.formats.contract import Format
from resurgence.connectors.iceberg.formats import CHANGE_DATA_FEED, ROWS
from resurgence.connectors.iceberg.options import IcebergLookupOptions, IcebergSourceOptions
from resurgence.connectors.iceberg.reading.file_reader import FilePiece, ReadColumns, _reader
from resurgence.connectors.iceberg.reading.lookup import IcebergLookup
from resurgence.connectors.iceberg.reading.snapshots import TablePosition
from resurgence.connectors.iceberg.reading.source import IcebergSource
from resurgence.connectors.iceberg.reading.source_table import CHANGE_ID, gone_from_history
from resurgence.connectors.iceberg.reading.table_files import accesses
from resurgence.errors import SourceError, SourceRangeGone, UserError
from resurgence.graph.values import Column
from resurgence.state.records import InputRange, Offset

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    found = SqlCatalog(
        "default", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/wh"
    )
    found.create_namespace("db")
    found.create_table("db.t", SCHEMA)
    return found


def source(tmp_path: Path, kind: Format = ROWS, **options: str) -> IcebergSource:
    """The source of a job that begins with all rows by default."""
    given = {
        "source.offset": "earliest",
        **catalog_options(tmp_path),
        **{f"source.{name}": each for name, each in options.items()},
    }
    columns = (Column(name="id", type="BIGINT"), Column(name="NAME", type="STRING"))
    declared = SourceDeclaration("numbers", columns, format=kind)
    return IcebergSource(IcebergSourceOptions.read(given), declared)


def append(catalog: SqlCatalog, *ids: int) -> int:
    """The snapshot of appended rows."""
    table = catalog.load_table("db.t")
    table.append(pa.table({"id": ids, "name": [f"n{each}" for each in ids]}, schema=SCHEMA))
    current = table.current_snapshot()
    assert current is not None
    return current.snapshot_id


class _Replacement(_OverwriteFiles):
    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        return Summary(Operation.REPLACE)


def compact(table: Table) -> None:
    """Rewrite all files into one, as a compaction does."""
    rows = table.scan().to_arrow()
    files = [each.file for each in table.scan().plan_files()]
    with table.transaction() as transaction:
        operation = _Replacement(Operation.REPLACE, transaction, table.io)
        with operation:
            for each in files:
                operation.delete_data_file(each)
            from pyiceberg.io.pyarrow import _dataframe_to_data_files

            for added in _dataframe_to_data_files(table.metadata, rows, table.io):
                operation.append_data_file(added)


class Reading:
    """Reads a table as a job does, with a moment between two plans."""

    def __init__(self, reader: IcebergSource, offset: Offset | None = None) -> None:
        self.source = reader
        self.now = NOW
        self.offset = offset or reader.first_offset(NOW, 1)

    def next(self, most_rows: int = 1000) -> InputRange | None:
        self.now += timedelta(seconds=1)
        planned = self.source.plan(self.offset, most_rows, self.now)
        if planned is not None:
            self.offset = planned.end
        return planned

    def ids(self, most_rows: int = 1000) -> list[int]:
        """The rows of the next range."""
        planned = self.next(most_rows)
        return [] if planned is None else read(self.source, planned)


def read(reader: IcebergSource, planned: InputRange) -> list[int]:
    """The rows of a range, by what its tasks run."""
    start, end = TablePosition.of(planned.start), TablePosition.of(planned.end)
    loaded = reader._table.holding(end)
    found = reader._table.range_after(loaded, start, end.snapshot, planned.rows)
    assert found.end == end or not planned.rows
    assert found.rows == planned.rows
    pieces = (*found.pieces, *found.replaced)
    columns = ReadColumns((1, 2), ("id", "name"), SCHEMA, gone_from_history)
    task = _reader(
        tuple((each,) for each in pieces),
        accesses(loaded.table, pieces),
        columns,
        with_place=True,
    )
    batches = [*task(iter([numbers(pieces)]))]
    rows = pa.Table.from_batches(batches).to_pylist() if batches else []
    assert all(each["name"] == f"n{each['id']}" for each in rows)
    assert len({(each["__file"], each["__row"]) for each in rows}) == len(rows) == planned.rows
    return [each["id"] for each in rows]


def numbers(pieces: Iterable[FilePiece]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": pa.array(range(len([*pieces])), pa.int64())})


def test_a_catalog_that_refuses_a_request_is_an_error_of_the_source_or_lookup(
    catalog: SqlCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_self: SqlCatalog, _identifier: object) -> Table:
        raise BadRequestError("no such warehouse")

    monkeypatch.setattr(SqlCatalog, "load_table", refuse)
    with pytest.raises(SourceError, match=r"refuses the request: .* no such warehouse"):
        source(tmp_path).first_offset(NOW, 1)
    lookup = IcebergLookup("t", IcebergLookupOptions.read(catalog_options(tmp_path)), ())
    with pytest.raises(SourceError, match="refuses the request"):
        lookup.check()


def test_a_job_reads_all_rows_and_then_what_is_appended(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    append(catalog, 1, 2)
    append(catalog, 3)
    reading = Reading(source(tmp_path))
    assert sorted(reading.ids()) == [1, 2, 3]
    assert reading.next() is None
    append(catalog, 4)
    append(catalog, 5)
    assert reading.ids() == [4, 5]


@pytest.mark.parametrize("most_rows", [1, 2, 3])
def test_ranges_of_any_size_have_each_row_once_and_again_when_they_are_replayed(
    catalog: SqlCatalog, tmp_path: Path, most_rows: int
) -> None:
    append(catalog, 1, 2, 3, 4, 5)
    reading = Reading(source(tmp_path))
    planned = [reading.next(most_rows)]
    append(catalog, 6, 7)
    while (more := reading.next(most_rows)) is not None:
        planned.append(more)
    append(catalog, 8)
    again = source(tmp_path)
    found = [each for part in planned if part is not None for each in read(again, part)]
    assert found == [1, 2, 3, 4, 5, 6, 7]


def test_a_range_is_halved_without_loss(catalog: SqlCatalog, tmp_path: Path) -> None:
    append(catalog, 1, 2, 3)
    append(catalog, 4, 5)
    reader = source(tmp_path)
    planned = Reading(reader).next()
    assert planned is not None
    halves = reader.halved(planned)
    assert halves is not None
    assert sorted(read(reader, halves[0]) + read(reader, halves[1])) == [1, 2, 3, 4, 5]
    assert [each.rows for each in halves] == [2, 3]
    assert "snapshot" in reader.in_words(planned)


def test_latest_begins_with_the_next_snapshot(catalog: SqlCatalog, tmp_path: Path) -> None:
    append(catalog, 1)
    reading = Reading(source(tmp_path, offset="latest"))
    assert reading.next() is None
    append(catalog, 2)
    assert reading.ids() == [2]


def test_latest_of_an_empty_table_reads_its_first_rows(catalog: SqlCatalog, tmp_path: Path) -> None:
    reading = Reading(source(tmp_path, offset="latest"))
    append(catalog, 1)
    assert reading.ids() == [1]


def test_a_job_begins_with_a_snapshot_or_an_instant(catalog: SqlCatalog, tmp_path: Path) -> None:
    first = append(catalog, 1)
    second = append(catalog, 2)
    append(catalog, 3)
    assert Reading(source(tmp_path, offset=f'{{"snapshot": {second}}}')).ids() == [2, 3]
    assert Reading(source(tmp_path, offset=f'{{"snapshot": {first}}}')).ids(2) == [1, 2]
    snapshot = catalog.load_table("db.t").snapshot_by_id(second)
    assert snapshot is not None
    assert Reading(source(tmp_path, offset=str(snapshot.timestamp_ms))).ids() == [2, 3]
    assert Reading(source(tmp_path, offset=str(snapshot.timestamp_ms + 1))).ids() == [3]
    assert Reading(source(tmp_path, offset="2001-01-01T00:00:00Z")).ids() == [1, 2, 3]
    with pytest.raises(UserError, match="snapshot 17 is not in the history"):
        Reading(source(tmp_path, offset='{"snapshot": 17}'))


def test_a_bounded_source_ends_at_the_snapshot_of_its_start(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    append(catalog, 1)
    reading = Reading(source(tmp_path, stop_at="latest"))
    append(catalog, 2)
    planned = reading.next()
    assert planned is not None
    assert planned.final
    assert read(reading.source, planned) == [1]
    last = reading.next()
    assert last is not None
    assert (last.rows, last.final) == (0, True)


def test_an_empty_bounded_source_ends_at_once(catalog: SqlCatalog, tmp_path: Path) -> None:
    planned = Reading(source(tmp_path, stop_at="latest")).next()
    assert planned is not None
    assert planned.final


def test_a_compaction_is_passed_over(catalog: SqlCatalog, tmp_path: Path) -> None:
    append(catalog, 1)
    reading = Reading(source(tmp_path))
    assert reading.ids() == [1]
    append(catalog, 2)
    compact(catalog.load_table("db.t"))
    append(catalog, 3)
    assert reading.ids() == [2, 3]
    compact(catalog.load_table("db.t"))
    moved = reading.next()
    assert moved is not None
    assert moved.rows == 0
    assert reading.next() is None


@pytest.mark.parametrize("change", ["id = 1", "id > 0"])
def test_a_snapshot_that_changes_rows_is_refused(
    catalog: SqlCatalog, tmp_path: Path, change: str
) -> None:
    append(catalog, 1, 2)
    reading = Reading(source(tmp_path))
    reading.next()
    catalog.load_table("db.t").delete(change)
    append(catalog, 3)
    with pytest.raises(UserError, match="deletes or rewrites rows"):
        reading.next()


# ---------------------------------------------------------------- changelogs


def changes(reader: IcebergSource, planned: InputRange | None) -> list[tuple[int, int]]:
    """The rows of each file of a range, with what happened to them."""
    assert planned is not None
    start, end = TablePosition.of(planned.start), TablePosition.of(planned.end)
    loaded = reader._table.holding(end)
    found = reader._table.range_after(loaded, start, end.snapshot, planned.rows)
    assert found.end == end
    return [
        (each.shared[CHANGE_ID].as_py(), (each.end or 0) - each.start)
        for each in (*found.pieces, *found.replaced)
    ]


@pytest.mark.parametrize("most_rows", [1, 2, 3, 100])
def test_a_changelog_has_the_rows_of_removed_and_added_files_of_a_snapshot_together(
    catalog: SqlCatalog, tmp_path: Path, most_rows: int
) -> None:
    append(catalog, 1, 2, 3)
    reading = Reading(source(tmp_path, CHANGE_DATA_FEED))
    while reading.next(most_rows):
        pass
    catalog.load_table("db.t").delete("id = 2")
    planned = reading.next(most_rows)
    assert changes(reading.source, planned) == [(-1, 3), (1, 2)]
    assert planned is not None
    assert planned.rows == 5
    assert reading.source.halved(planned) is None
    assert sorted(read(source(tmp_path, CHANGE_DATA_FEED), planned)) == [1, 1, 2, 3, 3]
    catalog.load_table("db.t").delete("id > 0")
    assert changes(reading.source, reading.next(most_rows)) == [(-1, 2)]


def test_a_snapshot_that_would_exceed_an_epoch_is_left_to_the_next_one(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    reading = Reading(source(tmp_path, CHANGE_DATA_FEED))
    append(catalog, 1, 2, 3)
    catalog.load_table("db.t").delete("id = 1")
    assert changes(reading.source, reading.next(2)) == [(1, 2)]
    assert changes(reading.source, reading.next(2)) == [(1, 1)]
    assert changes(reading.source, reading.next(2)) == [(-1, 3), (1, 2)]
    append(catalog, 4)
    catalog.load_table("db.t").delete("id = 2")
    planned = reading.next(1000)
    assert planned is not None
    halves = reading.source.halved(planned)
    assert halves is not None
    assert [changes(reading.source, each) for each in halves] == [[(1, 1)], [(-1, 2), (1, 1)]]


def test_a_compaction_is_no_change(catalog: SqlCatalog, tmp_path: Path) -> None:
    append(catalog, 1)
    append(catalog, 2)
    reading = Reading(source(tmp_path, CHANGE_DATA_FEED))
    reading.next()
    compact(catalog.load_table("db.t"))
    assert changes(reading.source, reading.next()) == []


@pytest.mark.parametrize(
    ("kind", "message"),
    [(ROWS, "deletes or rewrites rows"), (CHANGE_DATA_FEED, "deletes rows by delete files")],
)
def test_delete_files_are_refused(
    catalog: SqlCatalog, tmp_path: Path, kind: Format, message: str
) -> None:
    append(catalog, 1, 2)
    reading = Reading(source(tmp_path, kind))
    reading.next()
    delete_by_position(catalog.load_table("db.t"), tmp_path)
    with pytest.raises(UserError, match=message):
        reading.next()
    with pytest.raises(UserError, match="cannot be read from the beginning"):
        Reading(source(tmp_path, kind)).next()


def test_a_rewrite_of_files_with_deletes_is_refused_and_appends_are_read(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    append(catalog, 1, 2)
    delete_by_position(catalog.load_table("db.t"), tmp_path)
    reading = Reading(source(tmp_path, CHANGE_DATA_FEED, offset="latest"))
    append(catalog, 3)
    assert reading.ids() == [3]
    catalog.load_table("db.t").delete("id = 3")
    with pytest.raises(UserError, match="while the table has delete files"):
        reading.next()


# ---------------------------------------------------------------- history


def test_an_overwrite_that_only_adds_rows_is_read(catalog: SqlCatalog, tmp_path: Path) -> None:
    append(catalog, 1)
    reading = Reading(source(tmp_path))
    reading.next()
    table = catalog.load_table("db.t")
    from pyiceberg.io.pyarrow import _dataframe_to_data_files

    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as update:
        rows = pa.table({"id": [2], "name": ["n2"]}, schema=SCHEMA)
        for each in _dataframe_to_data_files(table.metadata, rows, table.io):
            update.append_data_file(each)
    assert reading.ids() == [2]


def test_snapshots_that_were_read_may_expire(catalog: SqlCatalog, tmp_path: Path) -> None:
    append(catalog, 1)
    reading = Reading(source(tmp_path))
    assert reading.ids() == [1]
    append(catalog, 2)
    expire_all_but_newest(catalog.load_table("db.t"))
    assert reading.ids() == [2]


def test_snapshots_that_expired_unread_are_an_error(catalog: SqlCatalog, tmp_path: Path) -> None:
    append(catalog, 1)
    reading = Reading(source(tmp_path))
    planned = reading.next()
    assert planned is not None
    append(catalog, 2)
    append(catalog, 3)
    expire_all_but_newest(catalog.load_table("db.t"))
    with pytest.raises(SourceRangeGone, match="no longer in the history"):
        reading.next()
    with pytest.raises(SourceRangeGone, match="no longer in the history"):
        read(source(tmp_path), planned)


def test_an_instant_before_expired_snapshots_is_refused(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    append(catalog, 1)
    append(catalog, 2)
    expire_all_but_newest(catalog.load_table("db.t"))
    with pytest.raises(UserError, match="have expired"):
        Reading(source(tmp_path, offset="2001-01-01T00:00:00Z"))


def test_another_table_of_the_same_name_is_an_error(catalog: SqlCatalog, tmp_path: Path) -> None:
    append(catalog, 1)
    reading = Reading(source(tmp_path))
    reading.next()
    catalog.drop_table("db.t")
    catalog.create_table("db.t", SCHEMA)
    with pytest.raises(SourceRangeGone, match="was replaced by another table"):
        reading.next()


def test_a_column_that_the_table_lacks_is_named(catalog: SqlCatalog, tmp_path: Path) -> None:
    source(tmp_path).check()
    with catalog.load_table("db.t").update_schema() as update:
        update.rename_column("name", "title")
    with pytest.raises(UserError, match="has no column 'NAME'"):
        source(tmp_path).check()


def test_columns_are_read_by_id_not_by_name(catalog: SqlCatalog, tmp_path: Path) -> None:
    append(catalog, 1)
    table = catalog.load_table("db.t")
    with table.update_schema() as update:
        update.rename_column("name", "title")
    with table.update_schema() as update:
        update.add_column("name", StringType())
    append_titled = pa.table({"id": [2], "title": ["n2"], "name": ["wrong"]})
    catalog.load_table("db.t").append(append_titled)
    assert sorted(Reading(source(tmp_path)).ids()) == [1, 2]
