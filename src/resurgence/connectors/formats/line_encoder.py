"""The encoder for files of lines, shared by formats that write text."""

from __future__ import annotations

import functools
import gzip

import pyarrow as pa

from resurgence.connectors.formats.contract import VALUE, Compression
from resurgence.storage.parquet import EncodedFile


class LineEncoder:
    """Collects lines into one file. Each is rendered text that ends in a newline."""

    def __init__(self, *, gzipped: bool = False) -> None:
        """`gzipped`: the file is one member of gzip, so that files can still be concatenated."""
        self._gzipped = gzipped
        self._pieces: list[bytes] = []
        self._rows = 0
        self._size = 0

    @property
    def size(self) -> int:
        return self._size

    def add(self, batch: pa.RecordBatch) -> None:
        piece = _joined(batch.column(VALUE))
        self._pieces.append(piece)
        self._rows += batch.num_rows
        self._size += len(piece)

    def finish(self) -> EncodedFile | None:
        if not self._rows:
            return None
        data = b"".join(self._pieces)
        # Without a time, so that the same lines are the same bytes.
        return EncodedFile(gzip.compress(data, mtime=0) if self._gzipped else data, self._rows)


LINE_COMPRESSIONS = {
    "uncompressed": Compression(LineEncoder),
    "gzip": Compression(functools.partial(LineEncoder, gzipped=True), ".gz"),
}
"""The compressions of every format of lines."""


def _joined(lines: pa.Array) -> bytes:
    """Concatenate all strings of an array, which are contiguous in memory already."""
    if len(lines) == 0:
        return b""
    large = lines.cast(pa.large_string())
    _, offsets, data = large.buffers()
    positions = memoryview(offsets).cast("q")
    return bytes(memoryview(data)[positions[large.offset] : positions[large.offset + len(large)]])
