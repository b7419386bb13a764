"""The dead letters of a job: lists them, and requests that they are read again.

Dead letters are Parquet files beside the checkpoints, which the engine writes as a sink. Letters of
epochs that were rolled back are not shown, also if the next start has not retracted them yet.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from resurgence.errors import StorageError, UserError
from resurgence.graph.watermarks import END_OF_TIME
from resurgence.ids import Epoch, OperatorId
from resurgence.state.backend import StateBackend
from resurgence.state.inspection.checkpoints import CheckpointStatus, kept_checkpoints
from resurgence.state.protocol.decisions import dead_ranges, is_dead
from resurgence.state.records import Manifest, ReplayRequest
from resurgence.state.replays import REPLAY_SCHEMA, Replays
from resurgence.storage.object_store import StoredObject
from resurgence.storage.parallel import in_parallel
from resurgence.storage.ranged_file import RangedFile

_FILE = re.compile(r"/dead-letters/[^/.]+-(\d{10})-\d+\.parquet$")
_1970 = datetime(1970, 1, 1, tzinfo=UTC)
_STORED = pa.schema(
    [
        ("operator", pa.string()),
        ("source", pa.string()),
        ("epoch", pa.int64()),
        ("position", pa.string()),
        ("error", pa.string()),
        ("raw", pa.binary()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("partition", pa.string()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("headers", REPLAY_SCHEMA.field("headers").type),
        ("record_timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
_MOST_RECORDS = 500
"""Of a request, which one epoch reads."""
_IDENTITY = ("source", "epoch", "partition", "offset")
Identity = tuple[object, ...]
"""The values of these columns."""
_SMALL_BYTES = 1024 * 1024
"""A file up to this size is read by one request."""
_EPOCHS_AT_ONCE = 32
"""How many epochs are read at the same time. Each has at most `pipeline.max_dead_letters`."""


@dataclass(frozen=True)
class LateRows:
    """A source whose replayed rows may be late."""

    source: OperatorId
    watermark: datetime | None
    """Rows with an earlier event time are late; None: its input has ended, and all rows are."""

    def __str__(self) -> str:
        if self.watermark is None:
            return f"the input of {self.source} has ended: windows drop all replayed rows as late"
        at = self.watermark.isoformat(timespec="seconds")
        return f"windows over {self.source} drop replayed rows before {at} as late"


@dataclass(frozen=True)
class Correction:
    """A record to read instead of a dead letter's."""

    raw: bytes | None
    """None: a record without a value."""
    source: str | None = None
    """Of the dead letter, if it is known."""
    position: str | None = None
    """Likewise."""


@dataclass(frozen=True)
class ReplayOutcome:
    """The requests that were stored, and what their user should know."""

    requests: tuple[ReplayRequest, ...]
    skipped: int
    """Dead letters that were replayed before."""
    late: tuple[LateRows, ...]
    has_finished: bool
    """The job has finished, and must be started again to read them."""

    @property
    def rows(self) -> int:
        return sum(sum(each.rows.values()) for each in self.requests)


@dataclass(frozen=True)
class LetterFilter:
    """Which dead letters are wanted: of an epoch, of an operator or source, with certain ids; by default all."""

    epoch: int | None = None
    operator: str | None = None
    ids: frozenset[str] | None = None

    def epochs_among(self, epochs: Iterable[int]) -> list[int]:
        """Return the epochs that may have some, newest first."""
        named = None if self.ids is None else {each.partition("-")[0] for each in self.ids}
        return sorted(
            (
                each
                for each in epochs
                if self.epoch in (None, each) and (named is None or str(each) in named)
            ),
            reverse=True,
        )

    def of(self, letters: pa.Table) -> pa.Table:
        """Return those that are wanted among the letters of whole epochs."""
        if self.operator is not None:
            letters = letters.filter(
                pc.or_(
                    pc.equal(letters.column("operator"), self.operator),
                    pc.equal(letters.column("source"), self.operator),
                )
            )
        if self.ids is not None:
            wanted = pa.array(sorted(self.ids), pa.string())
            letters = letters.filter(pc.is_in(letters.column("id"), wanted))
        return letters

    def require_found(self, letters: pa.Table) -> None:
        """Raise UserError if an id is not among the letters that were found."""
        unknown = sorted((self.ids or frozenset()) - {*letters.column("id").to_pylist()})
        if unknown:
            raise UserError(
                f"there is no dead letter {unknown[0]}",
                hint="Print their ids with `resurgence dead-letters list`.",
            )


@dataclass(frozen=True)
class Letters:
    """Dead letters, oldest first: what is stored, an `id`, and whether they were replayed."""

    rows: pa.Table
    omitted: int = 0
    """How many older ones were left out."""


