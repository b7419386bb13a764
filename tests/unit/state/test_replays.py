"""Requests to replay dead letters."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from resurgence.errors import DamagedState
from resurgence.ids import Epoch, JobIdentity, JobName, OperatorId
from resurgence.state.paths import JobPaths
from resurgence.state.records import Replay, ReplayRequest
from resurgence.state.replays import REPLAY_SCHEMA, Replays, next_replay
from resurgence.storage.object_store import ObjectStore

JOB, SOURCE = JobIdentity("a1b2c3d4e5f6"), OperatorId("source-rides")
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def request(number: int, rows: dict[int, int]) -> ReplayRequest:
    return ReplayRequest(
        job=JOB,
        operator=SOURCE,
        number=number,
        path="x",
        rows={Epoch(epoch): count for epoch, count in rows.items()},
        requested_at=NOW,
    )


def records(*epochs: int) -> pa.Table:
    rows = [
        {"epoch": each, "partition": "a", "offset": offset, "raw": b"{}"}
        for offset, each in enumerate(epochs)
    ]
    return pa.Table.from_pylist(rows, REPLAY_SCHEMA)


def test_requests_are_read_in_the_order_of_their_numbers() -> None:
    requests = [request(10, {1: 3}), request(9, {1: 2, 2: 5})]
    assert next_replay(requests, 0, ()) == Replay(number=9, rows=7)
    assert next_replay(requests, 9, ()) == Replay(number=10, rows=3)
    assert next_replay(requests, 10, ()) is None


def test_letters_of_epochs_that_were_rolled_back_are_not_replayed() -> None:
    requests = [request(1, {5: 3}), request(2, {4: 1, 6: 2})]
    dead = ((Epoch(5), Epoch(9)),)
    assert next_replay(requests, 0, dead) == Replay(number=2, rows=1)


def test_requests_are_numbered_by_source_and_found_again() -> None:
    store = ObjectStore("memory://")
    replays = Replays(store, JobPaths(JobName("rides")))
    assert replays.listed(JOB) == {}
    first = replays.add(JOB, SOURCE, records(4, 4, 7), NOW, after=0)
    second = replays.add(JOB, SOURCE, records(8), NOW, after=replays.newest(SOURCE))
    other = replays.add(JOB, OperatorId("source-zones"), records(1), NOW, after=0)
    assert first is not None
    assert second is not None
    assert other is not None
    assert (first.number, second.number, other.number) == (1, 2, 1)
    assert first.rows == {4: 2, 7: 1}
    again = Replays(store, JobPaths(JobName("rides")))
    assert again.listed(JOB) == {SOURCE: [first, second], other.operator: [other]}
    assert again.records(first).column("epoch").to_pylist() == [4, 4, 7]
    assert again.listed(JobIdentity("another")) == {}


class LossyStore(ObjectStore):
    """Performs every create, and loses the response of the first to some path: the client resends
    it.
    """

    def __init__(self, lost: str) -> None:
        super().__init__("memory://")
        self._lost = lost

    def create(self, path: str, data: bytes) -> bool:
        created = super().create(path, data)
        if created and self._lost and path.endswith(self._lost):
            self._lost = ""
            return super().create(path, data)
        return created


@pytest.mark.parametrize("lost", [".json", ".parquet"])
def test_a_request_whose_response_was_lost_is_stored_once(lost: str) -> None:
    replays = Replays(LossyStore(lost), JobPaths(JobName("rides")))
    added = replays.add(JOB, SOURCE, records(4), NOW, after=0)
    assert replays.listed(JOB) == {SOURCE: [added]}


def test_one_of_two_requests_with_the_same_number_is_stored() -> None:
    store, paths = ObjectStore("memory://"), JobPaths(JobName("rides"))
    first = Replays(store, paths).add(JOB, SOURCE, records(4), NOW, after=0)
    assert Replays(store, paths).add(JOB, SOURCE, records(4), NOW, after=0) is None
    assert Replays(store, paths).listed(JOB) == {SOURCE: [first]}
    assert len(store.list(paths.replays)) == 2


def test_a_damaged_request_can_be_deleted() -> None:
    store, paths = ObjectStore("memory://"), JobPaths(JobName("rides"))
    store.create(paths.replay(SOURCE, 1), b"{")
    with pytest.raises(DamagedState) as raised:
        Replays(store, paths).listed(JOB)
    assert raised.value.hint == "Restore it from a backup, or delete it."
