"""The files of a range, and how they are written into an offset.

A range names all of its files, with size and ETag, so that it can be read again without a listing,
and a file that has changed is noticed. The list is bounded by the files of an epoch, and packed:
names have much in common.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable
from typing import NamedTuple

from resurgence.errors import UserError
from resurgence.storage.local_files import StoredFile

MOST_EXPANDED = 1032
"""How much larger, at most, the content of a file is than its gzip."""


class Piece(NamedTuple):
    """A file of a range, or a part of one."""

    path: str
    size: int
    modified: int
    etag: str
    start: int = 0
    """Where the part begins: a byte of a file of lines; a row of a columnar file; a line of a
    compressed one.
    """
    end: int | None = None
    """Where it ends; None for the end of a compressed file."""
    line: int = 0
    """The number of the first line or row, counted from 0."""

    @property
    def file(self) -> StoredFile:
        return StoredFile(self.path, self.size, self.modified, self.etag)

    @property
    def most_rows(self) -> int:
        """At most so many rows. A line has at least one byte."""
        return self.size * MOST_EXPANDED if self.end is None else self.end - self.start


def identity(file: StoredFile) -> int:
    """Return a number that identifies a file by its path, size and ETag."""
    text = f"{file.path}\n{file.size}\n{file.etag}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())


def packed(rows: Iterable[tuple[object, ...]]) -> str:
    """Return tuples of plain values as a short text; empty for none."""
    listed = [[*each] for each in rows]
    if not listed:
        return ""
    text = json.dumps(listed, separators=(",", ":"), ensure_ascii=False).encode()
    return base64.b85encode(zlib.compress(text)).decode()


def unpacked(text: str) -> list[list[object]]:
    """Return the tuples in such a text, as lists."""
    try:
        return list(json.loads(zlib.decompress(base64.b85decode(text)))) if text else []
    except (ValueError, zlib.error) as error:
        raise UserError(
            "the list of files in an offset is damaged",
            hint="Restore the checkpoint from a backup. It was edited by hand.",
        ) from error


def pieces_in(text: str) -> list[Piece]:
    """Return the packed pieces of a range."""
    return [Piece(*each) for each in unpacked(text)]  # type: ignore[arg-type]
