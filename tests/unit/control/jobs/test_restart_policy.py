"""When to retry, after which backoff, and when to give up."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from resurgence.control.detection.failure import Failure, FailureKind
from resurgence.control.jobs.restart_policy import (
    CRASH_LOOP,
    GiveUp,
    RecoverAfter,
    RestartHistory,
    decide,
)
from resurgence.errors import ErrorDomain, RetryHint
from resurgence.ids import Epoch, OperatorId

NOW = datetime(2030, 1, 1, tzinfo=UTC)
ALLOWED = 20
HEALTHY = timedelta(minutes=2)
INITIAL = timedelta(milliseconds=500)
MAXIMAL = timedelta(seconds=60)
NO_TIME = timedelta(0)

FAILURE = Failure(
    FailureKind.WORKER_EXITED,
    "the worker (pid 17) exited with status 1",
    ErrorDomain.INTERNAL,
    RetryHint.WITH_BACKOFF,
    epoch=Epoch(4),
    phase="execute",
)


def ask(
    failure: Failure = FAILURE,
    history: RestartHistory | None = None,
    *,
    committed: int = 4,
    healthy_for: timedelta = NO_TIME,
    allowed: int = ALLOWED,
    jitter: float = 0.5,
) -> RecoverAfter | GiveUp:
    return decide(
        failure,
        history or RestartHistory(),
        now=NOW,
        committed_epoch=Epoch(committed),
        healthy_for=healthy_for,
        allowed_restarts=allowed,
        healthy_duration=HEALTHY,
        initial_backoff=INITIAL,
        maximal_backoff=MAXIMAL,
        jitter=jitter,
    )


def recovered(decision: RecoverAfter | GiveUp) -> RecoverAfter:
    assert isinstance(decision, RecoverAfter), decision
    return decision


def given_up(decision: RecoverAfter | GiveUp) -> GiveUp:
    assert isinstance(decision, GiveUp), decision
    return decision


def test_a_first_failure_is_retried_at_once() -> None:
    decision = recovered(ask())
    assert decision.at == NOW
    assert decision.history.restarts == 1


def test_a_first_failure_of_an_external_system_is_retried_after_the_initial_backoff() -> None:
    away = replace(FAILURE, domain=ErrorDomain.EXTERNAL)
    assert recovered(ask(away)).at == NOW + INITIAL
    assert recovered(ask(away, RestartHistory(restarts=1))).at == NOW + 2 * INITIAL


def test_a_failure_that_no_retry_can_fix_is_not_retried() -> None:
    hopeless = replace(FAILURE, retry_hint=RetryHint.NO_RETRY, reason="bad SQL")
    decision = given_up(ask(hopeless))
    assert (decision.reason, decision.first_fault) == ("bad SQL", hopeless)


@pytest.mark.parametrize(
    ("restarts", "seconds"),
    [(1, 0.5), (2, 1), (3, 2), (4, 4), (7, 32), (8, 60), (9, 60), (16, 60), (17, 60)],
)
def test_the_backoff_doubles_up_to_the_maximum(restarts: int, seconds: float) -> None:
    decision = recovered(ask(history=RestartHistory(restarts=restarts)))
    assert decision.at - NOW == timedelta(seconds=seconds)


@pytest.mark.parametrize("restarts", [63, 1_000, 10**6, 10**12])
def test_a_huge_number_of_restarts_does_not_overflow(restarts: int) -> None:
    decision = recovered(ask(history=RestartHistory(restarts=restarts), allowed=10**13))
    assert decision.at - NOW == MAXIMAL


@pytest.mark.parametrize(("jitter", "share"), [(0.0, 0.75), (0.5, 1.0), (1.0, 1.25)])
@pytest.mark.parametrize("restarts", [0, 3, 10])
def test_jitter_changes_the_backoff_by_a_quarter_at_most(
    jitter: float, share: float, restarts: int
) -> None:
    history = RestartHistory(restarts=restarts)
    plain = recovered(ask(history=history)).at - NOW
    assert recovered(ask(history=history, jitter=jitter)).at - NOW == plain * share


def test_the_last_allowed_restart_is_used_and_the_next_one_refused() -> None:
    assert recovered(ask(history=RestartHistory(restarts=ALLOWED - 1))).history.restarts == ALLOWED
    decision = given_up(ask(history=RestartHistory(restarts=ALLOWED)))
    assert decision.reason.startswith("all 20 restarts are used up")
    assert FAILURE.reason in decision.reason


def test_with_no_restarts_allowed_the_first_failure_is_the_last() -> None:
    given_up(ask(allowed=0))


def test_being_healthy_for_long_enough_resets_the_restart_budget() -> None:
    spent = RestartHistory(restarts=ALLOWED)
    given_up(ask(history=spent, healthy_for=HEALTHY - timedelta(milliseconds=1)))
    decision = recovered(ask(history=spent, healthy_for=HEALTHY))
    assert decision.history.restarts == 1
    assert decision.at == NOW


def run_of(
    failures: int,
    failure: Failure = FAILURE,
    *,
    committed: int = 4,
    healthy_for: timedelta = NO_TIME,
) -> list[RecoverAfter | GiveUp]:
    """The decisions about the same failure, again and again."""
    history = RestartHistory()
    decisions: list[RecoverAfter | GiveUp] = []
    for number in range(failures):
        again = replace(failure, reason=failure.reason.replace("17", str(100 + number)))
        decision = ask(again, history, committed=committed, healthy_for=healthy_for)
        decisions.append(decision)
        if isinstance(decision, GiveUp):
            break
        history = decision.history
    return decisions


def test_the_third_identical_failure_without_progress_is_a_crash_loop() -> None:
    decisions = run_of(10)
    assert len(decisions) == CRASH_LOOP == 3
    last = given_up(decisions[-1])
    assert "the same failure occurred 3 times without progress" in last.reason
    assert "pid 100" in last.first_fault.reason


def test_progress_ends_a_run_of_identical_failures() -> None:
    second = recovered(run_of(2)[-1])
    decision = recovered(ask(FAILURE, second.history, committed=5))
    assert (decision.history.identical, decision.history.restarts) == (1, 3)


def test_another_failure_ends_a_run_of_identical_failures() -> None:
    second = recovered(run_of(2)[-1])
    other = replace(FAILURE, kind=FailureKind.TASK_FAILED, reason="division by zero")
    decision = recovered(ask(other, second.history))
    assert (decision.history.identical, decision.history.first_fault) == (1, other)
    assert recovered(ask(FAILURE, decision.history)).history.identical == 1


def test_external_failures_are_bounded_by_the_restart_budget_only() -> None:
    outage = Failure(
        FailureKind.CONTROL_FAILED,
        "cannot list s3://bucket: connection refused",
        ErrorDomain.EXTERNAL,
        RetryHint.WITH_BACKOFF,
        code="storage",
    )
    decisions = run_of(100, outage)
    assert len(decisions) == ALLOWED + 1
    assert given_up(decisions[-1]).reason.startswith("all 20 restarts are used up")


def test_kills_from_outside_are_bounded_by_the_restart_budget_only() -> None:
    decisions = run_of(100, replace(FAILURE, killed=True))
    assert len(decisions) == ALLOWED + 1
    assert given_up(decisions[-1]).reason.startswith("all 20 restarts are used up")
    waits = [recovered(each).at - NOW for each in decisions[:-1]]
    assert waits == sorted(waits)
    assert waits[-1] == MAXIMAL


def test_an_epoch_that_hangs_longer_than_the_healthy_duration_is_still_a_crash_loop() -> None:
    stalled = replace(FAILURE, kind=FailureKind.PROGRESS_STALLED, reason="epoch 5 hung")
    assert len(run_of(10, stalled, healthy_for=timedelta(minutes=10))) == CRASH_LOOP


def test_a_worker_killed_now_and_then_while_it_waits_for_input_is_no_crash_loop() -> None:
    idle = replace(FAILURE, phase="idle")
    assert all(
        recovered(each).history.restarts == 1
        for each in run_of(10, idle, healthy_for=timedelta(hours=1))
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("the worker (pid 17) exited", "the worker (pid 4711) exited"),
        ("epoch 5 hung for 601 s", "epoch 5 hung for 640 s"),
        (
            "state file 12-3-0-0123456789ab.parquet is missing",
            "state file 12-4-1-fedcba987654.parquet is missing",
        ),
        ("object at 0x7f3aaabbccdd", "object at 0x7f3affee0011"),
    ],
)
def test_failures_that_differ_in_numbers_and_unique_names_are_the_same(
    one: str, other: str
) -> None:
    assert replace(FAILURE, reason=one).fingerprint == replace(FAILURE, reason=other).fingerprint


@pytest.mark.parametrize(
    "other",
    [
        replace(FAILURE, reason="something else"),
        replace(FAILURE, kind=FailureKind.WORKER_TIMEDOUT),
        replace(FAILURE, epoch=Epoch(5)),
        replace(FAILURE, phase="commit"),
        replace(FAILURE, operator=OperatorId("sink-1")),
        replace(FAILURE, code="storage"),
    ],
    ids=["reason", "kind", "epoch", "phase", "operator", "code"],
)
def test_failures_that_differ_in_more_than_numbers_are_not_the_same(other: Failure) -> None:
    assert other.fingerprint != FAILURE.fingerprint


# ---------------------------------------------------------------- escalation


def test_a_crash_loop_escalates_from_the_same_worker_to_a_new_one_to_a_failed_job() -> None:
    first, second, last = run_of(10, replace(FAILURE, worker_usable=True))
    assert (recovered(first).in_place, recovered(second).in_place) == (True, False)
    assert given_up(last).tried == ("restarted in the same worker", "restarted with a new worker")
    assert given_up(last).times == 3


def test_a_worker_that_cannot_continue_is_always_replaced() -> None:
    first, second, last = run_of(10)
    assert not recovered(first).in_place
    assert not recovered(second).in_place
    assert given_up(last).tried == ("restarted with a new worker",) * 2


def test_after_progress_the_same_worker_may_continue_again() -> None:
    usable = replace(FAILURE, worker_usable=True)
    second = recovered(run_of(2, usable)[-1])
    assert recovered(ask(usable, second.history, committed=5)).in_place


def test_the_list_of_attempts_is_bounded_in_a_long_outage() -> None:
    away = replace(FAILURE, domain=ErrorDomain.EXTERNAL)
    last = given_up(run_of(ALLOWED + 1, away)[-1])
    assert last.times == ALLOWED + 1
    assert len(last.tried) == CRASH_LOOP


@pytest.mark.parametrize("domain", list(ErrorDomain))
def test_a_diagnosis_says_what_to_do(domain: ErrorDomain) -> None:
    fault = replace(FAILURE, domain=domain, retry_hint=RetryHint.NO_RETRY)
    assert given_up(ask(fault)).advice
    assert given_up(ask(replace(fault, hint="fix line 3"))).advice == "fix line 3"


def test_a_diagnosis_is_written_with_its_first_fault() -> None:
    fault = replace(FAILURE, operator=OperatorId("source-1"), subtask=1, code="task")
    facts = given_up(run_of(10, fault)[-1]).facts()
    assert facts["first_fault"] == "the worker (pid 100) exited with status 1"
    assert (facts["operator_id"], facts["subtask"], facts["code"]) == ("source-1", 1, "task")
    assert (facts["times"], facts["domain"]) == (3, "internal")
