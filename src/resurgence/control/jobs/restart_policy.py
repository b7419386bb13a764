"""The restart policy: when to retry, after which backoff, and when to give up. Pure.

A job may be restarted `allowed_restarts` times; running for `healthy_duration` resets that budget.
Backoff grows exponentially, with jitter. The same failure at the same epoch three times without
progress is a crash loop, which blind retries would repeat for ever. So recovery escalates. After
the first failure the same worker takes the next generation, if it can; after the second a new
worker does. After the third the job fails with a diagnosis: the first fault, its count, what was
tried, what to do.

The rule has three exceptions.

* A worker or a JVM that was killed from outside (SIGKILL, SIGTERM and the like, see `exit_status`)
  is not a crash loop: a kill is no evidence about the job, so only the restart budget and the
  backoff bound it. An out-of-memory kill cannot be distinguished from others and is bounded the
  same way. A process that crashes by itself (SIGSEGV, SIGABRT) counts like any other failure.
* An external failure (storage, a source or a sink is unavailable) is not a crash loop: waiting can
  help.
* A run of identical failures is ended by progress or by an idle worker, not by time alone: an epoch
  that stalls for longer than `healthy_duration` before it fails is not healthy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pydantic import JsonValue

from resurgence.control.detection.failure import Failure
from resurgence.control.detection.running_job_model import IDLE
from resurgence.errors import ErrorDomain, RetryHint
from resurgence.ids import NO_EPOCH, Epoch

CRASH_LOOP = 3
"""The number of identical failures without progress that make a crash loop."""
_LARGEST_EXPONENT = 16


@dataclass(frozen=True)
class RestartHistory:
    """The restarts used, and the current run of identical failures."""

    restarts: int = 0
    first_fault: Failure | None = None
    identical: int = 0
    committed_epoch: Epoch = NO_EPOCH
    tried: tuple[str, ...] = ()
    """The recovery attempts in the run of identical failures."""


@dataclass(frozen=True)
class RecoverAfter:
    """Retry, not before this instant."""

    at: datetime
    history: RestartHistory
    in_place: bool
    """The worker that reported the failure takes the next generation."""


_ADVICE = {
    ErrorDomain.USER: "Fix the pipeline or its input, then start the job.",
    ErrorDomain.EXTERNAL: "Check that storage, sources and sinks respond, then start the job.",
    ErrorDomain.INTERNAL: "Check the worker's log, then start the job. Its state is retained.",
}


@dataclass(frozen=True)
class GiveUp:
    """Recovery is impossible or pointless. Holds the diagnosis."""

    reason: str
    first_fault: Failure
    times: int = 1
    tried: tuple[str, ...] = ()

    @property
    def advice(self) -> str:
        """What the user can do about it."""
        return self.first_fault.hint or _ADVICE[self.first_fault.domain]

    def facts(self) -> dict[str, JsonValue]:
        """Return the diagnosis as it is stored in the database."""
        fault = self.first_fault
        return {
            "reason": self.reason,
            "first_fault": fault.reason,
            "kind": fault.kind,
            "code": fault.code,
            "domain": fault.domain,
            "retry_hint": fault.retry_hint,
            "operator_id": fault.operator,
            "subtask": fault.subtask,
            "epoch": fault.epoch,
            "position": fault.position,
            "traceback": fault.traceback,
            "times": self.times,
            "tried": list(self.tried),
            "what_to_do": self.advice,
        }


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
    """Decide how to handle a failure. `jitter` is a number from 0 to 1, passed in so that this
    function stays pure.
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
        tried=history.tried if same else (),
    )
    first = history.first_fault or failure
    may_loop = failure.domain is not ErrorDomain.EXTERNAL and not failure.killed
    if history.identical >= CRASH_LOOP and may_loop:
        reason = (
            f"the same failure occurred {history.identical} times without progress: {first.reason}"
        )
        return GiveUp(reason, first, history.identical, history.tried)
    if history.restarts > allowed_restarts:
        reason = f"all {allowed_restarts} restarts are used up: {failure.reason}"
        return GiveUp(reason, first, history.identical, history.tried)
    in_place = failure.worker_usable and history.identical == 1
    tried = "restarted in the same worker" if in_place else "restarted with a new worker"
    history = replace(history, tried=(*history.tried, tried)[-CRASH_LOOP:])
    # A first failure needs no backoff, unless it is of a system that all jobs may be waiting for.
    steps = history.restarts if failure.domain is ErrorDomain.EXTERNAL else history.restarts - 1
    wait = _backoff(steps, initial_backoff, maximal_backoff) * (0.75 + jitter / 2)
    return RecoverAfter(now + wait, history, in_place)


def _backoff(steps: int, initial: timedelta, maximal: timedelta) -> timedelta:
    """Return the wait before a restart: none, then `initial`, doubled each time."""
    if steps == 0:
        return timedelta(0)
    doubled: int = 2 ** min(steps - 1, _LARGEST_EXPONENT)
    return min(initial * doubled, maximal)
