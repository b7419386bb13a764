"""The supervisor of a job: runs its states, enforces their deadlines, persists each transition
before the next state runs.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from pydantic import TypeAdapter

from resurgence.control.background import Lane
from resurgence.control.detection.failure import FailureKind, failure_from
from resurgence.control.jobs.context import JobContext
from resurgence.control.jobs.job_record import JobStatus
from resurgence.control.jobs.restart_policy import GiveUp, RestartHistory
from resurgence.control.jobs.states import (
    Created,
    Failed,
    Failing,
    Recovering,
    State,
    Stopping,
    Transition,
)
from resurgence.control.jobs.transitions import TERMINAL, StateName, require_edge
from resurgence.control.store.lease_keeper import LeaseKeeper
from resurgence.control.store.metadata import MetadataStore
from resurgence.errors import (
    ErrorDomain,
    JobLost,
    ResurgenceError,
    Retired,
    RetryHint,
    StorageError,
)
from resurgence.ids import NO_GENERATION, ControllerId

_TRIES = 3
_PAUSE = timedelta(milliseconds=200)
_CATCH_UP = timedelta(milliseconds=500)
_SAVE_WITHIN = timedelta(seconds=2)
_HISTORY: TypeAdapter[RestartHistory] = TypeAdapter(RestartHistory)
_REPEATABLE = frozenset(
    {
        StateName.CREATED,
        StateName.COMPILING,
        StateName.STOPPING,
        StateName.FINISHING,
        StateName.FAILING,
    }
)
"""States whose step can be retried as it is. The others have a worker, or count a failure; they go
to Recovering, which backs off.
"""

_WAIT_FOR_STORAGE = frozenset({StateName.CREATED, StateName.COMPILING, StateName.RECOVERING})
"""States that wait for storage and connectors: passing their deadline is an external failure."""

log = logging.getLogger("resurgence.control")


class DeadlinePassed(ResurgenceError):
    """A state exceeded its deadline."""

    code = "control.deadline"


class Supervisor:
    """Drives one job to a terminal state."""

    def __init__(
        self,
        ctx: JobContext,
        metadata: MetadataStore,
        *,
        interrupted_in: StateName | None = None,
        owner: ControllerId | None = None,
        lane: Lane | None = None,
    ) -> None:
        """`interrupted_in`: the state an earlier controller left the job in, unless terminal.
        `owner`: the controller, if it is not the only one. `lane`: for calls of the database, shared
        with other jobs.
        """
        self._ctx = ctx
        self._metadata = metadata
        self._owner = owner
        self._lane = lane or Lane(1)
        self._metadata_available = True
        self._state: State = Created(interrupted_in)
        self._cause = ""
        self._changed_at = ctx.clock.now()
        self._unsaved = False
        self._retired = False
        self._writer: asyncio.Task[None] | None = None
        ctx.save = self._save

    @property
    def status(self) -> JobStatus:
        """The current status of the job."""
        ctx = self._ctx
        given_up = self._state.given_up if isinstance(self._state, Failing | Failed) else None
        return JobStatus(
            state=self._state.name,
            cause=self._cause,
            run=ctx.run,
            reset_run=ctx.reset_run,
            parallelism=ctx.parallelism,
            generation=ctx.claim.record.generation if ctx.claim.record else NO_GENERATION,
            identity=ctx.claim.record.job if ctx.claim.record else "",
            worker=ctx.worker.handle.record if ctx.worker.handle else None,
            failure=given_up.facts() if given_up else None,
            history=_HISTORY.dump_python(ctx.history, mode="json"),
            changed_at=self._changed_at,
        )

    async def run(self) -> State:
        """Run the job to its end and return its terminal state. Raise JobLost, with its worker torn
        down, if another controller has the job.
        """
        await self._save()
        lease = LeaseKeeper(self._ctx)
        try:
            while self._state.name not in TERMINAL:
                transition = await self._step(self._state)
                require_edge(self._state.name, transition.target.name)
                self._ctx.events.emit(
                    "state",
                    **{
                        "from": self._state.name,
                        "to": transition.target.name,
                        "reason": transition.cause,
                    },
                )
                self._state, self._cause = transition.target, transition.cause
                self._changed_at = self._ctx.clock.now()
                await self._save()
            await lease.release()
            return self._state
        finally:
            lease.close()
            # No worker may outlive the supervisor, whatever happens to the controller.
            await self._ctx.tear_down()

    async def _step(self, state: State) -> Transition:
        """Run one state. A step that fails is retried; then the job recovers, or fails if a retry
        cannot help.
        """
        for attempt in range(_TRIES):
            if attempt:
                await asyncio.sleep(_PAUSE.total_seconds() * attempt)
            try:
                return await self._within_deadline(state)
            except JobLost:
                raise
            except ResurgenceError as error:
                error_now = error
            except Exception as error:
                log.exception("internal error in state %s", state.name)
                error_now = ResurgenceError(f"{state.name}: {type(error).__name__}: {error}")
            # Another controller has claimed the job: Recovering asks which of them owns it.
            is_disputed = isinstance(error_now, Retired) and self._ctx.claim.is_shared
            is_final = error_now.retry_hint is RetryHint.NO_RETRY and not is_disputed
            if is_final and not isinstance(state, Failing):
                failure = failure_from(error_now)
                self._ctx.note_failure(failure)
                return Transition(Failing(GiveUp(failure.reason, failure)), failure.reason)
            if isinstance(error_now, DeadlinePassed) or state.name not in _REPEATABLE:
                break
        if state.name is StateName.CHECKPOINT_STOPPING:
            return Transition(Stopping(), error_now.message)
        if isinstance(state, Failing):
            return Transition(Failed(state.given_up), error_now.message)
        if state.name is StateName.STOPPING:
            failure = failure_from(error_now)
            self._ctx.note_failure(failure)
            return Transition(Failing(GiveUp(failure.reason, failure)), failure.reason)
        kind = (
            FailureKind.START_FAILED
            if state.name is StateName.SCHEDULING
            else FailureKind.CONTROL_FAILED
        )
        return Transition(Recovering(failure_from(error_now, kind)), error_now.message)

    async def _within_deadline(self, state: State) -> Transition:
        limit = state.deadline(self._ctx)
        if limit is None:
            return await state.next(self._ctx)
        try:
            async with asyncio.timeout(limit.total_seconds()):
                return await state.next(self._ctx)
        except TimeoutError as error:
            passed = DeadlinePassed(f"{state.name} took longer than {limit.total_seconds():.0f} s")
            if state.name in _WAIT_FOR_STORAGE:
                passed.domain = ErrorDomain.EXTERNAL
            raise passed from error

    async def retire(self) -> None:
        """Stop writing the status: another supervisor has the job. Wait for a write in progress, so
        that it cannot overwrite the status of the new supervisor.
        """
        self._unsaved = False
        if self._writer is not None:
            self._retired = True
            await asyncio.wait({self._writer}, timeout=_SAVE_WITHIN.total_seconds())

    async def _save(self) -> None:
        """Write the status before the state runs. A broken database does not stop the job, because
        it holds nothing that a recovery needs. Nor does it delay the job for long: the wait is
        short, and the write is retried in the background.
        """
        self._unsaved = True
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())
        patience = _SAVE_WITHIN if self._metadata_available else timedelta(0)
        await asyncio.wait({self._writer}, timeout=patience.total_seconds())

    async def _write(self) -> None:
        """Write one status at a time, so that the newest is the last one written."""
        while self._unsaved and not self._retired:
            self._unsaved = False
            try:
                await self._lane.call(
                    self._metadata.record_status,
                    self._ctx.definition.name,
                    self.status,
                    self._owner,
                )
            except JobLost as error:
                # The controller lets go of the job as soon as it looks at the database.
                log.warning("stopped writing the status: %s", error.message)
                return
            except StorageError as error:
                log.warning(
                    "cannot store the status of job %s: %s",
                    self._ctx.definition.name,
                    error.message,
                )
                self._metadata_available = False
                self._unsaved = True
                await asyncio.sleep(_CATCH_UP.total_seconds())
            else:
                self._metadata_available = True
