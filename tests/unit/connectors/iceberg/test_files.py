"""Data files as tasks read them, and what their metadata says of keys."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from tests.iceberg_tables import numbered, opened_catalog

from resurgence.connectors.iceberg.reading.file_reader import (
    FilePiece,
    ReadColumns,
    StoredPath,
    _reader,
)
from resurgence.connectors.iceberg.reading.source_table import gone_from_history
from resurgence.connectors.iceberg.reading.table_files import accesses, piece_of
from resurgence.connectors.iceberg.writing.upsert import key_range
from resurgence.connectors.lakehouse.pruning import ValueRange
from resurgence.errors import SourceError, SourceRangeGone, UserError
from resurgence.storage.access import store_access

COLUMNS = ReadColumns(
    (1, 2),
    ("id", "name"),
    pa.schema([("id", pa.int64()), ("name", pa.string())]),
    gone_from_history,
)


def read(
    pieces: list[FilePiece], columns: ReadColumns = COLUMNS, table: Table | None = None
) -> list[tuple[object, ...]]:
    """Rows, each with its number in its file."""
    found = accesses(table, pieces) if table else {"file:///": store_access("file:///")}
    task = _reader(tuple((each,) for each in pieces), found, columns, with_place=True)
    batch = pa.RecordBatch.from_pydict({"id": pa.array(range(len(pieces)), pa.int64())})
    rows = [row for each in task(iter([batch])) for row in each.to_pylist()]
    return [tuple(value for name, value in row.items() if name != "__file") for row in rows]


def written(path: Path, rows: pa.Table, row_group: int = 3) -> StoredPath:
    pq.write_table(rows, path, row_group_size=row_group)
    return StoredPath("file:///", str(path).lstrip("/"))


def piece(file: StoredPath, start: int = 0, end: int | None = None, **more: object) -> FilePiece:
    return FilePiece(file, f"file:///{file.path}", "f", start, end, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("start", "end"), [(0, None), (0, 3), (2, 7), (3, 6), (9, 10), (4, 4)])
def test_a_piece_has_the_rows_of_its_range(tmp_path: Path, start: int, end: int | None) -> None:
    file = written(tmp_path / "f.parquet", numbered(*range(10)))
    expected = [(each, f"n{each}", each) for each in range(10)][start:end]
    assert read([piece(file, start, end)]) == expected


def test_columns_that_a_file_lacks_are_shared_values_or_null(tmp_path: Path) -> None:
    file = written(tmp_path / "f.parquet", numbered(1, 2).select(["id"]))
    assert read([piece(file)]) == [(1, None, 0), (2, None, 1)]
    shared = {2: pa.scalar("x", pa.string())}
    assert read([piece(file, shared=shared)]) == [(1, "x", 0), (2, "x", 1)]


def test_deleted_rows_are_left_out(tmp_path: Path) -> None:
    file = written(tmp_path / "f.parquet", numbered(*range(8)))
    other = f"file:///{file.path}x"
    deletes = pa.table(
        {
            "file_path": [f"file:///{file.path}"] * 3 + [other],
            "pos": pa.array([0, 4, 7, 1], pa.int64()),
        }
    )
    places = (written(tmp_path / "d.parquet", deletes),)
    kept = [each[2] for each in read([piece(file, deletes=places)])]
    assert kept == [1, 2, 3, 5, 6]
    assert [each[0] for each in read([piece(file, 3, 6, deletes=places)])] == [3, 5]


def test_a_file_that_is_damaged_is_retried_and_one_that_is_gone_is_named(tmp_path: Path) -> None:
    file = written(tmp_path / "f.parquet", numbered(1))
    (tmp_path / "f.parquet").write_bytes(b"PAR1 no PAR1")
    with pytest.raises(SourceError, match="cannot be read"):
        read([piece(file)])
    (tmp_path / "f.parquet").unlink()
    with pytest.raises(SourceRangeGone, match=r"f\.parquet does not exist any more"):
        read([piece(file)])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table by identity partitions, one row in each of two."""
    catalog = opened_catalog(tmp_path).catalog
    catalog.create_namespace("db")
    schema = pa.schema(
        [
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("price", pa.decimal128(9, 2)),
            ("name", pa.string()),
            ("x", pa.float64()),
        ]
    )
    made = catalog.create_table("db.t", schema)
    with made.update_spec() as spec:
        for each in ("day", "at", "price", "name"):
            spec.add_identity(each)
    at = datetime(2024, 2, 29, 10, tzinfo=UTC)
    values = [[date(2024, 2, 29), None], [at, None], [Decimal("1.50"), None], ["a", None]]
    made.append(pa.table([*values, [1.5, 2.5]], schema=schema))
    return made


def files(table: Table) -> list[DataFile]:
    found = [each.file for each in table.scan().plan_files()]
    return sorted(found, key=lambda each: each.partition[0] is None)


def test_partition_values_stand_for_columns_of_files_that_lack_them(table: Table) -> None:
    first, second = (piece_of(table, each).shared for each in files(table))
    assert [each.as_py() for each in first.values()] == [
        date(2024, 2, 29),
        datetime(2024, 2, 29, 10, tzinfo=UTC),
        Decimal("1.50"),
        "a",
    ]
    assert [each.as_py() for each in second.values()] == [None] * 4


def test_bounds_of_keys_are_as_arrow_has_them(table: Table) -> None:
    first, second = files(table)
    assert key_range(table, first, "day") == ValueRange(
        date(2024, 2, 29), date(2024, 2, 29), may_be_null=False
    )
    assert key_range(table, first, "name") == ValueRange("a", "a", may_be_null=False)
    assert key_range(table, second, "name") == ValueRange(
        None, None, may_be_null=True, may_have_values=False
    )
    assert key_range(table, first, "x") == ValueRange(None, None, may_be_null=False)


def test_deletes_of_other_kinds_are_refused(table: Table) -> None:
    by_value = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES,
        file_path="file:///deletes.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=1,
    )
    with pytest.raises(UserError, match="deletes of a kind that is not supported"):
        piece_of(table, files(table)[0], [by_value])
