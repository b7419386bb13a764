"""The end of a worker's log, or what was added to it since an offset.

An answer is bounded, whatever the size of the file. Offsets count bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LARGEST_ANSWER = 1_000_000


@dataclass(frozen=True)
class LogPart:
    """Text, and the offset at which it goes on."""

    text: str
    next_offset: int


def last_lines(file: Path, lines: int) -> LogPart:
    """The last lines, as far as they fit into an answer. A log that is not there is empty."""
    size = _size(file)
    start = max(0, size - LARGEST_ANSWER)
    data = _read(file, start, size - start)
    end = start + len(data)
    if start:
        data = data[data.find(b"\n") + 1 :]
    kept = b"".join(data.splitlines(keepends=True)[-lines:])
    return LogPart(kept.decode(errors="replace"), end)


def lines_after(file: Path, offset: int) -> LogPart:
    """What stands after an offset; a log that has become shorter is read from its beginning.

    It ends with a whole line if there is one, so that no character is cut in two; what is left
    comes with the next call.
    """
    start = offset if offset <= _size(file) else 0
    data = _read(file, start, LARGEST_ANSWER)
    whole = data.rfind(b"\n") + 1
    kept = data[:whole] if whole else data
    return LogPart(kept.decode(errors="replace"), start + len(kept))


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
