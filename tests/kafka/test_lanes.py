"""The lanes of a Kafka sink: every part becomes visible once, whatever fails and whoever commits."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from resurgence.connectors.contract import CoveredInput, SourceSpan
from resurgence.connectors.kafka.writing.lanes import _task, close_lane, commit_lane, commit_lanes
from resurgence.connectors.kafka.writing.markers import LaneKey, MarkerView
from resurgence.connectors.kafka.writing.parts import Part
from resurgence.errors import ConnectionLost, SinkConflict, SinkError
from resurgence.ids import Epoch, OperatorId
from resurgence.storage.access import store_access
from tests.kafka.lane_target import JOB, SINK, STEPS, Killed, LaneTarget, at_call, covering
from tests.servers.kafka import KafkaBroker

CALLS = [(step, number) for step in STEPS for number in (1, 2) if (step, number) != (STEPS[0], 2)]
CALLS += [("produce", 3), ("produce", 4)]
"""Of a lane with two parts: rows and marker of each are one call each."""
OVER = {("commit", 2, True)}
"""The step after which a zombie has nothing more to do."""
WHOLE = ["a", "b", "c"]


@pytest.fixture
def target(kafka_broker: KafkaBroker, tmp_path: Path) -> LaneTarget:
    return LaneTarget(kafka_broker, tmp_path)


def kill() -> None:
    raise Killed


def two_parts(target: LaneTarget, epoch: int = 1) -> tuple[Part, ...]:
    """One lane: its messages have one key, so their order is visible."""
    return target.stage(epoch, (["a", "b"], ["c"]))


def test_a_commit_is_idempotent_and_keeps_the_order(target: LaneTarget) -> None:
    parts = two_parts(target)
    for _ in range(3):
        target.commit(target.order(1, parts))
    assert target.visible() == WHOLE


def test_lanes_of_several_epochs_are_committed_once(target: LaneTarget) -> None:
    first = target.stage(1, (["a0"], ["a1"]), (["b0"],), (["c0"],))
    second = target.stage(2, (["a2"],), (["b1"], ["b2"]))
    for epoch, parts in ((1, first), (1, first), (2, second), (2, second)):
        target.commit(target.order(epoch, parts))
    assert sorted(target.visible()) == ["a0", "a1", "a2", "b0", "b1", "b2", "c0"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("step", "number"), CALLS)
def test_a_process_killed_at_any_step_leaves_nothing_twice_and_nothing_out(
    target: LaneTarget, monkeypatch: pytest.MonkeyPatch, step: str, number: int, after: bool
) -> None:
    order = target.order(1, two_parts(target))
    with at_call(monkeypatch, step, number, kill, after=after) as happened:
        with pytest.raises(Killed):
            target.commit(order)
        assert happened
    target.commit(order)
    assert target.visible() == WHOLE


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("step", "number"), CALLS)
def test_a_zombie_that_wakes_up_at_any_step_is_fenced_or_finds_everything_committed(
    target: LaneTarget, monkeypatch: pytest.MonkeyPatch, step: str, number: int, after: bool
) -> None:
    order = target.order(1, two_parts(target))
    later = target.order(2, target.stage(2, (["d"],)))

    def succeed() -> None:
        target.commit(order)
        target.commit(later)

    with at_call(monkeypatch, step, number, succeed, after=after) as happened:
        refused = pytest.raises((SinkError, SinkConflict), match=r"was fenced|holds epoch 2")
        with refused if (step, number, after) not in OVER else contextlib.nullcontext():
            target.commit(order)
        assert happened
    assert target.visible() == [*WHOLE, "d"]


def test_a_fenced_process_continues_after_what_the_other_has_committed(
    target: LaneTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = target.order(1, two_parts(target))

    def zombie() -> None:
        with at_call(monkeypatch, "commit", 1, kill, after=True), pytest.raises(Killed):
            target.commit(order)

    with at_call(monkeypatch, "begin", 1, zombie, after=True) as happened:
        with pytest.raises(SinkError, match="fenced"):
            target.commit(order)
        assert happened
    target.commit(order)
    assert target.visible() == WHOLE


def test_staged_rows_outlive_the_transaction_of_a_process_that_was_killed(
    target: LaneTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = target.order(1, two_parts(target), transaction_seconds=1.0)
    with (
        at_call(monkeypatch, "commit", 2, kill, after=False),
        pytest.raises(Killed),
    ):
        target.commit(order)
    assert target.visible() == ["a", "b"]
    time.sleep(2.5)
    target.commit(order)
    assert target.visible() == WHOLE


def test_a_transaction_that_timed_out_is_produced_again(
    target: LaneTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = target.order(1, two_parts(target), transaction_seconds=1.0)
    with at_call(monkeypatch, "commit", 1, lambda: time.sleep(2.5), after=False) as happened:
        with pytest.raises(SinkError, match="fenced"):
            target.commit(order)
        assert happened
    target.commit(order)
    assert target.visible() == WHOLE


@pytest.mark.parametrize("number", [1, 2])
def test_a_broker_killed_in_a_transaction_loses_and_doubles_nothing(
    target: LaneTarget, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    order = target.order(1, two_parts(target))
    with at_call(monkeypatch, "commit", number, target.broker.restart, after=False) as happened:
        try:
            target.commit(order)
        except (SinkError, ConnectionLost):
            target.commit(order)
        assert happened
    assert target.visible() == WHOLE


def test_another_copy_of_the_state_is_a_conflict_and_writes_nothing(target: LaneTarget) -> None:
    target.commit(target.order(1, target.stage(1, (["a"],))))
    other = target.stage(1, (["x"],), (["y"],))
    with pytest.raises(SinkConflict, match="holds epoch 1 over other input"):
        target.commit(target.order(1, other, covered=covering(1, rows=1500)))
    target.commit(target.order(3, target.stage(3, (["c"],))))
    with pytest.raises(SinkConflict, match="holds epoch 3, which is not before epoch 2"):
        target.commit(target.order(2, target.stage(2, (["z"],), (["z"],))))
    assert target.visible() == ["a", "c"]


def test_a_closed_lane_refuses_the_epochs_that_were_rolled_back(target: LaneTarget) -> None:
    target.commit(target.order(1, target.stage(1, (["a"],))))
    dead = target.order(2, target.stage(2, (["b"],)))
    key = LaneKey(job=JOB, sink=SINK, lane=0)
    close_lane(target.connection, target.markers, key, Epoch(2))
    with pytest.raises(SinkConflict, match="holds epoch 2"):
        target.commit(dead)
    target.commit(target.order(3, target.stage(3, (["c"],))))
    assert target.visible() == ["a", "c"]


def test_markers_are_read_from_where_the_last_read_ended(target: LaneTarget) -> None:
    access = store_access(target.url)
    known = MarkerView()
    for epoch in (1, 2, 3):
        order = target.order(epoch, target.stage(epoch, ([f"{epoch}"],)), known=known)
        known = commit_lane(order, 0, access)
        assert known.newest == epoch
    read = target.markers.read(JOB, SINK, known)
    assert read == target.markers.read(JOB, SINK, MarkerView())
    assert read.newest == 3
    assert target.markers.read(JOB, "other", MarkerView()).lanes == {}


def test_what_tasks_return_does_not_grow_with_lanes_and_input(target: LaneTarget) -> None:
    many = SourceSpan(start={f"topic/{each}": 0 for each in range(1000)}, end={})
    covered = CoveredInput(sources={OperatorId("source-in"): many})
    parts = target.stage(1, *(([f"{lane}"],) for lane in range(4)))
    order = target.order(1, parts, covered=covered)
    lanes = pa.RecordBatch.from_pydict({"id": range(4)})
    outcomes = [*_task(order, store_access(target.url))(iter([lanes]))]
    assert [each.to_pylist()[0]["conflict"] for each in outcomes] == [None] * 4
    assert max(each.nbytes for each in outcomes) < 100
    later = target.order(1, parts)
    (refused, *_) = _task(later, store_access(target.url))(iter([lanes]))
    assert "holds epoch 1 over other input" in refused.to_pylist()[0]["conflict"]


def test_tasks_leave_the_markers_that_the_driver_takes_them_to_have_left(
    spark: SparkSession, target: LaneTarget
) -> None:
    access, known = store_access(target.url), MarkerView()
    for epoch, lanes in ((1, 3), (2, 2), (3, 1)):
        parts = target.stage(epoch, *(([f"{epoch}-{lane}"], ["x"]) for lane in range(lanes)))
        known = commit_lanes(spark, target.order(epoch, parts, known=known), access)
        assert known.lanes == target.markers.read(JOB, SINK, MarkerView()).lanes
        assert known.next_offset <= target.markers.read(JOB, SINK, MarkerView()).next_offset
    other = target.order(2, target.stage(2, (["z"],)), known=known)
    with pytest.raises(SinkConflict, match="holds epoch 3, which is not before epoch 2"):
        commit_lanes(spark, other, access)
    assert len(target.visible()) == 12


def test_at_least_once_needs_no_markers_and_reports_parts_that_are_taken_for_written(
    target: LaneTarget, caplog: pytest.LogCaptureFixture
) -> None:
    order = target.order(1, two_parts(target), markers=None)
    target.commit(order)
    assert target.visible() == WHOLE
    assert not caplog.records
    target.store.delete(each.path for lane in order.lanes for each in lane)
    target.commit(order)
    assert target.visible() == WHOLE
    assert caplog.text.count("does not exist, so it is taken for written") == 2


def test_missing_staged_output_is_detected(target: LaneTarget) -> None:
    parts = two_parts(target)
    target.store.delete([parts[1].path])
    with pytest.raises(SinkError, match=r"staged output .* is missing"):
        target.commit(target.order(1, parts))
