"""When to try again, after how long, and when to give up. Pure.

A job may be restarted `allowed_restarts` times; running for `healthy_duration` gives all of them
back. Waits grow exponentially, with jitter. The same failure at the same epoch three times without
progress is a crash loop: trying again blindly would go on for ever, so the job stops and shows the
first fault.

Two limits of that rule. A failure of the world around the job (storage, a source or a sink that is
away) is never a crash loop: waiting can help there, so only the restart budget bounds it. And a run
of identical failures is ended by progress or by an idle worker, not by mere time: an epoch that
stands still for longer than `healthy_duration` before it fails is not healthy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from resurgence.control.failure import Failure
from resurgence.control.running_job_model import IDLE
from resurgence.errors import ErrorDomain, RetryHint
from resurgence.ids import NO_EPOCH, Epoch

CRASH_LOOP = 3
"""So many identical failures without progress are a crash loop."""
_LARGEST_EXPONENT = 16


@dataclass(frozen=True)
class RestartHistory:
    """What counts of the past: restarts used, and the run of identical failures."""

    restarts: int = 0
    first_fault: Failure | None = None
    identical: int = 0
    committed_epoch: Epoch = NO_EPOCH


@dataclass(frozen=True)
class RecoverAfter:
    """Try again, not before this instant."""

    at: datetime
    history: RestartHistory


@dataclass(frozen=True)
class GiveUp:
    """Recovery is impossible, or pointless; why."""

    reason: str
    first_fault: Failure


def decide(
    failure: Failure,
    history: RestartHistory,
    *,
    now: datetime,
    committed_epoch: Epoch,
    healthy_for: timedelta,
    allowed_restarts: int,
    healthy_duration: timedelta,
    initial_backoff: timedelta,
    maximal_backoff: timedelta,
    jitter: float,
) -> RecoverAfter | GiveUp:
    """What to do about a failure. `jitter` is a number from 0 to 1, handed in so that this stays
    a function.
    """
    if failure.retry_hint is RetryHint.NO_RETRY:
        return GiveUp(failure.reason, failure)
    if healthy_for >= healthy_duration:
        was_idle = failure.phase == IDLE
        history = RestartHistory() if was_idle else replace(history, restarts=0)
    same = (
        history.first_fault is not None
        and history.first_fault.fingerprint == failure.fingerprint
        and history.committed_epoch == committed_epoch
    )
    history = replace(
        history,
        restarts=history.restarts + 1,
        first_fault=history.first_fault if same else failure,
        identical=history.identical + 1 if same else 1,
        committed_epoch=committed_epoch,
    )
    first = history.first_fault or failure
    if history.identical >= CRASH_LOOP and failure.domain is not ErrorDomain.EXTERNAL:
        return GiveUp(
            f"the same failure came {history.identical} times without progress: {first.reason}",
            first,
        )
    if history.restarts > allowed_restarts:
        return GiveUp(f"all {allowed_restarts} restarts are used up: {failure.reason}", first)
    exponent = min(history.restarts - 1, _LARGEST_EXPONENT)
    wait = min(initial_backoff * 2**exponent, maximal_backoff) * (0.75 + jitter / 2)
    return RecoverAfter(now + wait, history)
