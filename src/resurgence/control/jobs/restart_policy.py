"""When to try again, after how long, and when to give up. Pure.

A job may be restarted `allowed_restarts` times; running for `healthy_duration` gives all of them
back. Waits grow exponentially, with jitter. The same failure at the same epoch three times without
progress is a crash loop: trying again blindly would go on for ever. So it escalates: the first time
the same worker takes the next generation, if it can; the second time a new worker does; the third
time the job ends with a diagnosis: the first fault, how often it came, what was tried, what to do.

Three limits of that rule.

* A worker or a JVM that was killed from outside (SIGKILL, SIGTERM and the like, see `exit_status`) is no
  crash loop: a kill says nothing about the job, so only the restart budget and its waits bound it. A kill
  for want of memory cannot be told from others and is bounded the same. A process that crashes by itself
  (SIGSEGV, SIGABRT) counts like any other failure.
* Nor is a failure of the world around the job (storage, a source or a sink that is away): waiting can help
  there.
* A run of identical failures is ended by progress or by an idle worker, not by mere time: an epoch that
  stands still for longer than `healthy_duration` before it fails is not healthy.
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
"""So many identical failures without progress are a crash loop."""
_LARGEST_EXPONENT = 16


@dataclass(frozen=True)
class RestartHistory:
    """What counts of the past: restarts used, and the run of identical failures."""

    restarts: int = 0
    first_fault: Failure | None = None
    identical: int = 0
    committed_epoch: Epoch = NO_EPOCH
    tried: tuple[str, ...] = ()
    """What was done about the run of identical failures."""


@dataclass(frozen=True)
class RecoverAfter:
    """Try again, not before this instant."""

    at: datetime
    history: RestartHistory
    in_place: bool
    """The worker that reported the failure takes the next generation."""


_ADVICE = {
    ErrorDomain.USER: "mend the pipeline or its input, then start the job again",
    ErrorDomain.EXTERNAL: "see that storage, sources and sinks can be reached, then start again",
    ErrorDomain.INTERNAL: "look at the worker's log; the state is kept, and a start tries again",
}


@dataclass(frozen=True)
class GiveUp:
    """Recovery is impossible, or pointless: the diagnosis."""

    reason: str
    first_fault: Failure
    times: int = 1
    tried: tuple[str, ...] = ()

    @property
    def advice(self) -> str:
        """What a user can do."""
        return self.first_fault.hint or _ADVICE[self.first_fault.domain]

    def facts(self) -> dict[str, JsonValue]:
        """As it is written to the database."""
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
        tried=history.tried if same else (),
    )
    first = history.first_fault or failure
    may_loop = failure.domain is not ErrorDomain.EXTERNAL and not failure.killed
    if history.identical >= CRASH_LOOP and may_loop:
        reason = f"the same failure came {history.identical} times without progress: {first.reason}"
        return GiveUp(reason, first, history.identical, history.tried)
    if history.restarts > allowed_restarts:
        reason = f"all {allowed_restarts} restarts are used up: {failure.reason}"
        return GiveUp(reason, first, history.identical, history.tried)
    in_place = failure.worker_usable and history.identical == 1
    tried = "restarted in the same worker" if in_place else "restarted with a new worker"
    history = replace(history, tried=(*history.tried, tried)[-CRASH_LOOP:])
    exponent = min(history.restarts - 1, _LARGEST_EXPONENT)
    wait = min(initial_backoff * 2**exponent, maximal_backoff) * (0.75 + jitter / 2)
    return RecoverAfter(now + wait, history, in_place)
