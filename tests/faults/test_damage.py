"""Damage to what is stored: the job falls back to an older checkpoint, says why, and gives the
same output.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from resurgence.clock import SystemClock
from resurgence.engine.spark_errors import translate
from resurgence.errors import DamagedState, IdentityMissing, NoValidCheckpoint
from resurgence.state.load_plan import LoadPlan
from tests.faults.conftest import JOB, Scenario


def flip(path: Path) -> None:
    """Change a byte in the middle, as a disk does."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGE: list[Callable[[Path], None]] = [flip, truncate, empty, Path.unlink]


def state(scenario: Scenario) -> Path:
    return scenario.folder / "state" / JOB


def plan_of(scenario: Scenario, damaged: frozenset[str] = frozenset()) -> LoadPlan:
    backend = scenario.backend()
    claim = backend.claim_generation(SystemClock().now())
    return backend.prepare_checkpoint_load(claim, 2, damaged)


def run_epochs(scenario: Scenario, count: int) -> None:
    engine = scenario.engine()
    for _ in range(count):
        engine.run_epoch()


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda each: each.__name__)
@pytest.mark.parametrize(
    "kind", ["manifest-0.json", "operator-window-*.json", "operator-source-*.json"]
)
def test_a_damaged_record_of_the_newest_checkpoint_is_fallen_back_from(
    scenario: Scenario, kind: str, damage: Callable[[Path], None]
) -> None:
    run_epochs(scenario, 2)
    (target,) = state(scenario).glob(f"epochs/0000000002/{kind}")
    damage(target)
    plan = plan_of(scenario)
    assert plan.epoch == 1
    assert [each.epoch for each in plan.fallbacks] == [2]
    assert plan.fallbacks[0].reasons
    assert plan.recorded[2].committed  # type: ignore[index]
    scenario.finish()
    scenario.assert_exactly_once()


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda each: each.__name__)
def test_a_damaged_state_file_is_fallen_back_from(
    scenario: Scenario, damage: Callable[[Path], None]
) -> None:
    run_epochs(scenario, 2)
    (target, *_) = sorted(state(scenario).glob("tables/*/partials/2-*.parquet"))
    damage(target)
    damaged: frozenset[str] = frozenset()
    if damage is flip:
        # The size is right, so only reading it shows the damage: the checksum of a page does not
        # match.
        with pytest.raises(Exception) as caught:
            scenario.finish()
        error = translate(caught.value)
        assert isinstance(error, DamagedState)
        assert error.path.endswith(target.name)
        damaged = frozenset({error.path})
    engine = scenario.engine(damaged=damaged)
    assert engine.epoch == 1
    scenario.finish(engine)
    scenario.assert_exactly_once()


def test_every_checkpoint_damaged_is_an_error_with_all_reasons_and_deletes_nothing(
    scenario: Scenario,
) -> None:
    run_epochs(scenario, 2)
    for target in state(scenario).glob("epochs/*/operator-window-*.json"):
        flip(target)
    before = sorted(state(scenario).rglob("*.*"))
    with pytest.raises(NoValidCheckpoint) as caught:
        scenario.engine()
    assert "epoch 2: " in caught.value.message
    assert "epoch 1: " in caught.value.message
    assert set(before) <= set(state(scenario).rglob("*.*"))


def test_a_missing_identity_is_an_error_and_never_a_new_identity(scenario: Scenario) -> None:
    run_epochs(scenario, 1)
    for record in state(scenario).glob("generations/*.json"):
        record.unlink()
    with pytest.raises(IdentityMissing):
        scenario.engine()


def test_a_fallback_over_committed_epochs_at_another_parallelism_duplicates_nothing(
    scenario: Scenario,
) -> None:
    run_epochs(scenario, 3)
    for epoch in (2, 3):
        (target,) = state(scenario).glob(f"epochs/{epoch:010}/operator-window-*.json")
        flip(target)
    scenario.finish(scenario.engine(parallelism=3))
    scenario.assert_exactly_once()
