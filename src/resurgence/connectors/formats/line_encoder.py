"""Files of lines: what formats that write text have in common."""

from __future__ import annotations

import pyarrow as pa

from resurgence.storage.parquet import EncodedFile

LINE = "line"
"""The one column of rows that are text, each ending in a newline."""


class LineEncoder:
    """Collects lines into one file."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._rows = 0
        self._size = 0

    @property
    def size(self) -> int:
        return self._size

    def add(self, batch: pa.RecordBatch) -> None:
        piece = _joined(batch.column(LINE))
        self._pieces.append(piece)
        self._rows += batch.num_rows
        self._size += len(piece)

    def finish(self) -> EncodedFile | None:
        return EncodedFile(b"".join(self._pieces), self._rows) if self._rows else None


def _joined(lines: pa.Array) -> bytes:
    """All strings of an array, one after the other: they lie like that in memory already."""
    if len(lines) == 0:
        return b""
    large = lines.cast(pa.large_string())
    _, offsets, data = large.buffers()
    positions = memoryview(offsets).cast("q")
    return bytes(memoryview(data)[positions[large.offset] : positions[large.offset + len(large)]])
