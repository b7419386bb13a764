"""Producers that stay open between epochs: every part becomes visible once, also if others commit
in between.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from resurgence.connectors.kafka.writing.librdkafka import NativeProducer
from resurgence.connectors.kafka.writing.marker_topic import MarkerTopic
from resurgence.connectors.kafka.writing.markers import MarkerView
from resurgence.connectors.kafka.writing.open_lanes import OpenLanes
from resurgence.connectors.kafka.writing.parts import Part
from resurgence.errors import SinkConflict, SinkError
from resurgence.storage.access import store_access
from tests.kafka.lane_target import Killed, LaneTarget, at_call
from tests.servers.kafka import KafkaBroker


class Driver:
    """A process that commits epochs one after the other."""

    def __init__(self, target: LaneTarget) -> None:
        self.target = target
        self.lanes = OpenLanes()
        self.known = MarkerView()

    def commit(self, epoch: int, parts: tuple[Part, ...], **changes: Any) -> None:
        order = self.target.order(epoch, parts, known=self.known, **changes)
        self.known = self.lanes.commit(order, store_access(self.target.url))


@pytest.fixture
def target(kafka_broker: KafkaBroker, tmp_path: Path) -> LaneTarget:
    return LaneTarget(kafka_broker, tmp_path)


@pytest.fixture
def driver(target: LaneTarget) -> Iterator[Driver]:
    driver = Driver(target)
    yield driver
    driver.lanes.close()


def count(patch: pytest.MonkeyPatch, owner: type, name: str) -> Iterator[int]:
    """Count the calls of a method: the next number is how many there were."""
    real, calls = getattr(owner, name), [0]

    def called(*arguments: Any) -> Any:
        calls[0] += 1
        return real(*arguments)

    patch.setattr(owner, name, called)
    return (calls[0] for _ in itertools.repeat(None))


def test_the_epochs_after_the_first_neither_fence_nor_read_markers(
    target: LaneTarget, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    fenced = count(monkeypatch, NativeProducer, "init_transactions")
    read = count(monkeypatch, MarkerTopic, "read")
    for epoch in (1, 2, 3):
        driver.commit(epoch, target.stage(epoch, ([f"a{epoch}"], [f"b{epoch}"]), ([f"c{epoch}"],)))
    assert (next(fenced), next(read)) == (2, 2)
    assert sorted(target.visible()) == [f"{name}{epoch}" for name in "abc" for epoch in (1, 2, 3)]


def test_an_epoch_that_is_committed_again_is_not_produced_again(
    target: LaneTarget, driver: Driver
) -> None:
    parts = target.stage(1, (["a"], ["b"]))
    for _ in range(2):
        driver.commit(1, parts)
    assert target.visible() == ["a", "b"]


def test_a_lane_that_is_opened_later_reads_what_it_has_committed(
    target: LaneTarget, driver: Driver
) -> None:
    target.commit(target.order(1, target.stage(1, (["a"],), (["b"],))))
    second = target.stage(2, (["c"],))
    driver.commit(2, second)
    third = target.stage(3, (["d"],), (["e"],))
    driver.commit(3, third)
    target.commit(target.order(3, third))
    assert sorted(target.visible()) == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("step", "number"), [("begin", 1), ("produce", 1), ("commit", 1)])
def test_a_process_killed_in_a_later_epoch_is_completed_by_another(
    target: LaneTarget,
    driver: Driver,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    number: int,
    after: bool,
) -> None:
    def kill() -> None:
        raise Killed

    driver.commit(1, target.stage(1, (["a"],)))
    second = target.stage(2, (["b"], ["c"]))
    with at_call(monkeypatch, step, number, kill, after=after) as happened:
        with pytest.raises(Killed):
            driver.commit(2, second)
        assert happened
    target.commit(target.order(2, second))
    assert target.visible() == ["a", "b", "c"]


def test_a_process_that_was_fenced_fails_once_and_then_finds_what_is_committed(
    target: LaneTarget, driver: Driver
) -> None:
    driver.commit(1, target.stage(1, (["a"],)))
    second = target.stage(2, (["b"], ["c"]))
    target.commit(target.order(2, second))
    with pytest.raises(SinkError, match="was fenced"):
        driver.commit(2, second)
    driver.commit(2, second)
    driver.commit(3, target.stage(3, (["d"],)))
    assert target.visible() == ["a", "b", "c", "d"]


def test_a_zombie_never_commits_an_epoch_that_is_over(target: LaneTarget, driver: Driver) -> None:
    driver.commit(1, target.stage(1, (["a"],)))
    second = target.stage(2, (["b"],))
    target.commit(target.order(2, second))
    target.commit(target.order(3, target.stage(3, (["c"],))))
    with pytest.raises(SinkError, match="was fenced"):
        driver.commit(2, second)
    with pytest.raises(SinkConflict, match="holds epoch 3"):
        driver.commit(2, second)
    assert target.visible() == ["a", "b", "c"]


def test_a_broker_that_restarts_between_epochs_does_no_harm(
    target: LaneTarget, driver: Driver
) -> None:
    driver.commit(1, target.stage(1, (["a"],)))
    target.broker.restart()
    second = target.stage(2, (["b"],))
    for _ in range(3):
        try:
            driver.commit(2, second)
            break
        except SinkError:
            continue
    assert target.visible() == ["a", "b"]
