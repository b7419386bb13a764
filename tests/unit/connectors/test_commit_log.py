"""The commit log of a sink: the first content of an epoch is the only one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import JsonValue

from resurgence.connectors.commit_log import RECORDS_KEPT, CommitLog
from resurgence.ids import Epoch, JobIdentity
from resurgence.storage.object_store import ObjectStore

JOB = JobIdentity("a1b2c3d4e5f6")


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore(str(tmp_path))


@pytest.fixture
def log(store: ObjectStore) -> CommitLog:
    return CommitLog(store, "out/_resurgence")


def files(*names: str) -> dict[str, JsonValue]:
    return {"files": list(names)}


def test_the_first_content_of_an_epoch_wins(log: CommitLog) -> None:
    assert log.fix(JOB, Epoch(1), files("a"))["files"] == ["a"]
    assert log.fix(JOB, Epoch(1), files("b"))["files"] == ["a"]


def test_epochs_and_jobs_are_kept_apart(log: CommitLog) -> None:
    log.fix(JOB, Epoch(1), files("a"))
    assert log.fix(JOB, Epoch(2), files("b"))["files"] == ["b"]
    assert log.fix(JobIdentity("other"), Epoch(1), files("c"))["files"] == ["c"]


def test_of_many_who_fix_an_epoch_at_once_all_get_the_same_content(log: CommitLog) -> None:
    def fix(number: int) -> JsonValue:
        return log.fix(JOB, Epoch(7), files(str(number)))["files"]

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(fix, range(32)))
    assert all(each == found[0] for each in found)


def test_the_latest_epoch_is_found(log: CommitLog) -> None:
    assert log.latest(JOB) is None
    for epoch in (2, 10, 9):
        log.fix(JOB, Epoch(epoch), files(str(epoch)))
    latest = log.latest(JOB)
    assert latest is not None
    epoch, content = latest
    assert (epoch, content["files"]) == (10, ["10"])


def test_old_records_are_let_go(log: CommitLog, store: ObjectStore) -> None:
    for epoch in range(1, 401):
        log.fix(JOB, Epoch(epoch), files(str(epoch)))
    listed = [each.path for each in store.list(f"out/_resurgence/{JOB}/epochs")]
    assert len(listed) == RECORDS_KEPT


def test_records_of_retracted_epochs_do_not_count(log: CommitLog) -> None:
    """Numbers jump over what was rolled back; what can still be replayed keeps its record."""
    for epoch in range(1, 101):
        log.fix(JOB, Epoch(epoch), files(str(epoch)))
    log.close(JOB, Epoch(50), Epoch(100), {})
    log.mark_retracted(JOB, Epoch(50), Epoch(100), {})
    for epoch in range(101, 151):
        log.fix(JOB, Epoch(epoch), files(str(epoch)))
    assert log.fix(JOB, Epoch(3), files("other"))["files"] == ["3"]


def test_closing_many_epochs_takes_few_records(log: CommitLog, store: ObjectStore) -> None:
    log.close(JOB, Epoch(0), Epoch(20_000), {})
    assert len(store.list(f"out/_resurgence/{JOB}/epochs")) == RECORDS_KEPT
    assert log.fix(JOB, Epoch(20_000), files("zombie"))["files"] == []


def test_a_sweep_removes_what_is_staged_and_no_record(log: CommitLog, store: ObjectStore) -> None:
    log.fix(JOB, Epoch(1), files("a"))
    store.create(log.staged_prefix(JOB, Epoch(2), 3) + "-x", b"rows")
    other = log.staged_prefix(JobIdentity("other"), Epoch(2), 3) + "-x"
    store.create(other, b"rows")
    log.sweep(JOB, Epoch(2))
    left = [each.path for each in store.list("")]
    assert left == [f"out/_resurgence/{JOB}/epochs/0000000001.json", other]


def test_a_sweep_leaves_what_is_staged_for_a_later_epoch(
    log: CommitLog, store: ObjectStore
) -> None:
    """An older generation may be about to seal it."""
    past = log.staged_prefix(JOB, Epoch(2), 1) + "-x"
    later = log.staged_prefix(JOB, Epoch(3), 1) + "-x"
    for path in (past, later):
        store.create(path, b"rows")
    log.sweep(JOB, Epoch(2))
    assert store.size(past) is None
    assert store.size(later) == 4
