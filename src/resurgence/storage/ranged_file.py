"""A stored object as a file, for readers that need some of its bytes."""

from __future__ import annotations

import io
from typing import Any

from resurgence.errors import ObjectMissing
from resurgence.storage.object_store import ObjectStore


class RangedFile(io.RawIOBase):
    """A stored object as a file for Arrow: each read requests that range."""

    def __init__(self, store: ObjectStore, path: str, size: int | None = None) -> None:
        """`size` is asked for if it is not given."""
        if size is None:
            size = store.size(path)
        if size is None:
            raise ObjectMissing(f"{store.url}/{path} does not exist")
        self._store, self._path, self._size, self._at = store, path, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._at + size, self._size)
        data = self._store.read_range(self._path, self._at, end)
        self._at += len(data)
        return data
