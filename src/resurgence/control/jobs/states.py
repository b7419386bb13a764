"""The states of a job. Each one reads the context, acts, and returns the next transition.

A state raises a `ResurgenceError` when its step fails. The supervisor retries the step, then
recovers the job, or fails it if a retry cannot help. While it waits, every state watches the worker
and the user's requests. Every wait is bounded by the deadline of its state, which the supervisor
enforces.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar

from resurgence.connectors.checks import check_connectors, require_no_more_input
from resurgence.control.background import in_thread
from resurgence.control.detection.failure import Failure, FailureKind, controller_failure
from resurgence.control.detection.running_job_model import WorkerState
from resurgence.control.jobs.context import JobContext
from resurgence.control.jobs.job_record import StopMode
from resurgence.control.jobs.restart_policy import GiveUp, decide
from resurgence.control.jobs.transitions import StateName
from resurgence.control.workers.worker_pool import Origin
from resurgence.engine.spark.connector_jars import INSTALL_WITHIN
from resurgence.errors import ErrorDomain, Retired, RetryHint, StorageError, TakenOver
from resurgence.state.inspection.edits import require_kept, restore_fates
from resurgence.worker.messages import StopAfterEpoch

_STEP = timedelta(seconds=60)
_TEAR_DOWN = timedelta(seconds=15)
_STOP_POLL = timedelta(milliseconds=200)


@dataclass(frozen=True)
class Transition:
    """The next state, and the cause of the transition."""

    target: State
    cause: str


class State:
    """One state of the machine."""

    name: ClassVar[StateName]

    def deadline(self, ctx: JobContext) -> timedelta | None:
        """Return the maximum time in this state; None if it lasts as long as the job runs."""
        return _STEP

    async def next(self, ctx: JobContext) -> Transition:
        """Do the work of this state and return the next transition."""
        raise AssertionError(f"{self.name} is terminal")


@dataclass(frozen=True)
class Created(State):
    """The job has not started: find its newest checkpoint. A worker that an earlier
    controller left running is adopted if it still has the newest generation.
    """

    name = StateName.CREATED
    interrupted_in: StateName | None = None
    """The state in which an earlier controller left the job, unless that was a terminal one."""

    def deadline(self, ctx: JobContext) -> timedelta | None:
        return _STEP + ctx.definition.settings.controller.adopt_timeout

    async def next(self, ctx: JobContext) -> Transition:
        if ctx.worker.handle is not None and await _adopt_worker(ctx):
            cause = f"adopted the worker of generation {ctx.worker.handle.generation}"
            return Transition(Running(), cause)
        if self.interrupted_in is not None and ctx.incidents.open is None:
            ctx.note_failure(controller_failure(self.interrupted_in))
        if ctx.stop_requested:
            if not ctx.requests.is_closing:
                await ctx.roll_back()
            return Transition(Stopping(), "a stop was requested")
        await ctx.plan_restore()
        assert ctx.plan is not None
        found = f"resume from epoch {ctx.plan.epoch}" if ctx.plan.epoch else "no checkpoint exists"
        return Transition(Compiling(), found)


async def _adopt_worker(ctx: JobContext) -> bool:
    """Wait for the worker of an earlier controller to connect and report its state. Return False,
    with the worker torn down, if it exited, is silent, or does not have the newest generation.
    """
    assert ctx.worker.handle is not None
    give_up_at = ctx.clock.now() + ctx.definition.settings.controller.adopt_timeout
    claim = None
    while (
        claim is None and ctx.requests.stop is not StopMode.FORCE and ctx.clock.now() < give_up_at
    ):
        try:
            claim = await in_thread(ctx.backend.newest_claim)
        except StorageError:
            # A healthy worker must not be torn down because storage is unavailable right now.
            await ctx.tick()
        else:
            break
    if claim is not None and claim.generation == ctx.worker.handle.generation:
        ctx.claim.record = claim
        with contextlib.suppress(StorageError):
            # The worker finds this controller by its lease.
            await ctx.claim.renew_lease()
        while (
            ctx.clock.now() < give_up_at
            and ctx.model.worker_exited() is None
            and ctx.requests.stop is not StopMode.FORCE
        ):
            if ctx.model.restored is not None or ctx.model.task_failed() is not None:
                ctx.running_since = ctx.clock.now()
                ctx.worker.report_start(Origin.ADOPTED)
                return True
            await ctx.tick()
    await ctx.tear_down()
    return False


@dataclass(frozen=True)
class Compiling(State):
    """Compile the SQL to a graph."""

    name = StateName.COMPILING

    async def next(self, ctx: JobContext) -> Transition:
        definition = ctx.definition
        if ctx.graph is None:
            ctx.graph = await in_thread(definition.compile, definition.sql)
        await in_thread(check_connectors, ctx.graph, definition.state_url, definition.name)
        assert ctx.plan is not None
        # Reject an edit that loses state before starting a worker for it.
        accept_loss = definition.settings.checkpoint.accept_state_loss
        judged = restore_fates(ctx.graph, ctx.plan)
        require_kept(judged, ctx.plan.epoch, accept_loss=accept_loss)
        if ctx.stop_requested:
            return Transition(Stopping(), "a stop was requested")
        if _is_complete(ctx):
            ends = ctx.plan.input_ends
            await in_thread(require_no_more_input, ctx.graph, ends, ctx.clock.now())
            return Transition(Finishing(), "all input was already read and committed")
        return Transition(Scheduling(), f"{len(ctx.graph.operators)} operators")


def _is_complete(ctx: JobContext) -> bool:
    """Return whether the restored checkpoint completes this same pipeline, so that no worker is
    needed.
    """
    assert ctx.graph is not None
    assert ctx.plan is not None
    plan = ctx.plan
    same_operators = {each.id for each in ctx.graph.durable()} == set(plan.operators)
    to_retract = any(plan.epoch < last for _, last in plan.dead)
    is_pending = plan.commit_pending or to_retract or plan.replays_due
    return plan.finished and same_operators and not is_pending


@dataclass(frozen=True)
class Scheduling(State):
    """Acquire a worker, send it the graph and the load plan, wait until state is restored."""

    name = StateName.SCHEDULING

    def deadline(self, ctx: JobContext) -> timedelta | None:
        start = ctx.definition.settings.pipeline.start_timeout
        return start + INSTALL_WITHIN if ctx.may_download_jars() else start

    async def next(self, ctx: JobContext) -> Transition:
        if not await _provide_jars(ctx):
            return Transition(Stopping(), "a stop was requested")
        await ctx.start_worker()
        ordered = False
        while True:
            if ctx.stop_requested:
                return Transition(Stopping(), "a stop was requested")
            failure = ctx.detect() or _silent_start(ctx)
            if failure is not None:
                return Transition(Recovering(failure), failure.reason)
            if not ordered and ctx.worker.is_connected:
                await ctx.start_execution()
                ctx.incidents.phase_done("schedule")
                ordered = True
            if ctx.model.restored is not None:
                ctx.incidents.phase_done("restore")
                ctx.running_since = ctx.clock.now()
                return Transition(
                    Running(), f"state restored from epoch {ctx.model.restored.epoch}"
                )
            await ctx.tick()


async def _provide_jars(ctx: JobContext) -> bool:
    """Return False if a stop was requested before the jars were there: a download can take minutes."""
    if not ctx.jar_sets:
        return True
    task = asyncio.create_task(ctx.provide_jars())
    try:
        while not (await asyncio.wait({task}, timeout=_STOP_POLL.total_seconds()))[0]:
            if ctx.stop_requested:
                return False
        await task
        return True
    finally:
        task.cancel()


def _silent_start(ctx: JobContext) -> Failure | None:
    """Return the failure of a starting worker whose heartbeats stopped, or whose restore makes no
    progress.
    """
    pipeline = ctx.definition.settings.pipeline
    now = ctx.detector_time()
    for status in ctx.model.workers:
        if status.state is not WorkerState.STARTING or status.phase_began_at is None:
            continue
        if now - status.last_heard_at >= pipeline.heartbeat_timeout:
            reason = f"no heartbeat from the starting worker (pid {status.pid}) within the timeout"
        elif status.phase == "restore" and now - status.phase_began_at >= pipeline.epoch_timeout:
            reason = f"the restore of the starting worker (pid {status.pid}) makes no progress"
        else:
            continue
        return Failure(
            FailureKind.START_FAILED, reason, ErrorDomain.INTERNAL, RetryHint.WITH_BACKOFF
        )
    return None


@dataclass(frozen=True)
class Running(State):
    """The worker runs epochs. The failure detector is evaluated on every tick."""

    name = StateName.RUNNING

    def deadline(self, ctx: JobContext) -> timedelta | None:
        return None

    async def next(self, ctx: JobContext) -> Transition:
        while True:
            if ctx.model.finished:
                return Transition(Finishing(), "the input has ended")
            failure = ctx.detect()
            if failure is not None:
                return Transition(Recovering(failure), failure.reason)
            stop = ctx.requests.stop
            if stop is StopMode.CHECKPOINT:
                return Transition(CheckpointStopping(), f"a stop was requested ({stop})")
            if stop is not None:
                return Transition(Stopping(), f"a stop was requested ({stop})")
            if ctx.requests.desired.parallelism != ctx.parallelism:
                return Transition(
                    Rescaling(),
                    f"parallelism {ctx.parallelism} to {ctx.requests.desired.parallelism}",
                )
            if ctx.restart_requested:
                return Transition(Restarting(), "a restart was requested")
            if ctx.model.all_stopped():
                # An earlier controller ordered it to stop, and died before it did.
                return Transition(Restarting(), "the worker had already been ordered to stop")
            await ctx.until_due()


async def _finish_epoch(ctx: JobContext) -> Failure | None:
    """Order the worker to stop after its epoch and wait for it. Return the failure if it fails
    first; None if it stopped, or if the stop or restart became a forced one.
    """
    await ctx.worker.send(StopAfterEpoch())
    while not ctx.model.all_stopped():
        failure = ctx.detect()
        if failure is not None:
            return failure
        if ctx.requests.stop is StopMode.FORCE:
            return None
        if ctx.restart_requested and ctx.requests.desired.force:
            return None
        await ctx.tick()
    return None


@dataclass(frozen=True)
class CheckpointStopping(State):
    """Let the worker finish its epoch, so that everything up to there is sealed and committed."""

    name = StateName.CHECKPOINT_STOPPING

    def deadline(self, ctx: JobContext) -> timedelta | None:
        return ctx.definition.settings.pipeline.stop_timeout

    async def next(self, ctx: JobContext) -> Transition:
        failure = await _finish_epoch(ctx)
        if failure is not None:
            # No recovery is needed: a later start resumes from the last sealed epoch.
            ctx.events.emit(
                "failure",
                kind=failure.kind,
                error=failure.reason,
                domain=failure.domain,
                retry_hint=failure.retry_hint,
                operator_id=failure.operator,
                subtask=failure.subtask,
            )
            return Transition(Stopping(), f"the worker failed while stopping: {failure.reason}")
        if ctx.model.finished:
            return Transition(Finishing(), "the input has ended")
        return Transition(Stopping(), f"stopped at epoch {ctx.model.sealed_epoch}")


@dataclass(frozen=True)
class Stopping(State):
    """End the worker."""

    name = StateName.STOPPING

    def deadline(self, ctx: JobContext) -> timedelta | None:
        return _TEAR_DOWN

    async def next(self, ctx: JobContext) -> Transition:
        await ctx.tear_down()
        ctx.incidents.close(None)
        return Transition(Stopped(), "no worker process remains")


@dataclass(frozen=True)
class Finishing(State):
    """The input has ended: the worker exits by itself, or is killed."""

    name = StateName.FINISHING

    def deadline(self, ctx: JobContext) -> timedelta | None:
        return _TEAR_DOWN

    async def next(self, ctx: JobContext) -> Transition:
        await ctx.tear_down()
        ctx.incidents.close(ctx.clock.now())
        return Transition(Finished(), "all input was read and committed")


@dataclass(frozen=True)
class Recovering(State):
    """Report the failure, tear down the worker, find the newest valid checkpoint, plan the load."""

    name = StateName.RECOVERING
    failure: Failure

    def deadline(self, ctx: JobContext) -> timedelta | None:
        # Includes the backoff with its jitter; the remaining work is short.
        return _STEP + 2 * ctx.definition.settings.pipeline.maximal_backoff

    async def next(self, ctx: JobContext) -> Transition:
        failure = self.failure
        if failure.code in (Retired.code, TakenOver.code) and await ctx.claim.verify_owned():
            # A controller that had lost the job claimed it once more before it noticed.
            failure = replace(
                failure, domain=ErrorDomain.INTERNAL, retry_hint=RetryHint.WITH_BACKOFF
            )
        ctx.note_failure(failure)
        pipeline = ctx.definition.settings.pipeline
        now = ctx.clock.now()
        decision = decide(
            failure,
            ctx.history,
            now=now,
            committed_epoch=ctx.model.sealed_epoch,
            healthy_for=ctx.healthy_for(),
            allowed_restarts=pipeline.allowed_restarts,
            healthy_duration=pipeline.healthy_duration,
            initial_backoff=pipeline.initial_backoff,
            maximal_backoff=pipeline.maximal_backoff,
            jitter=ctx.jitter(),
        )
        ctx.incidents.phase_done("detect")
        if isinstance(decision, GiveUp):
            return Transition(Failing(decision), decision.reason)
        ctx.history = decision.history
        ctx.running_since = None
        if not decision.in_place:
            await ctx.tear_down()
        ctx.incidents.phase_done("tear_down")
        # Back off before planning: if the plan fails because storage is unavailable, the next
        # attempt backs off as well. A requested restart skips the wait.
        while (
            not ctx.stop_requested
            and not ctx.restart_requested
            and (now := ctx.clock.now()) < decision.at
        ):
            await ctx.tick(decision.at - now)
        if ctx.stop_requested:
            return Transition(Stopping(), "a stop was requested")
        if ctx.restart_requested:
            ctx.begin_run()
        ctx.incidents.phase_done("backoff")
        await ctx.plan_restore()
        ctx.incidents.phase_done("plan")
        assert ctx.plan is not None
        return Transition(Compiling(), f"restore epoch {ctx.plan.epoch}")


@dataclass(frozen=True)
class Rescaling(State):
    """Take a checkpoint, then start the same job at another parallelism."""

    name = StateName.RESCALING

    def deadline(self, ctx: JobContext) -> timedelta | None:
        return ctx.definition.settings.pipeline.stop_timeout

    async def next(self, ctx: JobContext) -> Transition:
        return await _restart(ctx)


@dataclass(frozen=True)
class Restarting(State):
    """Take a checkpoint, then start the same job with a new worker."""

    name = StateName.RESTARTING

    def deadline(self, ctx: JobContext) -> timedelta | None:
        return ctx.definition.settings.pipeline.stop_timeout

    async def next(self, ctx: JobContext) -> Transition:
        return await _restart(ctx)


async def _restart(ctx: JobContext) -> Transition:
    # A forced restart does not wait for the worker: it may be unresponsive.
    failure = (
        None if ctx.restart_requested and ctx.requests.desired.force else await _finish_epoch(ctx)
    )
    if failure is not None:
        return Transition(Recovering(failure), failure.reason)
    if ctx.stop_requested:
        return Transition(Stopping(), "a stop was requested")
    if ctx.model.finished:
        return Transition(Finishing(), "the input has ended")
    await ctx.tear_down()
    if ctx.restart_requested:
        ctx.begin_run()
    await ctx.plan_restore()
    assert ctx.plan is not None
    return Transition(
        Compiling(), f"restore epoch {ctx.plan.epoch} at parallelism {ctx.parallelism}"
    )


@dataclass(frozen=True)
class Failing(State):
    """Recovery is impossible: tear down the worker, retain the state."""

    name = StateName.FAILING
    given_up: GiveUp

    def deadline(self, ctx: JobContext) -> timedelta | None:
        return _TEAR_DOWN

    async def next(self, ctx: JobContext) -> Transition:
        await ctx.tear_down()
        ctx.incidents.close(None)
        return Transition(Failed(self.given_up), self.given_up.reason)


@dataclass(frozen=True)
class Stopped(State):
    """Stopped as requested. A later start resumes from the last checkpoint."""

    name = StateName.STOPPED


@dataclass(frozen=True)
class Finished(State):
    """All input has been read and committed."""

    name = StateName.FINISHED


@dataclass(frozen=True)
class Failed(State):
    """Failed for good, with the diagnosis: the first fault and what to do about it."""

    name = StateName.FAILED
    given_up: GiveUp

    @property
    def failure(self) -> Failure:
        return self.given_up.first_fault

    @property
    def reason(self) -> str:
        return self.given_up.reason
