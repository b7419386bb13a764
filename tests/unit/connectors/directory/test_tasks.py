"""What a Spark task reads of stored files, called without Spark."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resurgence.connectors.directory import tasks
from resurgence.connectors.directory.files import Piece
from resurgence.connectors.directory.options import Compression
from resurgence.connectors.directory.tasks import ColumnReader, LineReader, PieceReader, balanced
from resurgence.errors import SourceRangeGone, UserError
from resurgence.storage.access import StoreAccess
from resurgence.storage.object_store import ObjectStore

WANTED = pa.schema([("ID", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("extra", pa.string())])


def whole(folder: Path) -> tuple[ObjectStore, Piece]:
    store = ObjectStore(f"file://{folder}")
    (file,) = store.files()
    return store, Piece(*file)


def rows(reader: PieceReader, store: ObjectStore, piece: Piece) -> list[tuple[int, object]]:
    return [
        (first + place, value)
        for first, batch in reader(store, piece)
        for place, value in enumerate(batch.column(0).to_pylist())
    ]


@pytest.mark.parametrize("kind", [Compression.GZIP, Compression.ZSTD])
def test_a_part_of_a_compressed_file_is_some_of_its_lines(
    tmp_path: Path, kind: Compression
) -> None:
    text = b"".join(b"line %d\n" % each for each in range(1000))
    (tmp_path / "a").write_bytes(pa.compress(text, codec=kind.value, asbytes=True))
    store, piece = whole(tmp_path)
    reader = LineReader({"a": kind})
    expected = [(each, b"line %d" % each) for each in range(1000)]
    assert rows(reader, store, piece) == expected
    assert rows(reader, store, piece._replace(start=10, end=13)) == expected[10:13]


def test_concatenated_gzip_files_are_one_text(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(gzip.compress(b"one\ntw") + gzip.compress(b"o\n"))
    reader = LineReader({"a": Compression.GZIP})
    assert rows(reader, *whole(tmp_path)) == [(0, b"one"), (1, b"two")]


def test_a_damaged_compressed_file_ends_with_a_record_that_is_null(tmp_path: Path) -> None:
    data = gzip.compress(b"".join(b"line %d\n" % each for each in range(100_000)))
    (tmp_path / "a").write_bytes(data[:-5])
    found = rows(LineReader({"a": Compression.GZIP}), *whole(tmp_path))
    assert found[-1] == (len(found) - 1, None)
    assert found[:-1] == [(each, b"line %d" % each) for each in range(len(found) - 1)]


def test_a_file_of_another_kind_is_a_damaged_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"plain text\n")
    assert rows(LineReader({"a": Compression.GZIP}), *whole(tmp_path)) == [(0, None)]


@pytest.mark.parametrize("name", ["lines", "gzip", "parquet"])
def test_a_file_that_changed_is_not_read(tmp_path: Path, name: str) -> None:
    """The error passes through Arrow unchanged, and is not taken for damage."""
    path = tmp_path / "a"
    path.write_bytes(gzip.compress(b"x\n"))
    kind = Compression.GZIP if name == "gzip" else Compression.NONE
    reader: PieceReader = LineReader({"a": kind})
    if name == "parquet":
        pq.write_table(pa.table({"id": [1]}), path)
        reader = ColumnReader(WANTED, ())
    store, piece = whole(tmp_path)
    piece = piece._replace(end=1)
    path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises(SourceRangeGone, match="has changed after it was planned"):
        rows(reader, store, piece)
    path.unlink()
    with pytest.raises(SourceRangeGone, match="was removed after it was planned"):
        rows(reader, store, piece)


@pytest.mark.parametrize(("start", "end"), [(0, 100), (0, 40), (39, 41), (40, 80), (95, 100)])
def test_a_part_of_a_parquet_file_is_some_of_its_rows(tmp_path: Path, start: int, end: int) -> None:
    table = pa.table({"at": pa.nulls(100, pa.timestamp("ns")), "id": pa.array(range(100), "int32")})
    pq.write_table(table, tmp_path / "a", row_group_size=40)
    store, piece = whole(tmp_path)
    piece = piece._replace(start=start, end=end)
    found = rows(ColumnReader(WANTED, ("ID",)), store, piece)
    assert found == [(each, each) for each in range(start, end)]


def test_columns_that_do_not_fit_are_errors_with_the_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["x"]}), tmp_path / "a")
    store, piece = whole(tmp_path)
    piece = piece._replace(end=1)
    with pytest.raises(
        UserError, match=r"column 'ID' of .*/a is string and cannot be read as int64"
    ):
        rows(ColumnReader(WANTED, ()), store, piece)
    with pytest.raises(UserError, match="/a has no column 'extra', which is NOT NULL"):
        rows(ColumnReader(WANTED, ("extra",)), store, piece)


def test_a_parquet_file_with_a_damaged_page_is_an_error_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "a"
    pq.write_table(pa.table({"id": [*range(10_000)]}), path, compression="gzip")
    data = bytearray(path.read_bytes())
    data[500:700] = b"\0" * 200
    path.write_bytes(data)
    store, piece = whole(tmp_path)
    with pytest.raises(UserError, match="/a is not a readable Parquet file"):
        rows(ColumnReader(WANTED, ()), store, piece._replace(end=10_000))


def test_a_record_names_its_file_and_its_line_across_batches(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"".join(b"%0100d\n" % each for each in range(100_000)))
    _, piece = whole(tmp_path)
    piece = piece._replace(end=piece.size)
    access = StoreAccess(f"file://{tmp_path}")
    read = tasks._reading(access, [[piece]], LineReader({"a": Compression.NONE}))
    batches = [*read(iter([pa.record_batch({"id": [0]})]))]
    assert len(batches) > 1
    found = pa.Table.from_batches(batches)
    assert found.schema.field("line").type == pa.int64()
    assert found["line"].to_pylist() == [*range(100_000)]
    assert [int(each) for each in found["value_raw"].to_pylist()] == [*range(100_000)]
    for column, value in (("path", str(tmp_path / "a")), ("size", piece.size)):
        assert found[column].unique().to_pylist() == [value]


def test_tasks_share_pieces_by_size_and_keep_their_order() -> None:
    pieces = [Piece(str(n), size, 0, "", end=size) for n, size in enumerate([1, 9, 2, 3, 4])]
    shares = [[each.path for each in share] for share in balanced(pieces, 2)]
    assert shares == [["0", "1"], ["2", "3", "4"]]
    assert balanced(pieces[:1], 4) == [pieces[:1]]
