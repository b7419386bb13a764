"""Runs of a compaction: one at a time, in the background, repeated after failures, and stopped."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from resurgence.connectors.lakehouse import compaction
from resurgence.connectors.lakehouse.compaction import Compaction, Pace
from resurgence.connectors.lakehouse.merge_plan import MergePolicy, SmallFile
from resurgence.errors import SinkError

POLICY = MergePolicy(2, target_bytes=1000)
AT_ONCE = Pace(pause=timedelta(0), retry=timedelta(0))
LONG = timedelta(minutes=1)


@dataclass
class FakeSpark:
    """Notes what is interrupted."""

    on_interrupt: Callable[[], None] = lambda: None
    tags: list[str] = field(default_factory=list)

    def addTag(self, tag: str) -> None:  # noqa: N802
        self.tags.append(tag)

    def interruptTag(self, tag: str) -> None:  # noqa: N802
        assert tag in self.tags
        self.on_interrupt()


def spark(on_interrupt: Callable[[], None] = lambda: None) -> SparkSession:
    return cast(SparkSession, FakeSpark(on_interrupt))


@dataclass
class FakeTable:
    """A table of small files."""

    files: list[SmallFile] = field(default_factory=lambda: [SmallFile("a", 1), SmallFile("b", 1)])
    behave: Callable[[], bool] = lambda: True
    merged: list[list[str]] = field(default_factory=list)
    threads: list[str] = field(default_factory=list)
    name: str = "file:///t"

    def small_files(self, below: int) -> Sequence[SmallFile]:
        return [each for each in self.files if each.bytes < below]

    def merge(self, _spark: Any, merges: Sequence[tuple[SmallFile, ...]]) -> bool:
        self.threads.append(threading.current_thread().name)
        done = self.behave()
        self.merged += [[each.path for each in merge] for merge in merges]
        return done


def run(made: Compaction, with_spark: SparkSession | None = None) -> None:
    made.after_commit(with_spark or spark())
    assert made.wait(LONG)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    opened = threading.Event()
    yield opened
    opened.set()


def test_files_are_merged_in_a_thread_of_their_own() -> None:
    table = FakeTable()
    run(Compaction(table, POLICY, AT_ONCE))
    assert table.merged == [["a", "b"]]
    assert table.threads == ["lakehouse-compaction"]


def test_nothing_is_merged_if_there_is_not_enough() -> None:
    table = FakeTable([SmallFile("a", 1)])
    run(Compaction(table, POLICY, AT_ONCE))
    assert table.merged == []


def test_a_look_that_found_nothing_is_followed_by_a_pause_ten_times_as_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    looks: list[float] = []

    def look(_below: int) -> Sequence[SmallFile]:
        looks.append(now[0])
        now[0] += 5
        return ()

    monkeypatch.setattr(compaction, "time", SimpleNamespace(monotonic=lambda: now[0]))
    table = FakeTable()
    monkeypatch.setattr(table, "small_files", look)
    made = Compaction(table, POLICY, AT_ONCE)
    for at in (0, 5, 54, 55):
        now[0] = at
        run(made)
    assert looks == [0, 55]


def test_only_one_compaction_runs_in_a_process(gate: threading.Event) -> None:
    slow, other = FakeTable(behave=lambda: gate.wait(60)), FakeTable()
    first, second = Compaction(slow, POLICY, AT_ONCE), Compaction(other, POLICY, AT_ONCE)
    first.after_commit(spark())
    first.after_commit(spark())
    second.after_commit(spark())
    assert second.wait(LONG)
    assert other.merged == []
    gate.set()
    assert first.wait(LONG)
    assert slow.merged == [["a", "b"]]
    run(second)
    assert other.merged == [["a", "b"]]


def test_a_failure_is_logged_and_tried_again_later(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> bool:
        raise SinkError("the table is on fire")

    table = FakeTable(behave=fail)
    patient = Compaction(table, POLICY, Pace(pause=timedelta(0), retry=LONG))
    with caplog.at_level(logging.WARNING):
        run(patient)
    assert "compaction of file:///t failed: the table is on fire; it will be" in caplog.text
    table.behave = lambda: True
    run(patient)
    assert table.merged == []
    hasty = Compaction(table, POLICY, AT_ONCE)
    run(hasty)
    assert table.merged == [["a", "b"]]


@pytest.mark.parametrize(("done", "runs"), [(True, 2), (False, 1)])
def test_a_run_that_lost_files_to_others_waits_longer_for_the_next(done: bool, runs: int) -> None:
    table = FakeTable(behave=lambda: done)
    made = Compaction(table, POLICY, Pace(pause=timedelta(0), retry=LONG))
    run(made)
    run(made)
    assert len(table.merged) == runs


def test_a_stop_interrupts_the_run_and_begins_no_other(
    gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    def cancelled() -> bool:
        gate.wait(60)
        raise RuntimeError("cancelled")

    table = FakeTable(behave=cancelled)
    made = Compaction(table, POLICY, AT_ONCE)
    interrupted = spark(on_interrupt=gate.set)
    made.after_commit(interrupted)
    with caplog.at_level(logging.WARNING):
        made.stop(interrupted)
    assert made.wait(timedelta(0))
    assert caplog.text == ""
    run(made)
    assert table.merged == []


def test_a_run_is_interrupted_after_its_deadline(gate: threading.Event) -> None:
    table = FakeTable(behave=lambda: gate.wait(60))
    made = Compaction(table, POLICY, Pace(deadline=timedelta(0)))
    interrupted = spark(on_interrupt=gate.set)
    made.after_commit(interrupted)
    made.after_commit(interrupted)
    assert made.wait(LONG)
    assert gate.is_set()
