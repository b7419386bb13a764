"""The dead letters of a job: lists them, and requests that they are read again.

Dead letters are Parquet files beside the checkpoints, which the engine writes as a sink. Letters of
epochs that were rolled back are not shown, also if the next start has not retracted them yet.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from resurgence.errors import StorageError, UserError
from resurgence.graph.watermarks import END_OF_TIME
from resurgence.ids import Epoch, OperatorId
from resurgence.state.backend import StateBackend
from resurgence.state.inspection.checkpoints import CheckpointStatus, kept_checkpoints
from resurgence.state.protocol.decisions import dead_ranges, is_dead
from resurgence.state.records import Manifest, ReplayRequest
from resurgence.state.replays import REPLAY_SCHEMA, Replays
from resurgence.storage.parallel import in_parallel
from resurgence.storage.parquet import whole_table

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


def dead_letters(backend: StateBackend, epoch: int | None = None) -> pa.Table:
    """Return the dead letters of all epochs, or of one, oldest first: what is stored, an `id`, and
    whether they were replayed.
    """
    dead = dead_ranges(backend.rollbacks())
    files = []
    for each in backend.store.list(backend.paths.dead_letters):
        found = _FILE.search(each.path)
        if found and epoch in (None, int(found[1])) and not is_dead(Epoch(int(found[1])), dead):
            files.append(each.path)
    tables = in_parallel([functools.partial(_read, backend, path) for path in files])
    letters = pa.concat_tables([_STORED.empty_table(), *tables])
    order = ("epoch", "source", "partition", "offset")
    letters = letters.sort_by([(each, "ascending") for each in order])
    numbers: dict[int, int] = {}
    ids = []
    for each in letters.column("epoch").to_pylist():
        numbers[each] = numbers.get(each, 0) + 1
        ids.append(f"{each}-{numbers[each]}")
    letters = letters.add_column(0, "id", pa.array(ids, pa.string()))
    done = _replayed(backend) if letters.num_rows else set()
    replayed = [each in done for each in _identities(letters)]
    return letters.append_column("replayed", pa.array(replayed, pa.bool_()))


def _read(backend: StateBackend, path: str) -> pa.Table:
    try:
        return whole_table(backend.store.read(path)).cast(_STORED)
    except (pa.ArrowException, OSError) as error:
        raise StorageError(
            f"dead letters in {path} cannot be read: {str(error).splitlines()[0]}",
            hint="Restore the file from a backup.",
        ) from error


def _identities(letters: pa.Table) -> list[tuple[object, ...]]:
    return list(zip(*(letters.column(each).to_pylist() for each in _IDENTITY), strict=True))


def _replayed(backend: StateBackend) -> set[tuple[object, ...]]:
    """Return the identities of all dead letters for which a replay was requested."""
    job, _ = backend.identity()
    replays = Replays(backend.store, backend.paths)
    requests = [each for some in replays.listed(job).values() for each in some]
    return _requested(replays, requests)


def _requested(replays: Replays, requests: Iterable[ReplayRequest]) -> set[tuple[object, ...]]:
    found: set[tuple[object, ...]] = set()
    for each in requests:
        records = replays.records(each)
        source = pa.array([each.operator] * len(records), pa.string())
        found.update(_identities(records.append_column("source", source)))
    return found


def chosen(
    letters: pa.Table, operator: str | None = None, ids: Collection[str] | None = None
) -> pa.Table:
    """Return some of the dead letters: of an operator or source, or with certain ids."""
    if operator is not None:
        is_it = pc.or_(
            pc.equal(letters.column("operator"), operator),
            pc.equal(letters.column("source"), operator),
        )
        letters = letters.filter(is_it)
    if ids is not None:
        unknown = sorted(set(ids) - set(letters.column("id").to_pylist()))
        if unknown:
            raise UserError(
                f"there is no dead letter {unknown[0]}",
                hint="Print their ids with `resurgence dead-letters list`.",
            )
        letters = letters.filter(pc.is_in(letters.column("id"), pa.array(sorted(ids), pa.string())))
    return letters


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

    def known() -> tuple[int, set[tuple[object, ...]]]:
        # The number first: a request that is stored after it takes the next number.
        newest = replays.newest(source)
        return newest, set() if again else _requested(replays, replays.listed(job).get(source, ()))

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
