"""Fault points: their syntax, when they are due, and that they fire once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from resurgence.errors import ConfigError, InjectedFault
from resurgence.faults import (
    AT_OR_AFTER,
    Fault,
    FaultAction,
    FaultInjector,
    FaultPoint,
    parse_faults,
)
from resurgence.storage.object_store import ObjectStore

KILL = FaultAction.KILL


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore(str(tmp_path))


def injector(store: ObjectStore, text: str) -> FaultInjector:
    return FaultInjector(parse_faults(text), store, "rides")


@pytest.mark.parametrize("action", FaultAction)
@pytest.mark.parametrize("point", FaultPoint)
def test_every_point_and_action_can_be_written(point: FaultPoint, action: FaultAction) -> None:
    (fault,) = parse_faults(f"{point}@3={action}")
    assert fault == Fault(point, 3, action)
    assert parse_faults(str(fault)) == (fault,)


def test_several_faults_are_separated_by_commas() -> None:
    faults = parse_faults(" state.written@3=kill, sink.staged@12=raise ;epoch.read@1=hang,")
    assert [str(each) for each in faults] == [
        "state.written@3=kill",
        "sink.staged@12=raise",
        "epoch.read@1=hang",
    ]
    assert parse_faults("") == parse_faults(" , ") == ()


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("state.written", "invalid fault", "Write <point>@<epoch>=<action>"),
        ("state.written@x=kill", "invalid fault", "Write <point>@<epoch>=<action>"),
        ("state.written@-1=kill", "invalid fault", "Write <point>@<epoch>=<action>"),
        ("state.written@²=kill", "invalid fault", "Write <point>@<epoch>=<action>"),
        ("state.writen@3=kill", "unknown fault point", "Perhaps you meant 'state.written'."),
        ("state.written@3=kil", "unknown fault action", "Perhaps you meant 'kill'."),
        ("state.written:2@3=kill", "invalid fault", "Only sink.between has a number"),
        ("sink.between:0@3=kill", "invalid fault", "Only sink.between has a number"),
        ("sink.between:@3=kill", "invalid fault", "Only sink.between has a number"),
        ("state.written@3", "unknown fault action ''", "Use one of: freeze, hang, kill, raise."),
    ],
)
def test_a_malformed_fault_is_refused(text: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parse_faults(text)
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize("point", FaultPoint)
def test_a_fault_is_due_at_its_epoch_or_later_where_work_is_not_in_every_epoch(
    point: FaultPoint,
) -> None:
    fault = Fault(point, 3, KILL)
    assert [fault.is_due(point, epoch) for epoch in (2, 3, 4)] == [
        False,
        True,
        point in AT_OR_AFTER,
    ]


def test_background_work_and_restore_do_not_happen_in_every_epoch() -> None:
    assert {"compaction.mid", "retention.mid", "restore.mid"} == AT_OR_AFTER


def test_a_fault_is_not_due_at_another_point() -> None:
    assert not Fault(FaultPoint.SINK_STAGED, 3, KILL).is_due(FaultPoint.SINK_COMMITTED, 3)


def test_a_fault_fires_once_per_state_dir(store: ObjectStore, tmp_path: Path) -> None:
    text, point = "state.written@3=kill", FaultPoint.STATE_WRITTEN
    assert injector(store, text).claim(point, 2) is None
    assert injector(store, text).claim(point, 3) is KILL
    assert injector(store, text).claim(point, 3) is None
    elsewhere = ObjectStore(str(tmp_path / "elsewhere"))
    assert injector(elsewhere, text).claim(point, 3) is KILL


def test_a_fault_at_or_after_its_epoch_fires_once(store: ObjectStore) -> None:
    faults = injector(store, "retention.mid@3=kill")
    found = [faults.claim(FaultPoint.RETENTION_MID, epoch) for epoch in range(1, 9)]
    assert found == [None, None, KILL, None, None, None, None, None]


def test_a_fault_between_sinks_fires_after_the_commit_that_it_names(store: ObjectStore) -> None:
    texts = ["sink.between@3=kill", "sink.between:3@3=raise"]
    faults = parse_faults(",".join(texts))
    assert [str(each) for each in faults] == texts
    point = FaultPoint.SINK_BETWEEN
    made = FaultInjector(faults, store, "rides")
    assert [made.claim(point, 3, each) for each in (2, 3, 1)] == [None, FaultAction.RAISE, KILL]
    assert [made.claim(point, 3, each) for each in (1, 2, 3)] == [None, None, None]
    assert sorted(each.path for each in store.list("rides/faults")) == [
        "rides/faults/sink.between-3-3-raise",
        "rides/faults/sink.between-3-kill",
    ]


def test_two_faults_at_one_place_fire_one_after_the_other(store: ObjectStore) -> None:
    faults = injector(store, "epoch.read@1=raise,epoch.read@1=hang")
    found = [faults.claim(FaultPoint.EPOCH_READ, 1) for _ in range(3)]
    assert found == [FaultAction.RAISE, FaultAction.HANG, None]


def test_of_many_processes_at_a_fault_point_one_performs_the_fault(store: ObjectStore) -> None:
    def claim(_number: int) -> FaultAction | None:
        return injector(store, "epoch.read@1=kill").claim(FaultPoint.EPOCH_READ, 1)

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(claim, range(16))).count(KILL) == 1


def test_a_raised_fault_names_its_point_and_epoch(store: ObjectStore) -> None:
    faults = injector(store, "sink.staged@2=raise")
    faults.hit(FaultPoint.SINK_STAGED, 1)
    with pytest.raises(InjectedFault, match=r"fault injected at sink\.staged, epoch 2"):
        faults.hit(FaultPoint.SINK_STAGED, 2)
    faults.hit(FaultPoint.SINK_STAGED, 2)


def test_without_faults_nothing_is_written(store: ObjectStore) -> None:
    injector(store, "").hit(FaultPoint.SINK_STAGED, 1)
    assert store.list("") == ()
