"""The deep check of a checkpoint: reads every byte that it depends on.

A restore checks digests, completeness and sizes, which takes one listing. The deep check also reads
every state file: its digest, its rows and columns against the metadata, its bins against the time
range.

Only a proven fault condemns a checkpoint. A fault must appear in two separate reads. A missing
object is a fault only while the manifest that names it exists, because retention deletes a manifest
first. A store that fails or refuses a request proves nothing, nor does a source that lost its
input, because the input can be restored.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from resurgence.errors import ObjectMissing, ResurgenceError, StorageError
from resurgence.ids import Epoch, Generation
from resurgence.state.backend import StateBackend
from resurgence.state.paths import epoch_object
from resurgence.state.protocol.checkpoint_records import (
    CheckpointRecords,
    judge_checkpoint,
    read_checkpoint,
)
from resurgence.state.records import (
    CondemnedRecord,
    Manifest,
    StateFile,
    TableCheckpoint,
    TableKind,
)
from resurgence.state.table_schema import schema_faults, table_columns
from resurgence.storage.object_store import ObjectStore
from resurgence.storage.parquet import digest_of

THREADS = 4
MOST_BYTES = 256 * 1024 * 1024
"""Maximum bytes of files in memory at one time, in all threads; a larger file is read alone."""

BIN = "bin"
"""The column of a time table to which its time range applies."""


@dataclass(frozen=True)
class SourceFindings:
    """Whether the sources can be read from a checkpoint on."""

    gone: tuple[str, ...] = ()
    """Sources that no longer have the input after the checkpoint."""
    unchecked: tuple[str, ...] = ()
    """Sources that could not be checked."""


SourceCheck = Callable[[Manifest], SourceFindings]
"""Checks whether the sources of the pipeline can still be read from a checkpoint on."""


@dataclass(frozen=True)
class Verification:
    """The result of the deep check of one checkpoint."""

    epoch: Epoch
    attempt: int
    generation: Generation
    """The generation that sealed it; the newest generation if the manifest is unreadable."""
    faults: tuple[str, ...]
    """Proven differences from what was sealed."""
    sources_gone: tuple[str, ...]
    """Sources that no longer have the input after the checkpoint."""
    unchecked: tuple[str, ...]
    """What could not be checked, and why."""
    went: bool
    """Retention deleted the checkpoint meanwhile, so there is no result."""
    files: int
    bytes: int
    seconds: float

    @property
    def reasons(self) -> tuple[str, ...]:
        """All findings."""
        return (*self.faults, *self.sources_gone, *self.unchecked)


class Verifier:
    """Runs the deep check. Files never change, so a file that several checkpoints name is read
    once.
    """

    def __init__(
        self,
        backend: StateBackend,
        *,
        check_sources: SourceCheck | None = None,
        threads: int = THREADS,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._backend = backend
        self._check_sources = check_sources
        self._threads = threads
        self._budget = _Budget(most_bytes)
        self._checked: dict[tuple[StateFile, TableKind, str], tuple[str, ...]] = {}

    def verify(self, manifest_path: str) -> Verification:
        """Run the deep check of the checkpoint that a manifest seals."""
        began = time.monotonic()
        store = self._backend.store
        parsed = epoch_object(manifest_path)
        if parsed is None or parsed[1] != "manifest" or not parsed[2].isdecimal():
            raise ObjectMissing(f"{manifest_path} is not the path of a manifest")
        epoch, attempt = parsed[0], int(parsed[2])
        job, _ = self._backend.identity()
        records, sizes = self._read(manifest_path)
        judgement = judge_checkpoint(records, job, epoch, sizes)
        faults = list(judgement.faults)
        if faults:
            records, sizes = self._read(manifest_path)
            judgement = judge_checkpoint(records, job, epoch, sizes)
            faults = [each for each in judgement.faults if each in faults]
        unchecked = list(judgement.newer)
        for found, unread in self._deep(records, sizes):
            faults.extend(found)
            unchecked.extend(unread)
        sources = SourceFindings()
        if self._check_sources is not None and records.manifest is not None:
            sources = self._check_sources(records.manifest)
        went = bool(faults) and store.size(manifest_path) is None
        files = [file for file, _ in records.state_files()]
        return Verification(
            epoch=epoch,
            attempt=attempt,
            generation=records.manifest.generation
            if records.manifest
            else self._backend.newest_generation(),
            faults=() if went else tuple(faults),
            sources_gone=sources.gone,
            unchecked=(*unchecked, *sources.unchecked),
            went=went,
            files=len(files),
            bytes=sum(each.bytes for each in files),
            seconds=time.monotonic() - began,
        )

    def _read(self, manifest_path: str) -> tuple[CheckpointRecords, dict[str, int]]:
        """Read what a restore reads: the records, and the sizes of all stored state files."""
        return read_checkpoint(self._backend.store, manifest_path), self._backend.file_sizes()

    def _deep(
        self, records: CheckpointRecords, sizes: Mapping[str, int]
    ) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
        """Yield (faults, unchecked) of each state file that is stored with the right size."""
        named = [each for each in records.state_files() if sizes.get(each[0].path) == each[0].bytes]
        with ThreadPoolExecutor(self._threads) as pool:
            yield from pool.map(lambda each: self._file(*each), named)

    def _file(self, file: StateFile, table: TableCheckpoint) -> tuple[Sequence[str], Sequence[str]]:
        key = (file, table.kind, table.schema_text)
        if key in self._checked:
            return self._checked[key], ()
        try:
            faults: Sequence[str] = ()
            for _ in range(2):
                with self._budget.holding(file.bytes):
                    faults = _file_faults(self._backend.store, *key)
                if not faults:
                    break
        except (StorageError, MemoryError, pa.ArrowNotImplementedError) as error:
            return (), (f"state file {file.path} could not be checked: {_brief(error)}",)
        self._checked[key] = tuple(faults)
        return faults, ()


def condemnable(
    found: Iterable[Verification], usable: Collection[Epoch]
) -> tuple[Verification, ...]:
    """Return the checkpoints to condemn: those with a proven fault, provided that another
    checkpoint is usable. If all were condemned, restoring the damaged objects from a backup would
    not help.
    """
    bad = tuple(each for each in found if each.faults)
    return bad if set(usable) - {each.epoch for each in bad} else ()


def condemn(backend: StateBackend, verification: Verification) -> bool:
    """Mark a checkpoint as unusable, so that it is never chosen again. Return False if it already
    was.
    """
    record = CondemnedRecord(
        job=backend.identity()[0],
        epoch=verification.epoch,
        attempt=verification.attempt,
        generation=verification.generation,
        reasons=verification.faults,
    )
    path = backend.paths.condemned(verification.epoch, verification.attempt)
    return backend.store.create(path, record.encode())


def _file_faults(
    store: ObjectStore, file: StateFile, kind: TableKind, schema_text: str
) -> list[str]:
    """Return the faults of one state file."""
    where = f"state file {file.path}"
    try:
        data = store.read(file.path)
    except ObjectMissing:
        return [f"{where} is missing"]
    if len(data) != file.bytes:
        return [f"{where} has {len(data)} bytes instead of {file.bytes}"]
    if digest_of(data) != file.digest:
        # Its content is not decoded: Arrow may crash the process on an altered footer.
        return [f"{where} does not match its digest"]
    try:
        return [f"{where} {fault}" for fault in _content_faults(data, file, kind, schema_text)]
    except (MemoryError, pa.ArrowNotImplementedError):
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        return [f"{where} cannot be read: {_brief(error)}"]


def _content_faults(
    data: bytes, file: StateFile, kind: TableKind, schema_text: str
) -> Iterator[str]:
    parquet = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    if parquet.metadata.num_rows != file.rows:
        yield f"has {parquet.metadata.num_rows} rows instead of {file.rows}"
    yield from schema_faults(table_columns(schema_text), parquet.schema_arrow)
    is_timed = kind is TableKind.TIME
    position = parquet.schema_arrow.get_field_index(BIN) if is_timed else -1
    if is_timed and position < 0:
        yield f"has no column '{BIN}'"
    read = 0
    for group in range(parquet.num_row_groups):
        bins: list[int] = []
        for batch in parquet.iter_batches(row_groups=[group]):
            read += batch.num_rows
            if position >= 0:
                bounds = pc.min_max(batch.column(position)).as_py()
                bins.extend(each for each in bounds.values() if each is not None)
        if not bins:
            continue
        first, last = min(bins), max(bins)
        if first < file.time_start or last > file.time_end:
            yield (
                f"has bins from {first} to {last}, "
                f"outside the range from {file.time_start} to {file.time_end}"
            )
    if read != parquet.metadata.num_rows:
        yield f"contains {read} rows, but its footer states {parquet.metadata.num_rows}"


def _brief(error: BaseException) -> str:
    text = error.message if isinstance(error, ResurgenceError) else str(error)
    return text.split("\n", 1)[0] or type(error).__name__


class _Budget:
    """Limits the bytes that threads hold at one time. A larger amount is admitted alone."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._changed = threading.Condition()

    @contextmanager
    def holding(self, amount: int) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self._held == 0 or self._held + amount <= self._most)
            self._held += amount
        try:
            yield
        finally:
            with self._changed:
                self._held -= amount
                self._changed.notify_all()
