"""The paths that a job reads and writes, and whether they overlap.

If a sink writes where the job reads, the job overwrites its input, or reads its own output. Two
sinks with a file of their own, as their connector declares (`SinkRole.records_folder`), would
overwrite each other on one path, also if they belong to different jobs.
A job may read what another job writes: jobs are chained that way.

Paths are compared as the file system sees them: symbolic links, `..` and `file://` are resolved,
and a hard link is the same file. The value of a reference in an option may be unknown where a
pipeline is compiled; such a path is compared when the connectors are checked.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from resurgence.connectors.registry import listed_folder, records_folder
from resurgence.errors import UserError
from resurgence.graph.model import Graph
from resurgence.graph.specs.sink import SinkSpec
from resurgence.ids import JobName
from resurgence.secrets import open_options, shown_value
from resurgence.storage.object_store import split_url


class PathTaken(UserError):
    """Another job writes this file."""

    code = "sink.path_taken"


@dataclass(frozen=True)
class Place:
    """A file or folder that a table reads or writes."""

    table: str
    shown: str
    """The path as the user wrote it."""
    parts: tuple[str, ...]
    """The scheme, and the path from its root."""
    is_internal: bool = False
    """It holds the records of a sink, not rows."""

    def overlaps(self, other: Place) -> bool:
        """Return whether they are the same, or one is inside the other."""
        shorter = min(len(self.parts), len(other.parts))
        return self.parts[:shorter] == other.parts[:shorter] or self.is_same(other)

    def is_same(self, other: Place) -> bool:
        """Return whether they are the same file or folder, under any name."""
        if self.parts == other.parts:
            return True
        if not (self.parts[0] == other.parts[0] == "file"):
            return False
        with contextlib.suppress(OSError):
            return Path(*self.parts[1:]).samefile(Path(*other.parts[1:]))
        return False


def require_separate_paths(graph: Graph) -> None:
    """Raise UserError if a sink writes where the job reads, or where another sink writes."""
    read = [
        *(
            place
            for each in graph.sources()
            for place in _place(each.table, each.options, functools.partial(listed_folder, each))
        ),
        *(place for each in graph.lookup_tables() for place in _place(each.name, each.options)),
    ]
    written = [place for sink in graph.sinks() for place in _written(sink)]
    for sink, source in itertools.product(written, read):
        if sink.overlaps(source):
            raise UserError(
                f"table '{sink.table}' writes to {sink.shown}, which overlaps {source.shown}, "
                f"which table '{source.table}' reads",
                hint="Choose a path for the sink outside of everything that the job reads.",
            )
    for one, other in itertools.combinations(written, 2):
        is_shared = one.is_same(other) or (
            (one.is_internal or other.is_internal) and one.overlaps(other)
        )
        if one.table != other.table and is_shared:
            raise UserError(
                f"tables '{one.table}' and '{other.table}' both write to {other.shown}",
                hint="Choose a separate path for each, or INSERT into one table twice.",
            )


def files_written(graph: Graph) -> tuple[Place, ...]:
    """Return the files that belong to a job's sinks: no other job may write them."""
    return tuple(
        place
        for sink in graph.sinks()
        if len(places := tuple(_written(sink))) > 1
        for place in places
    )


def require_not_taken(written: Iterable[Place], others: Mapping[JobName, Iterable[Place]]) -> None:
    """Raise PathTaken if a sink of another job writes one of these files."""
    taken = [(job, each) for job, places in others.items() for each in places]
    for mine, (job, theirs) in itertools.product(written, taken):
        if mine.is_same(theirs):
            raise PathTaken(
                f"table '{mine.table}' writes to {mine.shown}, which table '{theirs.table}' of "
                f"job '{job}' writes already",
                hint="Choose another path for the sink, or delete the other job first.",
            )


def _written(sink: SinkSpec) -> Iterator[Place]:
    """Yield all places that a sink writes: its output, and the folder of its records."""
    for place in _place(sink.table, sink.options):
        yield place
        if folder := records_folder(sink, Path(*place.parts[1:])):
            yield Place(place.table, place.shown, ("file", *folder.parts), is_internal=True)


def _place(
    table: str, options: Mapping[str, str], place_of: Callable[[str], str] = str
) -> Iterator[Place]:
    """Yield the place of a table's `path`, or of its table in a catalog; nothing if it has none, or
    its value is unknown here. `place_of` returns the file or folder that a path means.
    """
    if "table_name" in options:
        with contextlib.suppress(UserError):
            opened = open_options(table, options).values
            catalog = opened.get("catalog.rest.url") or opened.get("catalog.sql.uri", "")
            name = f"{opened.get('namespace', '')}.{opened['table_name']}"
            yield Place(table, name, ("catalog", catalog, name))
    if "path" not in options:
        return
    with contextlib.suppress(UserError):
        path = open_options(table, {"path": options["path"]}).values["path"]
        yield Place(table, shown_value("path", options["path"]), _parts(place_of(path)))


def _parts(path: str) -> tuple[str, ...]:
    scheme, local = split_url(path)
    if scheme == "file":
        return ("file", *Path(local).resolve().parts)
    return (scheme, urlsplit(path).netloc, *(part for part in local.split("/") if part))
