"""What only a source knows about its offsets: how a range is split, and how it is described."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from resurgence.connectors.contract import Source
from resurgence.connectors.formats.json.lines import JsonLineReader
from resurgence.connectors.impulse import COLUMNS, ImpulseOptions, ImpulseSource
from resurgence.connectors.nexmark import NexmarkOptions, NexmarkSource
from resurgence.connectors.single_file import SingleFileSource, SingleFileSourceOptions
from resurgence.errors import SourceRangeGone
from resurgence.state.records import InputRange

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)
LINES = [b'{"a": 1}\n', b"\n", b'{"a": 22}\n', b'{"a": 333}\n', b'{"a": 4444}']


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "in.json").write_bytes(b"".join(LINES))
    return tmp_path / "in.json"


def source(kind: str, path: Path) -> Source:
    if kind == "single_file":
        return SingleFileSource(
            SingleFileSourceOptions.read({"path": str(path)}), JsonLineReader(())
        )
    options = {"message_count": "5"}
    if kind == "impulse":
        return ImpulseSource(ImpulseOptions.read(options), COLUMNS)
    return NexmarkSource(NexmarkOptions.read(options), COLUMNS)


def planned(made: Source, rows: int = 5) -> InputRange:
    found = made.plan(made.first_offset(NOW, 2), rows, NOW)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", ["single_file", "impulse", "nexmark"])
def test_the_halves_of_a_range_are_the_range_down_to_single_rows(kind: str, path: Path) -> None:
    made = source(kind, path)
    whole = planned(made)
    pieces, single = [whole], []
    while pieces:
        piece = pieces.pop(0)
        halves = made.halved(piece)
        if halves is None:
            single.append(piece)
            continue
        assert halves[0].start == piece.start
        assert halves[0].end == halves[1].start
        assert halves[1].end == piece.end
        assert [each.final for each in halves] == [False, piece.final]
        assert sum(each.rows for each in halves) == piece.rows
        pieces = [*halves, *pieces]
    assert [each.rows for each in single] == [1] * 5
    assert single[-1].end == whole.end


def test_a_range_is_described_by_the_offsets_that_change(path: Path) -> None:
    file, counter = source("single_file", path), source("impulse", path)
    assert file.in_words(planned(file, 2)) == "after line 0, byte 0, up to line 2, byte 10"
    assert counter.in_words(planned(counter, 3)) == "after counter 0, up to counter 3"


def test_a_range_of_a_replaced_file_is_not_split(path: Path) -> None:
    made = source("single_file", path)
    whole = planned(made)
    path.write_bytes(b"x" * len(b"".join(LINES)))
    with pytest.raises(SourceRangeGone):
        made.halved(whole)
