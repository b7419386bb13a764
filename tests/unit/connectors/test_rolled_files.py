"""Files that are rolled over several epochs: exactly once, whatever dies in between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.connectors.rolled_job import (
    IN_PROCESS,
    JOB,
    Crash,
    CrashingStore,
    Job,
    as_parquet,
    at,
    commit,
    files,
    flush,
    opened,
    stage,
    visible,
)

from resurgence.connectors import file_sink
from resurgence.errors import Retired, SinkError
from resurgence.ids import Epoch

SIZE = {"rolling_policy__file_size": "18"}
AGE = {"rolling_policy__interval": "4s"}
LONG = {"rolling_policy__interval": "1h"}
POLICIES = [{"rolling_policy__file_size": "9"}, {"rolling_policy__interval": "3s"}, LONG, {}]
"""By these, `Job` has files of one part and of several, in commits and in flushes."""
Stores = Callable[[], CrashingStore]


@pytest.fixture(params=["disk", "objects"])
def stores(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Stores:
    """Makes empty stores; the last one is that of every sink."""
    made: list[CrashingStore] = []

    def make() -> CrashingStore:
        url = f"file://{tmp_path}/{len(made)}" if request.param == "disk" else "memory:///out"
        made.append(CrashingStore(url))
        return made[-1]

    monkeypatch.setattr(file_sink, "shared_store", lambda _url: made[-1])
    return make


# ---------------------------------------------------------------- rolling


def test_rows_are_held_until_their_file_is_complete(stores: Stores) -> None:
    store = stores()
    sink = opened(store, **SIZE)
    for epoch in range(1, 7):
        commit(sink, epoch, stage(store, epoch, f"row-{epoch}"))
        sink.sweep(JOB, Epoch(epoch))
    assert files(store) == {
        f"{JOB}-0000000003-00000.json": ["row-1", "row-2", "row-3"],
        f"{JOB}-0000000006-00000.json": ["row-4", "row-5", "row-6"],
    }
    assert not store.list(f".resurgence/{JOB}/staged")


def test_an_epoch_without_rows_rolls_what_is_old(stores: Stores) -> None:
    store = stores()
    sink = opened(store, **AGE)
    commit(sink, 1, stage(store, 1, "a"))
    commit(sink, 4, stage(store, 4))
    assert visible(store) == []
    commit(sink, 5, stage(store, 5))
    assert visible(store) == ["a"]


def test_without_input_a_flush_rolls_what_is_old(stores: Stores) -> None:
    store = stores()
    sink = opened(store, **AGE)
    commit(sink, 1, stage(store, 1, "a"))
    flush(sink, 2, at(4))
    assert visible(store) == []
    flush(sink, 2, at(5))
    assert visible(store) == ["a"]
    commit(sink, 2, stage(store, 2, "b"))
    flush(sink, 3)
    assert visible(store) == ["a", "b"]


@pytest.mark.parametrize("options", [LONG, {}], ids=["long", "default"])
def test_a_run_that_ends_leaves_nothing_staged(stores: Stores, options: dict[str, str]) -> None:
    store = stores()
    sink = opened(store, **options)
    for epoch in (1, 2):
        commit(sink, epoch, stage(store, epoch, f"row-{epoch}"))
    flush(sink, 3)
    assert visible(store) == ["row-1", "row-2"]
    assert not store.list(f".resurgence/{JOB}/staged")


def test_folders_prefixes_and_compression_are_in_the_names(stores: Stores) -> None:
    store = stores()
    sink = opened(store, filename__prefix="day", **LONG)
    commit(sink, 1, stage(store, 1, "a", folder="k=1"))
    commit(sink, 2, stage(store, 2, "b", folder="k=2"))
    flush(sink, 3)
    assert files(store) == {
        f"k=1/day-{JOB}-0000000002-f00000.json": ["a"],
        f"k=2/day-{JOB}-0000000002-f00001.json": ["b"],
    }
    opened(store, **LONG).retract(JOB, Epoch(1), Epoch(2))
    assert visible(store) == ["a"]


def test_rows_that_were_held_by_an_earlier_policy_are_written_by_the_next_commit(
    stores: Stores,
) -> None:
    store = stores()
    commit(opened(store, **LONG), 1, stage(store, 1, "a", "b"))
    sink = opened(store)
    sink.sweep(JOB, Epoch(1))
    commit(sink, 2, stage(store, 2, "c"))
    sink.sweep(JOB, Epoch(2))
    assert sorted(files(store).values()) == [["a", "b"], ["c"]]
    assert not store.list(f".resurgence/{JOB}/staged")


def test_an_edited_compression_does_not_mix_a_file(stores: Stores) -> None:
    store = stores()
    commit(opened(store, **LONG), 1, stage(store, 1, "a"))
    sink = opened(store, json__compression="gzip", **LONG)
    commit(sink, 2, stage(store, 2, "b", suffix="json.gz"))
    flush(sink, 3)
    names = sorted(each.path for each in store.list("") if not each.path.startswith("."))
    assert [each.rpartition("-")[2] for each in names] == ["00000.json", "f00000.json.gz"]


@pytest.mark.parametrize("options", POLICIES, ids=["size", "age", "long", "default"])
def test_an_epoch_that_was_staged_before_an_edit_keeps_its_suffix(
    stores: Stores, options: dict[str, str]
) -> None:
    store = stores()
    staged = stage(store, 1, "row-a", "row-b")
    sink = as_parquet(store, **options)
    commit(sink, 1, staged)
    flush(sink, 2)
    assert visible(store) == ["row-a", "row-b"]
    assert all(each.endswith(".json") for each in files(store))


def test_a_commit_that_was_begun_before_an_edit_keeps_its_names(stores: Stores) -> None:
    store = stores()
    staged = stage(store, 1, "a")
    store.is_armed, store.crash_at, store.after = True, 1, True
    with pytest.raises(Crash):
        commit(opened(store), 1, staged)
    commit(as_parquet(store), 1, staged)
    assert files(store) == {f"{JOB}-0000000001-00000.json": ["a"]}


def test_a_rollback_cuts_a_file_of_an_earlier_format(stores: Stores) -> None:
    store = stores()
    sink = opened(store, **SIZE)
    for epoch in (1, 2, 3):
        commit(sink, epoch, stage(store, epoch, f"row-{epoch}"))
    flush(sink, 4)
    as_parquet(store).retract(JOB, Epoch(2), Epoch(3))
    assert files(store) == {f"{JOB}-0000000003-00000.json": ["row-1", "row-2"]}


# ---------------------------------------------------------------- crashes


@pytest.mark.parametrize("damages", [False, True], ids=["", "damaged"])
@pytest.mark.parametrize("options", POLICIES, ids=["size", "age", "long", "default"])
def test_a_crash_around_any_write_leaves_every_row_once(
    stores: Stores, options: dict[str, str], damages: bool
) -> None:
    stops = (5, 9)
    whole = Job(stores(), options)
    whole.store.is_armed = True
    for stop in stops:
        whole.run(stop)
    writes = whole.store.writes
    assert visible(whole.store) == whole.expected()
    for crash_at in range(1, writes + 1):
        for after in (False, True):
            job = Job(stores(), options, damages=damages)
            job.store.crash_at, job.store.after, job.store.is_armed = crash_at, after, True
            for stop in stops:
                job.run(stop)
                assert visible(job.store) == job.expected(), (crash_at, after, stop)
            assert job.store.crash_at is None
            assert job.debris() == [], (crash_at, after)


@pytest.mark.parametrize("options", POLICIES, ids=["size", "age", "long", "default"])
def test_a_sweep_at_any_moment_by_the_sink_of_another_insert_loses_nothing(
    stores: Stores, options: dict[str, str]
) -> None:
    job = Job(stores(), options)
    other = opened(job.store, **options)

    def sweep() -> None:
        other.sweep(JOB, Epoch(max(job.committed, default=0)))

    job.store.before_writes = sweep
    for stop in (5, 9):
        job.run(stop)
        assert visible(job.store) == job.expected()
    assert job.debris() == []


def test_a_rollback_completes_the_flush_of_older_rows(stores: Stores) -> None:
    store = stores()
    sink = opened(store, **LONG)
    commit(sink, 1, stage(store, 1, "row-1"))
    store.is_armed, store.crash_at, store.after = True, 1, True
    with pytest.raises(Crash):
        flush(sink, 2)
    assert visible(store) == []
    # Epoch 2 is sealed, but not committed.
    stage(store, 2, "row-2")
    opened(store, **LONG).retract(JOB, Epoch(1), Epoch(2))
    assert visible(store) == ["row-1"]


@pytest.mark.parametrize("options", [SIZE, LONG, {}], ids=["size", "long", "default"])
@pytest.mark.parametrize("after", range(6))
def test_a_rollback_keeps_the_rows_of_older_epochs_and_removes_the_others(
    stores: Stores, options: dict[str, str], after: int
) -> None:
    job = Job(stores(), options)
    job.run(6)
    shown = {*visible(job.store)}
    job.roll_back(after)
    left = {*visible(job.store)}
    assert left == {row for row in shown if row in job.expected_up_to(after)}
    job.run(10)
    assert visible(job.store) == job.expected()


@pytest.mark.parametrize("options", [SIZE, LONG], ids=["size", "long"])
@pytest.mark.parametrize("stopped", [True, False])
def test_a_crash_around_any_write_of_a_rollback_is_completed(
    stores: Stores, options: dict[str, str], stopped: bool
) -> None:
    def rolled_back(crash_at: int | None, *, dies_after: bool) -> Job:
        job = Job(stores(), options, keep=100)
        job.run(2)
        job.run(6) if stopped else job.process(6)
        job.store.is_armed, job.store.crash_at, job.store.after = True, crash_at, dies_after
        job.roll_back(4)
        assert {*visible(job.store)} <= {*job.expected_up_to(4)}
        job.run(9)
        return job

    writes = rolled_back(None, dies_after=False).store.writes
    for crash_at in range(1, writes + 1):
        for dies_after in (False, True):
            job = rolled_back(crash_at, dies_after=dies_after)
            assert visible(job.store) == job.expected(), (crash_at, dies_after)
            job.roll_back(1)
            assert visible(job.store) == job.expected_up_to(1), (crash_at, dies_after)


def test_a_commit_that_was_begun_is_completed_before_its_file_is_cut(stores: Stores) -> None:
    """Its older rows are nowhere else: the parts are taken."""
    store = stores()
    sink = opened(store, **SIZE)
    for epoch in (1, 2):
        commit(sink, epoch, stage(store, epoch, f"row-{epoch}"))
    staged = stage(store, 3, "row-3")
    sink._published.publish = lambda *_args, **_named: ()  # type: ignore[method-assign]
    commit(sink, 3, staged)
    assert visible(store) == []
    opened(store, **SIZE).retract(JOB, Epoch(2), Epoch(3))
    assert visible(store) == ["row-1", "row-2"]


def test_a_file_that_a_user_removed_is_not_missed_by_a_rollback(stores: Stores) -> None:
    job = Job(stores(), LONG)
    job.run(2)
    job.run(6)
    job.store.delete([each for each in files(job.store) if "0000000006" in each])
    job.roll_back(4)
    assert visible(job.store) == ["1a", "2a", "2b"]


# ---------------------------------------------------------------- zombies


def test_a_flush_of_an_old_process_finds_its_rows_committed_by_a_new_one(stores: Stores) -> None:
    store = stores()
    old = opened(store, **SIZE)
    for epoch in (1, 2):
        commit(old, epoch, stage(store, epoch, f"row-{epoch}"))
    new = opened(store, **SIZE)
    commit(new, 3, stage(store, 3, "row-3"))
    flush(old, 3)
    flush(new, 4)
    assert visible(store) == ["row-1", "row-2", "row-3"]


def test_a_commit_of_a_new_process_finds_the_flush_of_an_old_one(stores: Stores) -> None:
    store = stores()
    old = opened(store, **SIZE)
    commit(old, 1, stage(store, 1, "row-1"))
    new = opened(store, **SIZE)
    new._current(JOB)
    flush(old, 2)
    commit(new, 2, stage(store, 2, "row-2"))
    flush(new, 3)
    assert visible(store) == ["row-1", "row-2"]


def test_a_process_that_repeats_a_commit_closes_it_to_flushes_of_the_first(stores: Stores) -> None:
    store = stores()
    old, staged = opened(store, **SIZE), stage(store, 1, "row-1")
    commit(old, 1, staged)
    new = opened(store, **SIZE)
    commit(new, 1, staged)
    commit(new, 2, stage(store, 2, "row-2"))
    flush(old, 2)
    flush(new, 3)
    assert visible(store) == ["row-1", "row-2"]


def test_an_old_process_flushes_nothing_after_a_rollback(stores: Stores) -> None:
    store = stores()
    old = opened(store, **LONG)
    for epoch in (1, 2, 3):
        commit(old, epoch, stage(store, epoch, f"row-{epoch}"))
    opened(store, **LONG).retract(JOB, Epoch(1), Epoch(3))
    with pytest.raises(SinkError, match="is missing"):
        flush(old, 4)
    new = opened(store, **LONG)
    commit(new, 4, stage(store, 4, "row-4"))
    flush(new, 5)
    assert visible(store) == ["row-1", "row-4"]


def test_a_flush_during_a_rollback_makes_no_dead_row_visible(stores: Stores) -> None:
    store = stores()
    old = opened(store, **LONG)
    for epoch in (1, 2, 3):
        commit(old, epoch, stage(store, epoch, f"row-{epoch}"))

    def rolled_back() -> None:
        opened(store, **LONG).retract(JOB, Epoch(1), Epoch(3))

    old.flush(IN_PROCESS, JOB, Epoch(4), rolled_back)
    assert visible(store) == []
    flush(opened(store, **LONG), 4)
    assert visible(store) == ["row-1"]


def test_a_crash_after_the_newest_record_was_closed_to_flushes_loses_nothing(
    stores: Stores,
) -> None:
    store = stores()
    commit(opened(store, **LONG), 1, stage(store, 1, "row-1"))
    staged = stage(store, 2, "row-2")
    store.is_armed, store.crash_at, store.after = True, 1, True
    with pytest.raises(Crash):
        commit(opened(store, **LONG), 2, staged)
    third = opened(store, **LONG)
    third.sweep(JOB, Epoch(1))
    third.forget(JOB, Epoch(1))
    commit(third, 2, staged)
    flush(third, 3)
    assert visible(store) == ["row-1", "row-2"]


def test_a_process_that_is_fenced_flushes_nothing(stores: Stores) -> None:
    store = stores()
    sink = opened(store, **LONG)
    commit(sink, 1, stage(store, 1, "row-1"))

    def fenced() -> None:
        raise Retired("a newer generation exists")

    with pytest.raises(Retired):
        sink.flush(IN_PROCESS, JOB, Epoch(2), fenced)
    assert visible(store) == []


def test_a_sweep_of_another_process_keeps_what_is_held(stores: Stores) -> None:
    store = stores()
    old = opened(store, **LONG)
    for epoch in (1, 2, 3):
        commit(old, epoch, stage(store, epoch, f"row-{epoch}"))
    opened(store, **LONG).sweep(JOB, Epoch(3))
    opened(store, **LONG).forget(JOB, Epoch(1000))
    flush(opened(store, **LONG), 4)
    assert visible(store) == ["row-1", "row-2", "row-3"]


# ---------------------------------------------------------------- cost


def test_requests_and_records_do_not_grow_with_what_is_held(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores()
    sink = opened(store, **LONG)
    commit(sink, 1, stage(store, 1, "a"))
    store.is_armed = True
    sizes = []
    for epoch in range(2, 200):
        staged, before = stage(store, epoch, "a"), store.writes
        commit(sink, epoch, staged)
        assert store.writes == before + 1
        sizes.append(len(store.read(f".resurgence/{JOB}/epochs/{epoch:010}.json")))
    assert max(sizes) <= min(sizes) + 10
