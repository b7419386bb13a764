"""Lines of stored files, plain or compressed: read in spans by Spark tasks, and counted and cut where
ranges are planned.

Every read compares the ETag, so a file that has changed since it was planned is never read as if it
were the same.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from resurgence.connectors.directory.files import Piece
from resurgence.connectors.directory.options import Compression
from resurgence.connectors.directory.selection import shown_folder
from resurgence.errors import ObjectMissing, SourceRangeGone
from resurgence.storage.object_store import ObjectStore

BLOCK = 4 * 1024 * 1024
"""Bytes that are read at a time."""
_CHANGED_HINT = (
    "Restore the file that was planned, or start a new job with another --name. Files must appear"
    " whole, under a new name, and must not change: write a file elsewhere or under a hidden name,"
    " and rename it."
)


def read_piece(store: ObjectStore, piece: Piece, start: int, end: int) -> bytes:
    """Return bytes of a file. Raise SourceRangeGone if it is not the one that was planned."""
    place = f"{shown_folder(store.url)}/{piece.path}"
    if end <= start:
        return b""
    try:
        data, etag = store.read_version(piece.path, start, end)
    except ObjectMissing as error:
        raise SourceRangeGone(
            f"{place} was removed after it was planned to be read", hint=_CHANGED_HINT
        ) from error
    if etag != piece.etag or len(data) != end - start:
        raise SourceRangeGone(
            f"{place} has changed after it was planned to be read: its ETag is {etag}, not"
            f" {piece.etag}",
            hint=_CHANGED_HINT,
        )
    return data


class PieceFile(io.RawIOBase):
    """A stored file for Arrow: each read requests that range, and compares the ETag."""

    def __init__(self, store: ObjectStore, piece: Piece) -> None:
        self._store, self._piece, self._at = store, piece, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._piece.size}[whence]
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int = -1) -> bytes:
        whole = self._piece.size
        end = whole if size < 0 else min(self._at + size, whole)
        data = read_piece(self._store, self._piece, self._at, end)
        self._at += len(data)
        return data


@dataclass(frozen=True)
class Lines:
    """Consecutive lines of a file."""

    first: int
    """The number of the first one."""
    texts: pa.Array | None
    """None: the file is damaged here, and has no readable lines any more."""
    damage: str = ""


def lines_of(store: ObjectStore, piece: Piece, compression: Compression) -> Iterator[Lines]:
    """Yield the lines of a piece."""
    if compression is Compression.NONE:
        assert piece.end is not None
        blocks = _plain_blocks(store, piece, piece.start, piece.end)
        yield from _split(blocks, piece.line, is_start=piece.start == 0)
        return
    for each in _split(_expanded_blocks(store, piece, compression), 0, is_start=True):
        if each.first >= (piece.end if piece.end is not None else each.first + 1):
            return
        yield from _limited(each, piece.start, piece.end)


def _limited(lines: Lines, start: int, end: int | None) -> Iterator[Lines]:
    """Yield those of the lines that are in a range of numbers."""
    if lines.texts is None:
        if lines.first >= start:
            yield lines
        return
    first = max(lines.first, start)
    last = lines.first + len(lines.texts)
    last = last if end is None else min(last, end)
    if first < last:
        yield Lines(first, lines.texts.slice(first - lines.first, last - first))


def _plain_blocks(store: ObjectStore, piece: Piece, start: int, end: int) -> Iterator[bytes]:
    for at in range(start, end, BLOCK):
        yield read_piece(store, piece, at, min(at + BLOCK, end))


def _expanded_blocks(
    store: ObjectStore, piece: Piece, compression: Compression
) -> Iterator[bytes | OSError]:
    """Yield the content of a compressed file, and the error where it is damaged."""
    source = pa.PythonFile(io.BufferedReader(PieceFile(store, piece), BLOCK), mode="r")
    with source, pa.CompressedInputStream(source, compression.value) as stream:
        while True:
            try:
                block = stream.read(BLOCK)
            except OSError as error:
                yield error
                return
            if not block:
                return
            yield block


def _split(
    blocks: Iterator[bytes | OSError] | Iterator[bytes], line: int, *, is_start: bool
) -> Iterator[Lines]:
    """Yield the lines in blocks of text. The last one may have no end."""
    carry: list[bytes] = []
    for block in blocks:
        if isinstance(block, OSError):
            # The beginning of a line that is cut off is no line.
            yield Lines(line, None, str(block).split("\n", 1)[0])
            return
        if is_start:
            block, is_start = block.removeprefix(codecs.BOM_UTF8), False
        whole, newline, rest = block.rpartition(b"\n")
        if not newline:
            carry.append(block)
            continue
        texts = _texts(b"".join((*carry, whole)))
        yield Lines(line, texts)
        line, carry = line + len(texts), [rest] if rest else []
    if carry:
        yield Lines(line, _texts(b"".join(carry)))


def _texts(text: bytes) -> pa.Array:
    return pc.split_pattern(pa.array([text], pa.large_binary()), b"\n").flatten().cast(pa.binary())


def cut_lines(
    store: ObjectStore, piece: Piece, most_lines: int, most_bytes: int
) -> tuple[int, int]:
    """Return (byte, number of lines) where a plain piece is cut: after so many lines, or at the end
    of the line in which so many bytes end.
    """
    assert piece.end is not None
    at, lines = piece.start, 0
    while at < piece.end and lines < most_lines:
        block = read_piece(store, piece, at, min(at + BLOCK, piece.end))
        found = block.count(b"\n")
        room = most_bytes - (at - piece.start)
        if lines + found < most_lines and len(block) < room:
            lines, at = lines + found, at + len(block)
            continue
        # The cut is in this block, unless its last line is longer.
        needed = min(most_lines - lines, block.count(b"\n", 0, max(0, room - 1)) + 1)
        place = -1
        for _ in range(min(needed, found)):
            place = block.index(b"\n", place + 1)
        if needed <= found:
            return at + place + 1, lines + needed
        lines, at = lines + found, at + len(block)
    ends_open = at >= piece.end and at > piece.start and not _ends_in_newline(store, piece)
    return min(at, piece.end), lines + ends_open


def _ends_in_newline(store: ObjectStore, piece: Piece) -> bool:
    assert piece.end is not None
    return read_piece(store, piece, piece.end - 1, piece.end) == b"\n"


def count_lines(store: ObjectStore, piece: Piece, compression: Compression) -> int:
    """Return the number of lines of a piece."""
    return sum(
        1 if each.texts is None else len(each.texts) for each in lines_of(store, piece, compression)
    )


def split_piece(store: ObjectStore, piece: Piece, parts: int) -> list[Piece]:
    """Split a plain piece into parts of about the same size, each of whole lines."""
    found: list[Piece] = []
    assert piece.end is not None
    while parts > 1:
        size = (piece.end - piece.start) // parts
        byte, lines = cut_lines(store, piece, piece.size, max(1, size))
        if byte >= piece.end:
            break
        found.append(piece._replace(end=byte))
        piece = piece._replace(start=byte, line=piece.line + lines)
        parts -= 1
        assert piece.end is not None
    return [*found, piece]
