"""Requests to read dead letters again, as input of a later epoch.

A request is a numbered record, created once, and a Parquet file with the records to read. It is not
changed when it has been read: a checkpoint of the source has the number of the newest request that
it has read. So a request takes effect exactly once on every path of epochs: a rollback to a
checkpoint before it makes it due again.

A dead letter of an epoch that was rolled back does not exist any more, and its record is read
again with its range. So a request does not apply to such letters.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq

from resurgence.errors import DamagedState
from resurgence.ids import Epoch, JobIdentity, OperatorId
from resurgence.state.paths import JobPaths, replay_of
from resurgence.state.protocol.decisions import EpochRange, is_dead
from resurgence.state.records import (
    REPLAYS,
    OperatorCheckpointMetadata,
    Replay,
    ReplayRequest,
    decode,
)
from resurgence.storage.object_store import ObjectStore
from resurgence.storage.parquet import create_new, whole_table

DONE = "done"
"""The value of the table REPLAYS."""
REPLAY_SCHEMA = pa.schema(
    [
        ("epoch", pa.int64()),
        ("partition", pa.string()),
        ("offset", pa.int64()),
        ("raw", pa.binary()),
        ("key", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
"""The columns of a request's file. `epoch`, `partition` and `offset` identify the dead letter."""


def next_replay(
    requests: Iterable[ReplayRequest], done: int, dead: tuple[EpochRange, ...]
) -> Replay | None:
    """Return the replay that a source has to read next; None if there is none. Pure."""
    for each in sorted(requests, key=lambda each: each.number):
        rows = sum(rows for epoch, rows in each.rows.items() if not is_dead(epoch, dead))
        if each.number > done and rows:
            return Replay(number=each.number, rows=rows)
    return None


def replays_done(metadata: OperatorCheckpointMetadata) -> int:
    """Return the newest replay that a source has read at a checkpoint; 0 if there was none."""
    table = metadata.tables.get(REPLAYS)
    done = table.values.get(DONE) if table else 0
    return done if isinstance(done, int) else 0


class Replays:
    """The requests of a job."""

    def __init__(self, store: ObjectStore, paths: JobPaths) -> None:
        self._store = store
        self._paths = paths
        self._read: dict[tuple[OperatorId, int], ReplayRequest] = {}

    def listed(self, job: JobIdentity) -> dict[OperatorId, list[ReplayRequest]]:
        """Return the requests of each source. Takes one request, and one for each new one. Those of
        another identity are of a job that had this name before.
        """
        found: dict[OperatorId, list[ReplayRequest]] = {}
        for each in self._store.list(self._paths.replays):
            named = replay_of(each.path)
            if named is not None and (request := self.request(*named)).job == job:
                found.setdefault(named[0], []).append(request)
        return found

    def request(self, operator: OperatorId, number: int) -> ReplayRequest:
        """Return one request, which never changes."""
        if (operator, number) not in self._read:
            path = self._paths.replay(operator, number)
            try:
                request = decode(ReplayRequest, self._store.read(path), path)
            except DamagedState as error:
                raise DamagedState(
                    f"a request to replay dead letters is damaged: {error.message}",
                    path=path,
                    hint="Restore it from a backup, or delete it.",
                ) from error
            self._read[operator, number] = request
        return self._read[operator, number]

    def records(self, request: ReplayRequest) -> pa.Table:
        """Return the records of a request, with the columns of REPLAY_SCHEMA."""
        return whole_table(self._store.read(request.path))

    def newest(self, operator: OperatorId) -> int:
        """Return the number of the newest request of a source, of any job identity; 0 if there is
        none.
        """
        named = (replay_of(each.path) for each in self._store.list(self._paths.replays))
        return max((each[1] for each in named if each and each[0] == operator), default=0)

    def add(
        self, job: JobIdentity, operator: OperatorId, records: pa.Table, now: datetime, after: int
    ) -> ReplayRequest | None:
        """Store the request that follows the one with number `after`. Return None if another
        process has stored one there. Its file is written first, so that a crash leaves no request
        without one.
        """
        data = pa.BufferOutputStream()
        pq.write_table(records.cast(REPLAY_SCHEMA), data, write_page_checksum=True)
        path = f"{self._paths.replays}/{operator}/{uuid.uuid4().hex[:12]}.parquet"
        create_new(self._store, path, data.getvalue().to_pybytes())
        rows: dict[Epoch, int] = {}
        for epoch in records.column("epoch").to_pylist():
            rows[Epoch(epoch)] = rows.get(Epoch(epoch), 0) + 1
        request = ReplayRequest(
            job=job, operator=operator, number=after + 1, path=path, rows=rows, requested_at=now
        )
        stored, record = self._paths.replay(operator, request.number), request.encode()
        # The name of its file is unique: an equal record is our own, whose response was lost.
        if self._store.create(stored, record) or self._store.read(stored) == record:
            return request
        self._store.delete([path])
        return None
