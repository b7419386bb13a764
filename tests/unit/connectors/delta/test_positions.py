"""What a Delta source reads next, by the files of each version."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from resurgence.connectors.delta.log import LoggedFile
from resurgence.connectors.delta.reading import positions
from resurgence.connectors.delta.reading.positions import Place, Span, next_spans, spans_between
from resurgence.connectors.delta.reading.source_options import Start, StartKind, parse_start

VERSIONS = {3: [("a", 5), ("b", 3)], 4: [], 5: [("c", 0), ("d", 4)], 6: [("e", 2)]}
SNAPSHOT = [("x", 2), ("y", 2)]


def files_of(place: Place) -> Sequence[LoggedFile] | None:
    listed = SNAPSHOT if place.is_snapshot else VERSIONS.get(place.version)
    return None if listed is None else [LoggedFile(name, rows=rows) for name, rows in listed]


def brief(spans: Sequence[Span]) -> list[tuple[str, int, int, int]]:
    return [(each.file.path, each.start, each.end, each.number) for each in spans]


def test_a_range_ends_within_a_file() -> None:
    end, spans = next_spans(Place(3), 6, files_of)
    assert brief(spans) == [("a", 0, 5, 0), ("b", 0, 1, 5)]
    assert end == Place(3, file=1, row=1, count=6)
    end, spans = next_spans(end, 3, files_of)
    assert brief(spans) == [("b", 1, 3, 6), ("d", 0, 1, 8)]
    assert end == Place(5, file=1, row=1, count=9)


def test_everything_is_read_up_to_the_newest_version() -> None:
    end, spans = next_spans(Place(3), 1000, files_of)
    assert [each.file.path for each in spans] == ["a", "b", "d", "e"]
    assert end == Place(7, count=14)
    assert next_spans(end, 1000, files_of) == (end, [])


def test_versions_follow_a_snapshot() -> None:
    end, spans = next_spans(Place(2, is_snapshot=True), 9, files_of)
    assert brief(spans) == [("x", 0, 2, 0), ("y", 0, 2, 2), ("a", 0, 5, 4)]
    assert end == Place(3, file=1, count=9)


def test_a_bounded_source_ends_after_its_last_version() -> None:
    end, spans = next_spans(Place(3, stop=5), 1000, files_of)
    assert [each.file.path for each in spans] == ["a", "b", "d"]
    assert end.is_at_stop
    end, _ = next_spans(Place(3, stop=5), 11, files_of)
    assert not end.is_at_stop
    assert next_spans(end, 1, files_of)[0].is_at_stop


def test_versions_after_the_end_of_a_range_are_not_looked_at() -> None:
    def only(place: Place) -> Sequence[LoggedFile] | None:
        assert place.version <= 3
        return files_of(place)

    assert [each.file.path for each in spans_between(Place(3), Place(4, count=8), only)] == [
        "a",
        "b",
    ]


def test_a_plan_looks_at_a_bounded_number_of_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "MOST_VERSIONS", 10)
    end, spans = next_spans(Place(0), 5, lambda _place: [])
    assert (end, spans) == (Place(10), [])


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8, 100])
def test_ranges_together_are_the_whole(rows: int) -> None:
    place, found = Place(2, is_snapshot=True), []
    while True:
        end, spans = next_spans(place, rows, files_of)
        assert [*spans_between(place, end, files_of)] == spans
        found += [(each.file.path, row) for each in spans for row in range(each.start, each.end)]
        if end == place:
            break
        place = Place.of(end.as_offset())
    files = [*SNAPSHOT, *(file for each in VERSIONS.values() for file in each)]
    assert found == [(name, row) for name, rows in files for row in range(rows)]


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("latest", Start(StartKind.LATEST)),
        ("earliest", Start(StartKind.EARLIEST)),
        ("12", Start(StartKind.VERSION, 12)),
        ("1704067200000", Start(StartKind.TIMESTAMP, 1704067200000)),
        ("2024-01-01T00:00:00Z", Start(StartKind.TIMESTAMP, 1704067200000)),
        ("2024-01-01 01:00:00+01:00", Start(StartKind.TIMESTAMP, 1704067200000)),
    ],
)
def test_a_start_is_a_version_or_an_instant(text: str, start: Start) -> None:
    assert parse_start(text) == start


def test_other_starts_are_refused() -> None:
    with pytest.raises(ValueError, match="yesterday"):
        parse_start("yesterday")


def test_versions_of_a_changelog_are_read_whole() -> None:
    end, spans = next_spans(Place(3), 6, files_of, whole_versions=True)
    assert [each.file.path for each in spans] == ["a", "b"]
    assert end == Place(4, count=8)
    end, spans = next_spans(Place(2, is_snapshot=True), 3, files_of, whole_versions=True)
    assert brief(spans) == [("x", 0, 2, 0), ("y", 0, 1, 2)]
