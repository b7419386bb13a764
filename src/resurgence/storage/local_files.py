"""Files of a local folder as an object store lists them: in the order of their paths, after a path,
each with what identifies its content.

A store lists lazily, from any name on; so does this walk. A folder whose files all precede `after` is
not opened, and only files that are asked for are looked at.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class StoredFile(NamedTuple):
    """A file or object, and what identifies its content."""

    path: str
    """Relative to the folder of the listing."""
    size: int
    modified: int
    """In microseconds since 1970."""
    etag: str


def local_etag(status: os.stat_result) -> str:
    """Return what changes when a local file does: its modified time and its size."""
    return f"{status.st_mtime_ns:x}-{status.st_size:x}"


def local_files(root: str, after: str = "") -> Iterator[StoredFile]:
    """Yield the files under a folder whose paths are greater than `after`, in order. Symbolic links
    are followed, except to a folder that the link is in.
    """
    status = Path(root).stat()
    return _walked(root, "", after, frozenset({(status.st_dev, status.st_ino)}))


def read_local(path: str, start: int, end: int) -> tuple[bytes, str]:
    """Return bytes of a file and the ETag of the content that they are from."""
    with Path(path).open("rb") as file:
        file.seek(start)
        data = file.read(end - start)
        return data, local_etag(os.fstat(file.fileno()))


def _walked(
    folder: str, prefix: str, after: str, above: frozenset[tuple[int, int]]
) -> Iterator[StoredFile]:
    try:
        with os.scandir(folder) as found:
            # A folder is where its files are: `a.json` precedes `a/b.json`.
            entries = {each.name + ("/" if each.is_dir() else ""): each for each in found}
    except FileNotFoundError:
        return
    for name in sorted(entries):
        path, entry = prefix + name, entries[name]
        if not name.endswith("/"):
            if path > after and (file := _file(path, entry)) is not None:
                yield file
        elif path > after or after.startswith(path):
            status = entry.stat()
            identity = (status.st_dev, status.st_ino)
            if identity not in above:
                yield from _walked(entry.path, path, after, above | {identity})


def _file(path: str, entry: os.DirEntry[str]) -> StoredFile | None:
    """Return a file; None if it is something else, or was removed meanwhile."""
    try:
        if not entry.is_file():
            return None
        status = entry.stat()
    except FileNotFoundError:
        return None
    return StoredFile(path, status.st_size, status.st_mtime_ns // 1000, local_etag(status))
