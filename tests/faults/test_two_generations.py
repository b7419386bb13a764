"""Two live generations on one state dir: the older one can neither publish nor commit."""

from __future__ import annotations

import pytest

from resurgence.engine.epochs.engine import EpochReport
from resurgence.errors import Retired
from tests.faults.scenario import Scenario


def test_a_fenced_generation_retires_and_publishes_nothing(scenario: Scenario) -> None:
    older = scenario.engine()
    older.run_epoch()
    newer = scenario.engine()
    with pytest.raises(Retired):
        older.run_epoch()
    assert not scenario.stored("epochs/0000000002/manifest-*")
    scenario.finish(newer)
    scenario.assert_exactly_once()


def test_a_zombie_that_sealed_before_it_was_fenced_commits_the_same_output_once(
    scenario: Scenario,
) -> None:
    older = scenario.engine()

    def overtake(report: EpochReport) -> None:
        """Between the older one's seal and its commit, a newer one starts and commits for it."""
        if report.epoch == 2:
            scenario.finish(scenario.engine(parallelism=1))

    with pytest.raises(Retired):
        while True:
            older.run_epoch(sealed=overtake)
    scenario.assert_exactly_once()


def test_two_generations_in_turn_never_both_publish_an_epoch(scenario: Scenario) -> None:
    older, newer = scenario.engine(), scenario.engine()
    newer.run_epoch()
    with pytest.raises(Retired):
        older.run_epoch()
    (manifest,) = scenario.stored("epochs/*/manifest-*")
    assert manifest.endswith("/manifest-0.json")
    scenario.finish(newer)
    scenario.assert_exactly_once()