def dead_letters(
    backend: StateBackend,
    wanted: LetterFilter | None = None,
    newest: int | None = None,
    columns: Collection[str] | None = None,
) -> Letters:
    """Return the dead letters that are wanted, or the newest of them.

    A raw record can be as large as a message, and a job can have millions. So epochs are read from
    the newest on, some at a time, until there are enough; of those before only the number is read.
    `columns` leaves others out, except those that identify a letter.
    """
    wanted = wanted or LetterFilter()
    files = _files(backend)
    names = _named(columns)
    epochs = wanted.epochs_among(files)
    pieces: list[pa.Table] = []
    while epochs and (newest is None or sum(each.num_rows for each in pieces) < newest):
        some, epochs = epochs[:_EPOCHS_AT_ONCE], epochs[_EPOCHS_AT_ONCE:]
        read = [functools.partial(_epoch_letters, backend, files[each], names) for each in some]
        pieces += map(wanted.of, in_parallel(read))
    letters = pa.concat_tables([_with_ids(_empty(names)), *reversed(pieces)])
    wanted.require_found(letters)
    omitted = 0 if newest is None else max(0, letters.num_rows - newest)
    letters = letters.slice(omitted)
    if epochs:
        count = [functools.partial(_count, backend, files[each], wanted) for each in epochs]
        omitted += sum(in_parallel(count))
    identities = _identities(letters)
    done = _replayed(backend, {*identities}) if identities else set()
    replayed = pa.array([each in done for each in identities], pa.bool_())
    return Letters(letters.append_column("replayed", replayed), omitted)


def _files(backend: StateBackend) -> dict[int, list[StoredObject]]:
    """Return the files of each epoch that was not rolled back."""
    dead = dead_ranges(backend.rollbacks())
    files: dict[int, list[StoredObject]] = {}
    for each in backend.store.list(backend.paths.dead_letters):
        found = _FILE.search(each.path)
        if found and not is_dead(Epoch(int(found[1])), dead):
            files.setdefault(int(found[1]), []).append(each)
    return files


def _named(columns: Collection[str] | None) -> list[str]:
    """Return the stored columns to read, in their order."""
    return [
        each
        for each in _STORED.names
        if columns is None or each in columns or each in (*_IDENTITY, "operator")
    ]


def _empty(names: list[str]) -> pa.Table:
    return pa.schema([_STORED.field(each) for each in names]).empty_table()


def _epoch_letters(
    backend: StateBackend, files: Sequence[StoredObject], names: list[str]
) -> pa.Table:
    """Return the dead letters of one epoch, with their ids."""
    letters = pa.concat_tables([_read(backend, each, names) for each in files])
    order = [(each, "ascending") for each in ("source", "partition", "offset")]
    return _with_ids(letters.sort_by(order))


def _with_ids(letters: pa.Table) -> pa.Table:
    """Return the letters of one epoch with their ids: the epoch, and their place in it."""
    epochs = letters.column("epoch").to_pylist()
    ids = [f"{epoch}-{place}" for place, epoch in enumerate(epochs, start=1)]
    return letters.add_column(0, "id", pa.array(ids, pa.string()))


def _count(backend: StateBackend, files: Sequence[StoredObject], wanted: LetterFilter) -> int:
    """Return how many dead letters of an epoch are of the operator that is wanted."""
    if wanted.operator is None:
        return sum(_footer(backend, each).num_rows for each in files)
    names = ["operator", "source"]
    return sum(wanted.of(_read(backend, each, names)).num_rows for each in files)


def _read(backend: StateBackend, file: StoredObject, names: list[str]) -> pa.Table:
    schema = pa.schema([_STORED.field(each) for each in names])
    with _opened(backend, file) as parquet:
        # Without Arrow's thread pool: see whole_table.
        return parquet.read(columns=names, use_threads=False).select(names).cast(schema)


def _footer(backend: StateBackend, file: StoredObject) -> pq.FileMetaData:
    with _opened(backend, file) as parquet:
        return parquet.metadata


