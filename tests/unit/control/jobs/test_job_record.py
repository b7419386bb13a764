"""Requests are pure: from one desired config to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from resurgence.control.jobs.job_record import (
    DesiredConfig,
    JobBeingDeleted,
    JobStatus,
    StopMode,
    Wanted,
    deleted,
    rescaled,
    restarted,
    should_start,
    started,
    stopped,
)
from resurgence.control.jobs.transitions import TERMINAL, StateName

RUNNING = DesiredConfig(parallelism=2)
OVER = [*TERMINAL, StateName.FAILING]
HARDNESS = [StopMode.CHECKPOINT, StopMode.FORCE]


# ---------------------------------------------------------------- requests


@pytest.mark.parametrize("mode", HARDNESS)
def test_a_stop_is_stored_with_the_requested_mode(mode: StopMode) -> None:
    assert RUNNING.stop is None
    assert stopped(RUNNING, mode).stop is mode


@pytest.mark.parametrize(("first", "second"), [*product(HARDNESS, HARDNESS)])
def test_of_two_stops_the_forced_one_applies(first: StopMode, second: StopMode) -> None:
    hardest = max(first, second, key=HARDNESS.index)
    assert stopped(stopped(RUNNING, first), second).stop is hardest


def test_the_stop_mode_of_an_earlier_run_does_not_apply() -> None:
    again = started(stopped(RUNNING, StopMode.FORCE), StateName.STOPPED)
    assert stopped(again, StopMode.CHECKPOINT).stop is StopMode.CHECKPOINT


@pytest.mark.parametrize("state", [each for each in StateName if each not in OVER])
def test_a_start_of_an_active_job_changes_nothing(state: StateName) -> None:
    assert started(RUNNING, state) == RUNNING


@pytest.mark.parametrize("state", OVER)
def test_a_start_of_a_finished_or_failed_job_is_another_run(state: StateName) -> None:
    assert started(RUNNING, state) == replace(RUNNING, run=2)


@pytest.mark.parametrize("state", list(StateName))
def test_a_start_cancels_a_stop_in_any_state(state: StateName) -> None:
    again = started(stopped(RUNNING, StopMode.FORCE), state)
    assert (again.wanted, again.stop, again.run) == (Wanted.RUNNING, None, 2)


def test_a_start_does_not_repeat_the_force_or_the_reset_of_a_restart() -> None:
    once = restarted(RUNNING, force=True, without_state=True)
    again = started(stopped(once, StopMode.CHECKPOINT), StateName.STOPPED)
    assert (again.run, again.force, again.reset_run) == (3, False, 2)


@pytest.mark.parametrize("force", [False, True])
def test_a_restart_is_another_run(force: bool) -> None:
    again = restarted(stopped(RUNNING, StopMode.FORCE), force=force, without_state=False)
    assert (again.wanted, again.run, again.force, again.reset_run) == (Wanted.RUNNING, 2, force, 0)


def test_a_reset_applies_only_to_the_run_that_requested_it() -> None:
    reset = restarted(RUNNING, force=False, without_state=True)
    assert reset.reset_run == reset.run == 2
    assert restarted(reset, force=False, without_state=False).reset_run == 2


@pytest.mark.parametrize("before", [RUNNING, stopped(RUNNING, StopMode.CHECKPOINT)])
def test_a_rescale_changes_the_parallelism_alone(before: DesiredConfig) -> None:
    assert rescaled(before, 5) == replace(before, parallelism=5)


@pytest.mark.parametrize(("first", "second"), [*product([False, True], repeat=2)])
def test_a_delete_stops_by_force_and_never_cancels_the_deletion_of_state(
    first: bool, second: bool
) -> None:
    gone = deleted(deleted(RUNNING, with_state=first), with_state=second)
    assert (gone.wanted, gone.stop) == (Wanted.DELETED, StopMode.FORCE)
    assert gone.delete_state is (first or second)


@pytest.mark.parametrize(
    "ask",
    [
        lambda desired: stopped(desired, StopMode.FORCE),
        lambda desired: started(desired, StateName.STOPPED),
        lambda desired: restarted(desired, force=True, without_state=False),
        lambda desired: rescaled(desired, 3),
    ],
    ids=["stop", "start", "restart", "rescale"],
)
def test_a_job_that_is_being_deleted_refuses_other_requests(
    ask: Callable[[DesiredConfig], DesiredConfig],
) -> None:
    with pytest.raises(JobBeingDeleted) as refused:
        ask(deleted(RUNNING, with_state=False))
    assert refused.value.hint


# ---------------------------------------------------------------- who is supervised


@pytest.mark.parametrize("wanted", list(Wanted))
@pytest.mark.parametrize("state", [each for each in StateName if each not in TERMINAL])
def test_a_job_in_a_transient_state_is_always_resumed(state: StateName, wanted: Wanted) -> None:
    assert should_start(replace(RUNNING, wanted=wanted), JobStatus(state, run=1))


@pytest.mark.parametrize("wanted", [Wanted.STOPPED, Wanted.DELETED])
@pytest.mark.parametrize("state", [*TERMINAL])
def test_a_terminal_job_that_is_not_desired_to_run_stays_terminal(
    state: StateName, wanted: Wanted
) -> None:
    assert not should_start(replace(RUNNING, wanted=wanted, run=9), JobStatus(state, run=1))


@pytest.mark.parametrize("state", [StateName.FAILED, StateName.FINISHED])
def test_a_failed_or_finished_job_stays_so_until_the_next_request(
    state: StateName,
) -> None:
    assert not should_start(RUNNING, JobStatus(state, run=1))
    assert should_start(replace(RUNNING, run=2), JobStatus(state, run=1))


def test_a_job_that_was_stopped_by_a_shutdown_of_its_controller_resumes() -> None:
    assert should_start(RUNNING, JobStatus(StateName.STOPPED, run=1))
