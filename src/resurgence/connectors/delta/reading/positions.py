"""The position of a Delta source, and what it reads next. Pure.

A job may begin with a snapshot: the files of one version, in the order of their names. After that it
reads version after version, and of each the files that it added, in the order of the log. A position
is a version, a file in it and a row in that file. It also counts the rows so far, which numbers every
row of the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from resurgence.connectors.contract import whole_number
from resurgence.connectors.delta.log import LoggedFile
from resurgence.state.records import Offset

MOST_VERSIONS = 200
"""How many versions one plan looks at."""


@dataclass(frozen=True)
class Place:
    """Where a source is: before this row."""

    version: int
    file: int = 0
    row: int = 0
    count: int = 0
    is_snapshot: bool = False
    """It is in the files that the version has, not in those that it added."""
    stop: int | None = None
    """The version after which the source ends."""

    @classmethod
    def of(cls, offset: Offset) -> Place:
        stop = offset.get("stop")
        return cls(
            whole_number(offset, "version"),
            whole_number(offset, "file"),
            whole_number(offset, "row"),
            whole_number(offset, "count"),
            bool(offset.get("snapshot", False)),
            stop if isinstance(stop, int) else None,
        )

    def as_offset(self) -> Offset:
        offset: Offset = {
            "version": self.version,
            "file": self.file,
            "row": self.row,
            "count": self.count,
        }
        if self.is_snapshot:
            offset["snapshot"] = True
        if self.stop is not None:
            offset["stop"] = self.stop
        return offset

    @property
    def is_at_stop(self) -> bool:
        return self.stop is not None and self.version > self.stop

    def next_version(self) -> Place:
        return replace(self, version=self.version + 1, file=0, row=0, is_snapshot=False)


@dataclass(frozen=True)
class Span:
    """Rows of one file."""

    file: LoggedFile
    start: int
    end: int
    number: int
    """Of its first row, in the stream."""


FilesOf = Callable[[Place], Sequence[LoggedFile] | None]
"""Returns the files of the version at a place, all with their rows; None if it does not exist yet."""


def next_spans(
    place: Place, most_rows: int, files_of: FilesOf, *, whole_versions: bool = False
) -> tuple[Place, list[Span]]:
    """Return the next rows, at most so many, and the place after them. Versions without rows are
    passed over. With `whole_versions` every version is complete, whatever its rows.
    """
    spans: list[Span] = []
    left = most_rows
    for _ in range(MOST_VERSIONS):
        if left <= 0 or place.is_at_stop or (files := files_of(place)) is None:
            break
        is_whole = whole_versions and not place.is_snapshot
        for file in files[place.file :]:
            if left <= 0 and not is_whole:
                return place, spans
            due = _rows(file) - place.row
            rows = due if is_whole else min(left, due)
            if rows > 0:
                spans.append(Span(file, place.row, place.row + rows, place.count))
            left -= rows
            is_done = rows == due
            place = replace(
                place,
                file=place.file + 1 if is_done else place.file,
                row=0 if is_done else place.row + rows,
                count=place.count + rows,
            )
            if not is_done:
                return place, spans
        place = place.next_version()
    return place, spans


def spans_between(start: Place, end: Place, files_of: FilesOf) -> Iterator[Span]:
    """Return the rows between two places."""
    place = start
    while (place.version, place.file, place.row) < (end.version, end.file, end.row):
        found, spans = next_spans(place, end.count - place.count, files_of)
        yield from spans
        if found == place or found.count == end.count:
            return
        place = found


def _rows(file: LoggedFile) -> int:
    assert file.rows is not None
    return file.rows
