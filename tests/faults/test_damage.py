"""Damaged storage: the job falls back to an older checkpoint, reports the reason, and produces the
same output. All kinds of damage to all kinds of objects: `test_damage_property.py`.
"""

from __future__ import annotations

import pytest

from resurgence.clock import SystemClock
from resurgence.engine.spark.errors import translate
from resurgence.errors import DamagedState, NoValidCheckpoint
from resurgence.state.load_plan import LoadPlan
from tests.faults.scenario import Scenario


def flip(scenario: Scenario, path: str) -> None:
    """Change a byte in the middle, as a disk does."""
    data = bytearray(scenario.store().read(path))
    data[len(data) // 2] ^= 0xFF
    scenario.store().replace(path, bytes(data))


def plan_of(scenario: Scenario, damaged: frozenset[str] = frozenset()) -> LoadPlan:
    backend = scenario.backend()
    claim = backend.claim_generation(SystemClock().now())
    return backend.prepare_checkpoint_load(claim, 2, damaged)


def run_epochs(scenario: Scenario, count: int) -> None:
    engine = scenario.engine()
    for _ in range(count):
        engine.run_epoch()


@pytest.mark.parametrize(
    "kind", ["manifest-0.json", "operator-window-*.json", "operator-source-*.json"]
)
def test_a_damaged_record_of_the_newest_checkpoint_causes_a_fallback(
    scenario: Scenario, kind: str
) -> None:
    run_epochs(scenario, 2)
    (target,) = scenario.stored(f"epochs/0000000002/{kind}")
    flip(scenario, target)
    plan = plan_of(scenario)
    assert plan.epoch == 1
    assert [each.epoch for each in plan.fallbacks] == [2]
    assert plan.fallbacks[0].reasons
    assert plan.recorded[2].committed  # type: ignore[index]
    scenario.finish()
    scenario.assert_exactly_once()


def test_a_damaged_state_file_causes_a_fallback(scenario: Scenario) -> None:
    """The size is right, so only reading it shows the damage: a checksum of a page does not
    match.
    """
    run_epochs(scenario, 2)
    (target, *_) = scenario.stored("tables/*/partials/2-*.parquet")
    flip(scenario, target)
    with pytest.raises(Exception) as caught:
        scenario.finish()
    error = translate(caught.value)
    assert isinstance(error, DamagedState)
    assert error.path == target
    engine = scenario.engine(damaged=frozenset({error.path}))
    assert engine.epoch == 1
    assert [each.epoch for each in engine._plan.fallbacks] == [2]
    scenario.finish(engine)
    scenario.assert_exactly_once()


def test_when_every_checkpoint_is_damaged_the_error_lists_all_reasons_and_nothing_is_deleted(
    scenario: Scenario,
) -> None:
    run_epochs(scenario, 2)
    for target in scenario.stored("epochs/*/operator-window-*.json"):
        flip(scenario, target)
    before = scenario.stored("*")
    with pytest.raises(NoValidCheckpoint) as caught:
        scenario.engine()
    assert "epoch 2: " in caught.value.message
    assert "epoch 1: " in caught.value.message
    assert set(before) <= set(scenario.stored("*"))


def test_a_fallback_over_committed_epochs_at_another_parallelism_duplicates_nothing(
    scenario: Scenario,
) -> None:
    run_epochs(scenario, 3)
    for epoch in (2, 3):
        (target,) = scenario.stored(f"epochs/{epoch:010}/operator-window-*.json")
        flip(scenario, target)
    scenario.finish(scenario.engine(parallelism=3))
    scenario.assert_exactly_once()
