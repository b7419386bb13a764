"""A crash at every fault point, and before and after every write: a new generation continues to the
batch answer.
"""

from __future__ import annotations

import pytest

from resurgence.engine.epochs.engine import Engine
from resurgence.engine.spark.errors import translate
from resurgence.errors import InjectedFault
from resurgence.faults import AT_OR_AFTER, FaultPoint
from resurgence.storage.object_store import ObjectStore
from tests.faults.scenario import Scenario, made_scenario

IN_EPOCH = [each for each in FaultPoint if each not in (*AT_OR_AFTER, FaultPoint.SINK_BETWEEN)]


class Crash(BaseException):
    """The process is gone: nothing may catch this."""


class CrashingStore(ObjectStore):
    """Dies before or after its n-th write."""

    def __init__(self, url: str, crash_at: int, *, after: bool) -> None:
        super().__init__(url)
        self.writes = 0
        self._crash_at = crash_at
        self._after = after

    def create(self, path: str, data: bytes) -> bool:
        self.writes += 1
        if self.writes == self._crash_at and not self._after:
            raise Crash
        created = super().create(path, data)
        if self.writes == self._crash_at:
            raise Crash
        return created


def run_into(engine: Engine) -> Exception:
    """Run until a fault fires; return what it raised."""
    with pytest.raises(Exception) as caught:
        while not engine.finished:
            engine.run_epoch()
    return caught.value


@pytest.mark.long  # The SQL cases crash at these points, too.
@pytest.mark.parametrize("point", IN_EPOCH)
def test_a_failure_at_any_fault_point_is_recovered_exactly_once(
    scenario: Scenario, point: FaultPoint
) -> None:
    error = run_into(scenario.engine(f"{point}@2=raise"))
    assert isinstance(translate(error), InjectedFault)
    scenario.finish()
    scenario.assert_exactly_once()


def test_a_failure_in_the_first_epoch_restarts_from_scratch(scenario: Scenario) -> None:
    run_into(scenario.engine("metadata.written@1=raise"))
    engine = scenario.engine()
    assert engine.epoch == 0
    scenario.finish(engine)
    scenario.assert_exactly_once()


def test_a_failure_during_restore_falls_back_to_the_same_checkpoint_again(
    scenario: Scenario,
) -> None:
    scenario.engine().run_epoch()
    with pytest.raises(InjectedFault):
        scenario.engine("restore.mid@1=raise")
    engine = scenario.engine("restore.mid@1=raise")
    assert engine.epoch == 1
    scenario.finish(engine)
    scenario.assert_exactly_once()


@pytest.mark.long
def test_a_failure_during_compaction_keeps_the_old_files(scenario: Scenario) -> None:
    scenario.width = "1 day"
    error = run_into(scenario.engine("compaction.mid@1=raise", compact_files=2, epoch_rows=20))
    assert isinstance(error, InjectedFault)
    scenario.finish(scenario.engine(compact_files=2, epoch_rows=20))
    scenario.assert_exactly_once()


def test_rescaling_after_each_failure_returns_the_same_answer(scenario: Scenario) -> None:
    run_into(scenario.engine("sink.staged@2=raise", parallelism=1))
    run_into(scenario.engine("sink.committing@3=raise", parallelism=3))
    scenario.finish(scenario.engine(parallelism=2))
    scenario.assert_exactly_once()


def writes_of_two_epochs(scenario: Scenario) -> tuple[int, int]:
    """How many writes a start and one epoch take, and a second epoch on top."""
    store = CrashingStore(f"{scenario.place}/count", 0, after=False)
    engine = scenario.engine(store=store)
    engine.run_epoch()
    first = store.writes
    engine.run_epoch()
    return first, store.writes


@pytest.mark.long
def test_a_crash_around_any_write_of_an_epoch_recovers_to_the_same_result(
    scenario: Scenario,
) -> None:
    first, second = writes_of_two_epochs(scenario)
    assert second > first > 1
    for write in range(first + 1, second + 1):
        for after in (False, True):
            name = f"{write}-{after}"
            (scenario.folder / name).mkdir()
            place = f"{scenario.place}/{name}"
            fresh = made_scenario(scenario.spark, scenario.folder / name, place)
            store = CrashingStore(f"{place}/state", write, after=after)
            with pytest.raises(Crash):
                fresh.finish(fresh.engine(store=store))
            fresh.finish()
            fresh.assert_exactly_once()