@contextmanager
def _opened(backend: StateBackend, file: StoredObject) -> Iterator[pq.ParquetFile]:
    """Open a file. Of a large one only what is used is read."""
    store, path = backend.store, file.path
    try:
        with (
            pa.BufferReader(store.read(path))
            if file.size <= _SMALL_BYTES
            else RangedFile(store, path, file.size)
        ) as stored:
            yield pq.ParquetFile(stored, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise StorageError(
            f"dead letters in {file.path} cannot be read: {str(error).splitlines()[0]}",
            hint="Restore the file from a backup.",
        ) from error


def _identities(letters: pa.Table) -> list[Identity]:
    return list(zip(*(letters.column(each).to_pylist() for each in _IDENTITY), strict=True))


def _replayed(backend: StateBackend, among: Collection[Identity]) -> set[Identity]:
    """Return for which of these letters a replay was requested."""
    job, _ = backend.identity()
    replays = Replays(backend.store, backend.paths)
    requests = [each for some in replays.listed(job).values() for each in some]
    return {each for each in _requested(replays, requests) if each in among}


def _requested(replays: Replays, requests: Iterable[ReplayRequest]) -> Iterator[Identity]:
    """Yield the identities of the letters of requests."""
    for each in requests:
        records = replays.records(each)
        source = pa.array([each.operator] * len(records), pa.string())
        yield from _identities(records.append_column("source", source))


def request_replay(
    backend: StateBackend,
    letters: pa.Table,
    now: datetime,
    *,
    corrected: Mapping[str, Correction] | None = None,
    again: bool = False,
) -> ReplayOutcome:
    """Request that dead letters are read again. `corrected` are other records, by id. Those that were
    replayed before are skipped unless `again`. A request, which one epoch reads, has a bounded
    number of them.
    """
    _require_same(letters, corrected or {})
    fed = letters if again else letters.filter(pc.invert(letters.column("replayed")))
    skipped = letters.num_rows - fed.num_rows
    # Before anything is stored: a command that fails here has changed nothing.
    manifest, late = _outlook(backend, sorted(set(fed.column("source").to_pylist())))
    requests: list[ReplayRequest] = []
    for source in sorted(set(fed.column("source").to_pylist())):
        rows = _newest(fed.filter(pc.equal(fed.column("source"), source)))
        stored = _stored(backend, OperatorId(source), rows, now, corrected or {}, again=again)
        requests += stored
        skipped += rows.num_rows - sum(sum(each.rows.values()) for each in stored)
    asked = {each.operator for each in requests}
    has_finished = manifest is not None and manifest.finished
    late = tuple(each for each in late if each.source in asked)
    return ReplayOutcome(tuple(requests), skipped, late, has_finished)


def _stored(
    backend: StateBackend,
    source: OperatorId,
    letters: pa.Table,
    now: datetime,
    corrected: Mapping[str, Correction],
    *,
    again: bool,
) -> list[ReplayRequest]:
    """Store requests for the letters of one source. Those for which another process has stored a
    request in the meantime are skipped unless `again`.
    """
    job, _ = backend.identity()
    replays = Replays(backend.store, backend.paths)
    requests: list[ReplayRequest] = []

    def known() -> tuple[int, set[Identity]]:
        # The number first: a request that is stored after it takes the next number.
        newest = replays.newest(source)
        listed = () if again else replays.listed(job).get(source, ())
        return newest, {*_requested(replays, listed)}

    newest, done = known()
    for start in range(0, letters.num_rows, _MOST_RECORDS):
        piece = letters.slice(start, _MOST_RECORDS)
        while True:
            is_new = [each not in done for each in _identities(piece)]
            if not any(is_new):
                break
            records = _records(piece.filter(pa.array(is_new)), corrected)
            request = replays.add(job, source, records, now, after=newest)
            if request is not None:
                requests.append(request)
                newest = request.number
                break
            newest, done = known()
    return requests


def _require_same(letters: pa.Table, corrected: Mapping[str, Correction]) -> None:
    """Raise UserError if a corrected record is of another place than the dead letter with its id.
    Ids are counted within an epoch, so after a rollback an id can be of another record.
    """
    for row in letters.select(["id", "source", "position"]).to_pylist():
        given_by = corrected.get(row["id"], Correction(None))
        for name, given in (("source", given_by.source), ("position", given_by.position)):
            if given is not None and given != row[name]:
                raise UserError(
                    f"the corrected record {row['id']} is not of that dead letter: its {name} is"
                    f" {given}, not {row[name]}",
                    hint="List the dead letters again, and correct those.",
                )


def _newest(letters: pa.Table) -> pa.Table:
    """Return the newest letter of each record: one that was replayed may be a dead letter again."""
    places = zip(
        letters.column("partition").to_pylist(), letters.column("offset").to_pylist(), strict=True
    )
    last = {place: row for row, place in enumerate(places)}
    return letters.take(sorted(last.values()))


def _records(letters: pa.Table, corrected: Mapping[str, Correction]) -> pa.Table:
    raw = [
        corrected[each].raw if each in corrected else old
        for each, old in zip(
            letters.column("id").to_pylist(), letters.column("raw").to_pylist(), strict=True
        )
    ]
    names = [each if each != "timestamp" else "record_timestamp" for each in REPLAY_SCHEMA.names]
    records = letters.select(names).rename_columns(REPLAY_SCHEMA.names)
    place = REPLAY_SCHEMA.get_field_index("raw")
    return records.set_column(place, "raw", pa.array(raw, pa.binary()))


def _outlook(
    backend: StateBackend, sources: Collection[str]
) -> tuple[Manifest | None, tuple[LateRows, ...]]:
    """Return the newest manifest, and the sources whose replayed rows may be late after it."""
    valid = [each for each in kept_checkpoints(backend) if each.status is CheckpointStatus.VALID]
    if not valid:
        return None, ()
    newest = max(valid, key=lambda each: each.epoch)
    late = []
    for source in map(OperatorId, sources):
        metadata = newest.operators.get(source)
        if metadata is not None and metadata.watermark is not None:
            has_ended = metadata.watermark >= END_OF_TIME
            at = None if has_ended else _1970 + timedelta(microseconds=metadata.watermark)
            late.append(LateRows(source, at))
    return newest.manifest, tuple(late)
