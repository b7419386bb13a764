"""State files of key tables on the local disk of an executor, decoded and sorted by key.

A file is decoded once per machine. After that its rows are mapped into memory, and a lookup reads
the pages that it needs instead of the file. A task that writes a state file stores its rows here as
well, so epochs on one machine read nothing from the object store.

The cache is a folder of Spark's block manager, which ends with its application: a crash leaves
nothing behind that a later process would trust. An entry is written under another name and renamed.
It ends with the checksum of its rows, which each process verifies when it first maps the entry. An
entry that is missing or damaged is read from the object store again, with the digest of the state
file verified. The entries that were not used for the longest time are removed when the folder
exceeds `LIMIT`, or has more than `MOST_ENTRIES` of which some were not used for a minute; every
process checks that now and then. Without space on the disk, rows are held in memory. Nothing depends
on the cache but time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from resurgence.engine.tables.sorted_rows import SortedRows, by_key
from resurgence.state.records import StateFile
from resurgence.storage.access import StoreAccess
from resurgence.storage.object_store import task_store
from resurgence.storage.parquet import read_verified, row_groups

LIMIT = 16 * 1024**3
"""The size of the folder in bytes."""
MOST_ENTRIES = 1024
"""Every epoch writes some files, and few of them are needed after their compaction."""
_RECENT_SECONDS = 60
_CHECKS = 64
"""A process checks the limits when it has stored this part of one of them."""
FOLDER = "resurgence-state"
_CHECKSUM_BYTES = 8

_verified: set[str] = set()
"""The entries whose checksum this process has verified. Names are never used twice."""


@dataclass
class _Stored:
    """What this process has stored since it checked the limits."""

    bytes: int = 0
    entries: int = 0


_unchecked = _Stored()


@dataclass
class _Reads:
    """How often this process has read a state file, from the cache and from the object store, and
    how many bytes from there.
    """

    hits: int = 0
    misses: int = 0
    bytes: int = 0


reads = _Reads()


def sorted_rows(access: StoreAccess, file: StateFile) -> SortedRows:
    """Return the rows of a file: mapped from the cache, or else read and verified. Raise
    DamagedState if the stored file is damaged or missing.
    """
    entry = _entry(access, file.path)
    found = None if entry is None else _mapped(entry)
    if found is not None:
        reads.hits += 1
        return found
    reads.misses += 1
    reads.bytes += file.bytes
    data = read_verified(task_store(access), file.path, file.bytes, file.digest)
    if entry is not None:
        _store(entry, data, file.path)
        found = _mapped(entry)
    return found or SortedRows([*_decoded(data, file.path)])


def remember(access: StoreAccess, path: str, data: bytes) -> None:
    """Store the rows of a file that this task has just written."""
    entry = _entry(access, path)
    if entry is not None:
        _store(entry, data, path)


def _decoded(data: bytes, path: str) -> Iterator[pa.RecordBatch]:
    return (by_key(each) for each in row_groups(data, path))


def _entry(access: StoreAccess, path: str) -> Path | None:
    """Return the place of a file's rows; None outside of a Spark task."""
    folders = os.environ.get("SPARK_LOCAL_DIRS")
    if not folders:
        return None
    name = hashlib.sha256(f"{access.url}/{path}".encode()).hexdigest()[:32]
    return Path(folders.split(",")[0]) / FOLDER / f"{name}.arrow"


def _mapped(entry: Path) -> SortedRows | None:
    """Return the rows of an entry; None if it is missing or damaged."""
    try:
        os.utime(entry)
        with pa.memory_map(str(entry)) as file:
            content = file.read_buffer()
        rows = content[:-_CHECKSUM_BYTES]
        if entry.name not in _verified:
            if _checksum(rows) != content[-_CHECKSUM_BYTES:].to_pybytes():
                entry.unlink(missing_ok=True)
                return None
            if len(_verified) > MOST_ENTRIES:
                _verified.clear()
            _verified.add(entry.name)
        return SortedRows([*pa.ipc.open_stream(rows)])
    except (OSError, pa.ArrowException):
        return None


def _store(entry: Path, data: bytes, path: str) -> None:
    """Write the rows of a file. Does nothing if the disk is full."""
    written = entry.with_name(f".{uuid.uuid4().hex}")
    try:
        entry.parent.mkdir(exist_ok=True)
        with pa.OSFile(str(written), "wb") as file:
            writer: pa.RecordBatchStreamWriter | None = None
            for batch in _decoded(data, path):
                writer = writer or pa.ipc.new_stream(file, batch.schema)
                writer.write_batch(batch)
            if writer is None:
                return
            writer.close()
        with pa.memory_map(str(written)) as file:
            checksum = _checksum(file.read_buffer())
        with written.open("ab") as file:
            file.write(checksum)
        _make_room(entry.parent, written.stat().st_size)
        written.rename(entry)
    except OSError:
        written.unlink(missing_ok=True)


def _checksum(rows: pa.Buffer) -> bytes:
    return f"{zlib.crc32(rows):08x}".encode()


def _make_room(folder: Path, size: int) -> None:
    """Count a new entry; if a check is due, remove the entries that were not used for the longest
    time.
    """
    _unchecked.bytes += size
    _unchecked.entries += 1
    if _unchecked.bytes * _CHECKS < LIMIT and _unchecked.entries * _CHECKS < MOST_ENTRIES:
        return
    _unchecked.bytes = _unchecked.entries = 0
    entries = []
    for each in os.scandir(folder):
        with contextlib.suppress(FileNotFoundError):
            if each.name.endswith(".arrow"):
                found = each.stat()
                entries.append((found.st_mtime, found.st_size, each.path))
    total, count = size + sum(each[1] for each in entries), 1 + len(entries)
    recent = time.time() - _RECENT_SECONDS
    for used_at, freed, path in sorted(entries):
        if total <= LIMIT and (count <= MOST_ENTRIES or used_at > recent):
            return
        Path(path).unlink(missing_ok=True)
        total, count = total - freed, count - 1
