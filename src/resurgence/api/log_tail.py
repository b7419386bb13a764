"""Reads of a worker's log: its last lines, or the text after an offset.

Reads are bounded, whatever the size of the file. Offsets count bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MAX_PART_BYTES = 1_000_000


@dataclass(frozen=True)
class LogPart:
    """A part of a log, and the offset after it."""

    text: str
    next_offset: int


def last_lines(file: Path, lines: int) -> LogPart:
    """Return the last lines that fit into one part. A missing log is empty."""
    size = _size(file)
    start = max(0, size - MAX_PART_BYTES)
    data = _read(file, start, size - start)
    end = start + len(data)
    if start:
        data = data[data.find(b"\n") + 1 :]
    text = b"".join(data.splitlines(keepends=True)[-lines:])
    return LogPart(text.decode(errors="replace"), end)


def lines_after(file: Path, offset: int) -> LogPart:
    """Return the text after an offset; read a log that has become shorter from its start.

    The text ends with a whole line if it has one, so that no character is split; the next call
    returns the rest.
    """
    start = offset if offset <= _size(file) else 0
    data = _read(file, start, MAX_PART_BYTES)
    whole = data.rfind(b"\n") + 1
    text = data[:whole] if whole else data
    return LogPart(text.decode(errors="replace"), start + len(text))


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def _read(file: Path, start: int, count: int) -> bytes:
    try:
        with file.open("rb") as opened:
            opened.seek(start)
            return opened.read(count)
    except FileNotFoundError:
        return b""
