"""The commit log of a sink: the first content of an epoch is the only one."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import JsonValue

from resurgence.connectors import commit_log
from resurgence.connectors.commit_log import CLOSED_EPOCHS, CommitLog
from resurgence.connectors.contract import CoveredInput, SourceSpan
from resurgence.ids import Epoch, JobIdentity, OperatorId
from resurgence.state.protocol.epoch_runs import LONG_RUN
from resurgence.storage.object_store import ObjectStore, StoredObject

JOB = JobIdentity("a1b2c3d4e5f6")
INPUT = CoveredInput(
    sources={OperatorId("source-in"): SourceSpan(start={"line": 0}, end={"line": 9})}
)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore(str(tmp_path))


@pytest.fixture
def log(store: ObjectStore) -> CommitLog:
    return CommitLog(store, "out/_resurgence")


def files(*names: str) -> dict[str, JsonValue]:
    return {"files": list(names)}


def test_the_first_content_of_an_epoch_wins(log: CommitLog) -> None:
    assert log.fix(JOB, Epoch(1), files("a"), INPUT)["files"] == ["a"]
    assert log.fix(JOB, Epoch(1), files("b"), INPUT)["files"] == ["a"]


def test_epochs_and_jobs_are_kept_apart(log: CommitLog) -> None:
    log.fix(JOB, Epoch(1), files("a"), INPUT)
    assert log.fix(JOB, Epoch(2), files("b"), INPUT)["files"] == ["b"]
    assert log.fix(JobIdentity("other"), Epoch(1), files("c"), INPUT)["files"] == ["c"]


def test_the_newest_output_is_that_of_an_epoch_that_is_not_empty_and_not_retracted(
    log: CommitLog,
) -> None:
    assert log.newest_output(JOB) is None
    for epoch, names in ((1, ("a",)), (2, ("b", "c")), (3, ())):
        log.fix(JOB, Epoch(epoch), files(*names), INPUT)
    found = log.newest_output(JOB)
    assert found is not None
    assert (found[0], found[1]["files"]) == (2, ["b", "c"])
    log.close(JOB, Epoch(1), Epoch(5), {})
    assert log.newest_output(JOB) == found
    log.mark_retracted(JOB, Epoch(1), Epoch(5), {})
    assert log.newest_output(JOB) is None


def test_concurrent_commits_of_an_epoch_return_the_same_content(log: CommitLog) -> None:
    def fix(number: int) -> JsonValue:
        return log.fix(JOB, Epoch(7), files(str(number)), INPUT)["files"]

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(fix, range(32)))
    assert all(each == found[0] for each in found)


def test_the_latest_epoch_is_found(log: CommitLog) -> None:
    assert log.latest(JOB) is None
    for epoch in (2, 10, 9):
        log.fix(JOB, Epoch(epoch), files(str(epoch)), INPUT)
    latest = log.latest(JOB)
    assert latest is not None
    epoch, content = latest
    assert (epoch, content["files"]) == (10, ["10"])


def test_records_before_the_oldest_checkpoint_are_pruned(
    log: CommitLog, store: ObjectStore
) -> None:
    for epoch in range(1, 401):
        log.fix(JOB, Epoch(epoch), files(str(epoch)), INPUT)
    log.forget(JOB, Epoch(391))
    listed = [each.path for each in store.list(f"out/_resurgence/{JOB}/epochs")]
    assert len(listed) == 10
    assert log.fix(JOB, Epoch(391), files("other"), INPUT)["files"] == ["391"]


@pytest.mark.parametrize("retracted", [False, True])
def test_the_newest_record_is_never_pruned(log: CommitLog, retracted: bool) -> None:
    """A windowed query may have written nothing for long."""
    for epoch in (1, 2, 3):
        log.fix(JOB, Epoch(epoch), files(str(epoch)), INPUT)
    if retracted:
        log.mark_retracted(JOB, Epoch(1), Epoch(7), {})
    before = log.latest(JOB)
    log.forget(JOB, Epoch(500))
    assert log.latest(JOB) == before
    assert log.recall(JOB, ()).newest == (7 if retracted else 3)


def test_a_rollback_to_the_newest_epoch_retracts_nothing(log: CommitLog) -> None:
    assert log.is_retracted(JOB, Epoch(3), Epoch(3))
    assert not log.is_retracted(JOB, Epoch(3), Epoch(4))


def test_closing_many_epochs_takes_few_records(log: CommitLog, store: ObjectStore) -> None:
    log.close(JOB, Epoch(0), Epoch(20_000), {})
    assert len(store.list(f"out/_resurgence/{JOB}/epochs")) == CLOSED_EPOCHS
    assert log.fix(JOB, Epoch(20_000), files("zombie"), INPUT)["files"] == []


def test_a_sweep_removes_staged_output_and_no_record(log: CommitLog, store: ObjectStore) -> None:
    log.fix(JOB, Epoch(1), files("a"), INPUT)
    store.create(log.staged_prefix(JOB, Epoch(2), 3) + "-x", b"rows")
    other = log.staged_prefix(JobIdentity("other"), Epoch(2), 3) + "-x"
    store.create(other, b"rows")
    log.sweep(JOB, Epoch(2))
    left = [each.path for each in store.list("")]
    assert left == [f"out/_resurgence/{JOB}/epochs/0000000001.json", other]


def test_a_sweep_keeps_staged_output_of_a_later_epoch(log: CommitLog, store: ObjectStore) -> None:
    """An older generation may be about to seal it."""
    past = log.staged_prefix(JOB, Epoch(2), 1) + "-x"
    later = log.staged_prefix(JOB, Epoch(3), 1) + "-x"
    for path in (past, later):
        store.create(path, b"rows")
    log.sweep(JOB, Epoch(2))
    assert store.size(past) is None
    assert store.size(later) == 4


# ---------------------------------------------------------------- records that were merged


def covering(epoch: int) -> CoveredInput:
    span = SourceSpan(start={"line": epoch - 1}, end={"line": epoch})
    return CoveredInput(sources={OperatorId("source-in"): span})


@pytest.fixture
def merged(log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> CommitLog:
    """Thirty epochs, of which the last five have records of their own."""
    monkeypatch.setattr(commit_log, "RECENT", 5)
    for epoch in range(1, 31):
        log.fix(JOB, Epoch(epoch), {"offset": epoch * 10}, covering(epoch))
    log.forget(JOB, Epoch(3))
    return log


def test_old_records_are_merged_and_a_commit_lists_few(
    merged: CommitLog, store: ObjectStore
) -> None:
    assert len(store.list(f"out/_resurgence/{JOB}/epochs")) == 5
    assert len(store.list(f"out/_resurgence/{JOB}/past")) == 1
    latest = merged.latest(JOB)
    assert latest is not None
    assert (latest[0], latest[1]["offset"]) == (30, 300)


def test_merged_records_are_found_by_rollbacks_and_restores(merged: CommitLog) -> None:
    assert [each["offset"] for each in merged.between(JOB, Epoch(20), Epoch(28))] == [
        *range(210, 290, 10)
    ]
    asked = [Epoch(each) for each in (2, 3, 25, 26, 30, 31)]
    held = merged.recall(JOB, asked)
    assert held.newest == 30
    assert held.inputs == {each: covering(each) for each in asked[1:-1]}


def test_the_first_content_of_an_epoch_wins_although_its_record_was_merged(
    merged: CommitLog, store: ObjectStore
) -> None:
    for log in (merged, CommitLog(store, "out/_resurgence")):
        assert log.fix(JOB, Epoch(10), {"offset": 7}, INPUT)["offset"] == 100
        assert log.fixed(JOB, Epoch(10)) == log.between(JOB, Epoch(9), Epoch(10))[0]


def test_merging_continues_and_drops_records_that_no_checkpoint_needs(
    merged: CommitLog, store: ObjectStore
) -> None:
    for epoch in range(31, 41):
        merged.fix(JOB, Epoch(epoch), {"offset": epoch * 10}, covering(epoch))
    merged.forget(JOB, Epoch(4))
    assert len(store.list(f"out/_resurgence/{JOB}/past")) == 1
    found = merged.between(JOB, Epoch(2), Epoch(40))
    assert [each["offset"] for each in found] == [*range(30, 410, 10)]
    merged.forget(JOB, Epoch(38))
    assert not store.list(f"out/_resurgence/{JOB}/past")
    assert [each["offset"] for each in merged.between(JOB, Epoch(0), Epoch(40))] == [380, 390, 400]


def test_a_merge_that_crashed_before_its_deletions_is_repeated(
    log: CommitLog, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_log, "RECENT", 5)
    for epoch in range(1, 31):
        log.fix(JOB, Epoch(epoch), {"offset": epoch * 10}, covering(epoch))
    kept = {each.path: store.read(each.path) for each in store.list("")}
    log.forget(JOB, Epoch(1))
    for path, data in kept.items():
        store.create(path, data)
    fresh = CommitLog(store, "out/_resurgence")
    offsets = {each["offset"] for each in fresh.between(JOB, Epoch(0), Epoch(30))}
    assert offsets == {*range(10, 310, 10)}
    fresh.forget(JOB, Epoch(1))
    assert len(store.list(f"out/_resurgence/{JOB}/epochs")) == 5
    assert len(store.list(f"out/_resurgence/{JOB}/past")) == 1


# ---------------------------------------------------------------- a million epochs


class CountedStore(ObjectStore):
    """Counts requests; a listing of more than a thousand objects is several."""

    def __init__(self) -> None:
        super().__init__("memory:///out")
        self.requests = 0

    def create(self, path: str, data: bytes) -> bool:
        self.requests += 1
        return super().create(path, data)

    def read(self, path: str) -> bytes:
        self.requests += 1
        return super().read(path)

    def list(self, prefix: str, after: str | None = None) -> tuple[StoredObject, ...]:
        found = super().list(prefix, after)
        self.requests += 1 + len(found) // 1000
        return found

    def delete(self, paths: Iterable[str]) -> None:
        listed = [*paths]
        self.requests += -(-len(listed) // 1000)
        super().delete(listed)


def test_the_log_of_a_million_epochs_is_small_although_all_can_be_rolled_back() -> None:
    """No record is forgotten: the oldest retained checkpoint is the first."""
    store, epochs = CountedStore(), 1_000_000
    log = CommitLog(store, ".resurgence")
    past = log._past(JOB)

    def contents(first: int, last: int) -> dict[Epoch, dict[str, JsonValue]]:
        return {
            Epoch(epoch): {"version": 1, **files(f"{epoch:010}-1-0123456789ab")}
            for epoch in range(first, last + 1)
        }

    # As upkeep has merged them, in fewer steps.
    for number in range(98):
        past._merge([], contents(number * LONG_RUN, (number + 1) * LONG_RUN - 1))
    for first in range(980_000, epochs - 1000, 1000):
        past.add(contents(first, first + 999))
    past.add(contents(epochs - 1000, epochs - 1000))
    most = 0
    for epoch in range(epochs - 999, epochs + 1):
        store.requests = 0
        log.fix(JOB, Epoch(epoch), files(f"{epoch:010}-1-0123456789ab"), covering(epoch))
        most = max(most, store.requests) if epoch > epochs - 999 else most
        if epoch % 50 == 0:
            store.requests = 0
            log.forget(JOB, Epoch(1))
            assert store.requests <= 120, "a few listings, and a read per record that is merged"
    assert most == 1, "requests of a commit"
    listed = store.list("")
    assert len(listed) <= 330
    assert len(store.list(f".resurgence/{JOB}/past")) <= 110
    assert max(each.size for each in listed) < 2 * 1024 * 1024
    fresh = CommitLog(store, ".resurgence")
    store.requests = 0
    assert fresh.recall(JOB, [Epoch(epochs)]).newest == epochs
    assert store.requests <= 5
    assert fresh.fixed(JOB, Epoch(123_456)) == {"version": 1, **files("0000123456-1-0123456789ab")}
    log.forget(JOB, Epoch(epochs - 9))
    assert len(store.list("")) <= 30
