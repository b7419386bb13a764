"""The table of edges: complete, closed, and without dead ends."""

from __future__ import annotations

import pytest

from resurgence.control.jobs import states
from resurgence.control.jobs.transitions import (
    EDGES,
    TERMINAL,
    IllegalTransition,
    StateName,
    require_edge,
)

OF_THE_DESIGN = {
    "Created",
    "Compiling",
    "Scheduling",
    "Running",
    "CheckpointStopping",
    "Stopping",
    "Stopped",
    "Finishing",
    "Finished",
    "Recovering",
    "Rescaling",
    "Restarting",
    "Failing",
    "Failed",
}
NON_TERMINAL = sorted(set(StateName) - TERMINAL)


def reachable(start: StateName) -> set[StateName]:
    found, fresh = set[StateName](), {start}
    while fresh:
        found |= fresh
        fresh = {target for source in fresh for target in EDGES[source]} - found
    return found


def test_the_table_has_every_state_of_the_design_and_no_other() -> None:
    assert {str(state) for state in EDGES} == OF_THE_DESIGN
    assert {str(state) for state in StateName} == OF_THE_DESIGN


def test_every_state_of_the_table_is_a_class_of_its_own() -> None:
    classes = [
        each
        for each in vars(states).values()
        if isinstance(each, type) and issubclass(each, states.State) and each is not states.State
    ]
    assert sorted(each.name for each in classes) == sorted(StateName)
    assert all(each.__name__ == each.name for each in classes)


def test_the_terminal_states_are_stopped_finished_and_failed() -> None:
    assert {StateName.STOPPED, StateName.FINISHED, StateName.FAILED} == TERMINAL


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_a_terminal_state_is_left_only_by_a_new_start(state: StateName) -> None:
    assert EDGES[state] <= {StateName.CREATED}


@pytest.mark.parametrize("state", NON_TERMINAL)
def test_a_terminal_state_is_reachable_from_every_state(state: StateName) -> None:
    assert reachable(state) & TERMINAL


@pytest.mark.parametrize("state", NON_TERMINAL)
def test_every_state_of_a_job_that_is_to_run_leads_to_recovering_in_one_step(
    state: StateName,
) -> None:
    ending = {StateName.CHECKPOINT_STOPPING, StateName.STOPPING, StateName.FAILING}
    assert (StateName.RECOVERING in EDGES[state]) == (state not in ending)


@pytest.mark.parametrize("state", NON_TERMINAL)
def test_every_state_can_end_without_recovering(state: StateName) -> None:
    ends = {StateName.FAILING, StateName.FAILED, StateName.STOPPING, StateName.STOPPED}
    assert EDGES[state] & ends


def test_every_state_is_reachable_from_created() -> None:
    assert reachable(StateName.CREATED) == set(StateName)


def test_an_edge_that_is_not_in_the_table_raises() -> None:
    require_edge(StateName.RUNNING, StateName.RECOVERING)
    with pytest.raises(IllegalTransition, match="from Running to Failed"):
        require_edge(StateName.RUNNING, StateName.FAILED)
