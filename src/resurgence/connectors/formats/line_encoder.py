"""The encoder for files of lines, shared by formats that write text."""

from __future__ import annotations

import pyarrow as pa

from resurgence.storage.parquet import EncodedFile

LINE = "line"
"""The only column of rendered rows: text that ends in a newline."""


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
    """Concatenate all strings of an array, which are contiguous in memory already."""
    if len(lines) == 0:
        return b""
    large = lines.cast(pa.large_string())
    _, offsets, data = large.buffers()
    positions = memoryview(offsets).cast("q")
    return bytes(memoryview(data)[positions[large.offset] : positions[large.offset + len(large)]])
