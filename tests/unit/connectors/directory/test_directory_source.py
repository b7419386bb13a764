"""Ranges of a folder's files: planned from real files, without Spark."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resurgence.connectors.connector import SourceDeclaration
from resurgence.connectors.directory import DirectorySource, DirectorySourceOptions, listing
from resurgence.connectors.directory.files import Piece
from resurgence.connectors.directory.lines import cut_lines, lines_of, split_piece
from resurgence.connectors.directory.options import Compression
from resurgence.connectors.directory.positions import Position
from resurgence.connectors.formats.contract import Format
from resurgence.connectors.formats.json.lines import JSON
from resurgence.connectors.formats.parquet_files import PARQUET
from resurgence.errors import SourceRangeGone, UserError
from resurgence.graph.connector_spec import Role
from resurgence.graph.values import Column
from resurgence.state.records import InputRange, Offset
from resurgence.storage.local_files import StoredFile
from resurgence.storage.object_store import ObjectStore

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)
COLUMNS = (Column(name="a", type="BIGINT"),)


def source(
    path: object, chosen: Format = JSON, columns: tuple[Column, ...] = COLUMNS, **options: str
) -> DirectorySource:
    named = {name.replace("__", "."): value for name, value in options.items()}
    declaration = SourceDeclaration(
        "events", columns, format=chosen, format_options=chosen.spec.options(Role.SOURCE)()
    )
    return DirectorySource(DirectorySourceOptions.read({"path": str(path), **named}), declaration)


def write(folder: Path, name: str, lines: int = 1, modified: int | None = None) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b'{"a": 1}\n' * lines)
    if modified is not None:
        os.utime(path, (modified, modified))


def planned(made: DirectorySource, offset: Offset, rows: int = 1000, later: int = 0) -> InputRange:
    found = made.plan(offset, rows, NOW + timedelta(minutes=later))
    assert found is not None
    return found


def spans(input_range: InputRange) -> list[tuple[str, int, int | None, int]]:
    pieces = Position.of(input_range.end).pieces()
    return [(each.path, each.start, each.end, each.line) for each in pieces]


def read_names(made: DirectorySource) -> list[str]:
    """All files that a new job reads. A plan may pass over names without finding a file."""
    offset, names = made.first_offset(NOW, 2), list[str]()
    for _ in range(200):
        found = made.plan(offset, 1000, NOW)
        if found is not None:
            names += [path for path, *_ in spans(found)]
            offset = found.end
    return names


def test_a_large_file_is_cut_after_as_many_lines_as_an_epoch_may_have(tmp_path: Path) -> None:
    write(tmp_path, "a.json", 7)
    made = source(tmp_path, source__stop_at="latest")
    first = planned(made, made.first_offset(NOW, 2), rows=3)
    second = planned(made, first.end, rows=3)
    third = planned(made, second.end, rows=3)
    assert [spans(each) for each in (first, second, third)] == [
        [("a.json", 0, 27, 0)],
        [("a.json", 27, 54, 3)],
        [("a.json", 54, 63, 6)],
    ]
    last = planned(made, third.end)
    assert (last.rows, last.final, last.end) == (0, True, third.end)


def test_epochs_are_limited_by_files_and_bytes(tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path, f"{number}.json", 2)
    by_files = source(tmp_path, source__epoch_files="2")
    assert len(spans(planned(by_files, by_files.first_offset(NOW, 1)))) == 2
    by_bytes = source(tmp_path, source__epoch_bytes="60")
    first = planned(by_bytes, by_bytes.first_offset(NOW, 1))
    assert len(spans(first)) == 3
    assert by_bytes.unread() == {"files": 2}


def test_the_same_plan_is_made_again_until_it_is_adopted(tmp_path: Path) -> None:
    write(tmp_path, "a.json", 2)
    made = source(tmp_path)
    offset = made.first_offset(NOW, 1)
    first = planned(made, offset)
    assert planned(made, offset) == first
    assert made.plan(first.end, 1000, NOW) is None


def test_the_halves_of_a_range_are_its_files_and_then_its_lines(tmp_path: Path) -> None:
    write(tmp_path, "a.json", 3)
    write(tmp_path, "b.json", 1)
    (tmp_path / "c.json.gz").write_bytes(gzip.compress(b"x\n\nlong line\n"))
    made = source(tmp_path, source__stop_at="latest")
    whole = planned(made, made.first_offset(NOW, 1))
    pieces, single = [whole], []
    while pieces:
        piece = pieces.pop(0)
        halves = made.halved(piece)
        if halves is None:
            single += spans(piece)
            continue
        assert halves[0].start == piece.start
        assert halves[0].end == halves[1].start
        assert all(0 < each.rows < piece.rows for each in halves)
        assert [each.final for each in halves] == [False, piece.final]
        pieces = [*halves, *pieces]
    assert single == [
        ("a.json", 0, 9, 0),
        ("a.json", 9, 18, 1),
        ("a.json", 18, 27, 2),
        ("b.json", 0, 9, 0),
        ("c.json.gz", 0, 1, 0),
        ("c.json.gz", 1, 2, 1),
        ("c.json.gz", 2, 3, 2),
    ]


def test_parquet_files_are_cut_and_halved_by_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [*range(10)]}), tmp_path / "a.parquet")
    made = source(tmp_path, PARQUET, source__stop_at="latest")
    first = planned(made, made.first_offset(NOW, 1), rows=6)
    assert (spans(first), first.rows) == ([("a.parquet", 0, 6, 0)], 6)
    second = planned(made, first.end, rows=6)
    assert (spans(second), second.rows) == ([("a.parquet", 6, 10, 6)], 4)
    halves = made.halved(second)
    assert halves is not None
    assert [spans(each) for each in halves] == [[("a.parquet", 6, 8, 6)], [("a.parquet", 8, 10, 8)]]


def test_a_bounded_source_ends_with_the_files_that_existed_at_its_start(tmp_path: Path) -> None:
    write(tmp_path, "b.json")
    made = source(tmp_path, source__stop_at="latest")
    offset = made.first_offset(NOW, 1)
    write(tmp_path, "c.json")
    found = planned(made, offset)
    assert ([path for path, *_ in spans(found)], found.final) == (["b.json"], True)
    empty = tmp_path / "empty"
    empty.mkdir()
    nothing = source(empty, source__stop_at="latest")
    assert planned(nothing, nothing.first_offset(NOW, 1)).final


@pytest.mark.parametrize("order", ["name", "modified"])
def test_more_files_than_are_held_in_memory_are_all_read_in_order(
    tmp_path: Path, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "MOST_FILES", 4)
    monkeypatch.setattr(listing, "_MOST_NAMES", 6)
    for number in range(30):
        write(tmp_path, f"{number % 3}/{number:02}.json", modified=1000 - number)
        write(tmp_path, f"{number % 3}/{number:02}.txt")
        write(tmp_path, f"1-{number}.txt")
    made = source(
        tmp_path, source__order=order, source__regex_pattern="json$", source__epoch_files="3"
    )
    names = sorted(str(each.relative_to(tmp_path)) for each in tmp_path.glob("*/*.json"))
    by_time = [f"{number % 3}/{number:02}.json" for number in reversed(range(30))]
    assert read_names(made) == (names if order == "name" else by_time)


def test_a_plan_passes_few_names_however_many_files_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_MOST_NAMES", 5)
    passed: list[str] = []
    files = ObjectStore.files

    def counted(store: ObjectStore, after: str = "") -> Iterator[StoredFile]:
        for each in files(store, after):
            passed.append(each.path)
            yield each

    monkeypatch.setattr(ObjectStore, "files", counted)
    for number in range(20):
        write(tmp_path, f"2024/{number:02}.json", modified=1000 - number)
        write(tmp_path, f"3/{number:02}.json")
    made = source(f"{tmp_path}/20*/*.json")
    offset = made.first_offset(NOW, 1)
    found = None
    while found is None:
        before = len(passed)
        found = made.plan(offset, 1000, NOW)
        assert len(passed) <= before + 5
    assert len(passed) == 40
    assert [path for path, *_ in spans(found)] == [
        f"2024/{each:02}.json" for each in range(19, -1, -1)
    ]


def test_a_file_that_appears_behind_a_long_listing_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_MOST_NAMES", 5)
    for number in range(10):
        write(tmp_path, f"{number}/a.json", modified=number)
    made = source(tmp_path, source__remembered_files="2")
    offset, names = made.first_offset(NOW, 1), list[str]()
    for minute in range(60):
        if minute == 1:
            # The listing has passed the first folders, and not yet the last one.
            appeared = int(NOW.timestamp()) + 10
            write(tmp_path, "0/late.json", modified=appeared)
            for number in range(5):
                write(tmp_path, f"9/{number}.json", modified=appeared + 1 + number)
        found = made.plan(offset, 1000, NOW + timedelta(minutes=minute))
        if found is not None:
            names += [path for path, *_ in spans(found)]
            offset = found.end
    assert sorted(names) == sorted(
        f"{each.parent.name}/{each.name}" for each in tmp_path.glob("*/*")
    )


def test_a_late_name_is_noticed_while_the_job_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_MOST_NAMES", 2)
    for number in range(7):
        write(tmp_path, f"{number}.json")
    made = source(tmp_path, source__order="name")
    offset = made.first_offset(NOW, 1)
    for minute in range(3):
        while (found := made.plan(offset, 1000, NOW + timedelta(minutes=minute))) is not None:
            offset = found.end
    write(tmp_path, "3-late.json")
    with pytest.raises(SourceRangeGone, match=r"a file appeared or changed .* before 6\.json"):
        for minute in range(3, 40):
            assert made.plan(offset, 1000, NOW + timedelta(minutes=minute)) is None


def test_a_late_file_is_noticed_by_its_modified_time(tmp_path: Path) -> None:
    for number in range(7):
        write(tmp_path, f"{number}.json", modified=number * 10)
    made = source(tmp_path, source__remembered_files="2")
    whole = planned(made, made.first_offset(NOW, 1))
    write(tmp_path, "a.json", modified=55)
    more = planned(made, whole.end, later=1)
    assert [path for path, *_ in spans(more)] == ["a.json"]
    write(tmp_path, "b.json", modified=35)
    with pytest.raises(SourceRangeGone, match="a file appeared or changed") as caught:
        made.plan(more.end, 1000, NOW + timedelta(minutes=2))
    assert "source.remembered_files" in caught.value.hint


def test_files_that_are_removed_after_they_were_read_are_no_failure(tmp_path: Path) -> None:
    for number in range(7):
        write(tmp_path, f"{number}.json", modified=number * 10)
    made = source(tmp_path, source__remembered_files="2")
    whole = planned(made, made.first_offset(NOW, 1))
    for name in ("0.json", "1.json"):
        (tmp_path / name).unlink()
    assert made.plan(whole.end, 1000, NOW + timedelta(minutes=1)) is None
    write(tmp_path, "b.json", modified=35)
    with pytest.raises(SourceRangeGone):
        made.plan(whole.end, 1000, NOW + timedelta(minutes=2))


def test_a_file_that_changed_before_it_was_planned_is_listed_again(tmp_path: Path) -> None:
    write(tmp_path, "a.json", 20)
    made = source(tmp_path, source__epoch_files="1")
    offset = made.first_offset(NOW, 1)
    assert planned(made, offset, rows=5).rows == 45
    write(tmp_path, "a.json", 30)
    assert made.plan(offset, 5, NOW) is None
    assert planned(made, offset, rows=10).rows == 90


def test_a_cut_file_that_changed_is_a_failure(tmp_path: Path) -> None:
    write(tmp_path, "a.json", 20)
    made = source(tmp_path)
    first = planned(made, made.first_offset(NOW, 1), rows=5)
    write(tmp_path, "a.json", 30)
    with pytest.raises(SourceRangeGone, match=r"a\.json has changed after it was planned"):
        made.plan(first.end, 5, NOW)


def test_wrong_declarations_are_errors_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="absent does not exist"):
        source(tmp_path / "absent").check()
    assert not (tmp_path / "absent").exists()
    with pytest.raises(UserError, match="names 'b', which is not a column"):
        source(tmp_path, partitioning__fields="b")
    write(tmp_path, "x.json")
    made = source(tmp_path, partitioning__fields="a")
    with pytest.raises(UserError, match="is in no folder 'a=…'"):
        planned(made, made.first_offset(NOW, 1))
    other = source(tmp_path, source__order="name")
    with pytest.raises(UserError, match="order 'modified', which cannot be changed to 'name'"):
        other.plan(made.first_offset(NOW, 1), 1, NOW)


def test_a_range_is_described_by_its_files(tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path, f"{number}.json", 2, modified=number)
    made = source(tmp_path)
    whole = planned(made, made.first_offset(NOW, 1))
    assert made.in_words(whole) == (
        f"{tmp_path}/0.json, {tmp_path}/1.json, {tmp_path}/2.json and 2 more"
    )
    first = planned(made, made.first_offset(NOW, 1), rows=1)
    rest = planned(made, first.end)
    assert made.in_words(rest) == f"{tmp_path}/0.json from line 2"


@pytest.mark.parametrize("block", [1, 2, 3, 5, 1000])
@pytest.mark.parametrize(
    "text", [b"", b"a", b"a\n", b"\n", b"\n\n", b"a\nbc\n\nlonger line\nx", b"\xef\xbb\xbfa\r\nb\n"]
)
def test_lines_do_not_depend_on_how_a_file_is_split(
    tmp_path: Path, text: bytes, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resurgence.connectors.directory.lines.BLOCK", block)
    (tmp_path / "a").write_bytes(text)
    store = ObjectStore(f"file://{tmp_path}")
    (file,) = store.files()
    piece = Piece(*file, end=file.size)
    texts = text.split(b"\n")
    expected = [*enumerate(texts if texts[-1] else texts[:-1])]
    if block >= 3:
        expected = [(n, each.removeprefix(b"\xef\xbb\xbf")) for n, each in expected]

    def read(pieces: list[Piece]) -> list[tuple[int, bytes]]:
        return [
            (lines.first + place, line)
            for each in pieces
            for lines in lines_of(store, each, Compression.NONE)
            if lines.texts is not None
            for place, line in enumerate(lines.texts.to_pylist())
        ]

    assert read([piece]) == expected
    for parts in (2, 3, 7):
        assert read(split_piece(store, piece, parts)) == expected
    kept = [each + b"\n" for each in text.split(b"\n")]
    kept[-1] = kept[-1].removesuffix(b"\n")
    for lines in range(1, len(expected) + 2):
        byte, found = cut_lines(store, piece, lines, 10**9)
        assert found == min(lines, len(expected))
        assert byte == sum(map(len, kept[:lines]))
