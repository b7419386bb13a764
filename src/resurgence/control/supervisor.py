"""One supervisor per job: runs its states, keeps their deadlines, persists each transition
before the next state.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from resurgence.control.context import JobContext
from resurgence.control.failure import FailureKind, failure_from
from resurgence.control.metadata import MetadataStore
from resurgence.control.states import (
    Created,
    Failed,
    Failing,
    Recovering,
    State,
    Stopping,
    Transition,
)
from resurgence.control.transitions import TERMINAL, StateName, require_edge
from resurgence.errors import ResurgenceError, RetryHint, StorageError

_TRIES = 3
_PAUSE = timedelta(milliseconds=200)
_REPEATABLE = frozenset(
    {
        StateName.CREATED,
        StateName.COMPILING,
        StateName.STOPPING,
        StateName.FINISHING,
        StateName.FAILING,
    }
)
"""The states whose step can be tried again as it is. The others have a worker, or count a failure;
they go to Recovering, which waits.
"""

log = logging.getLogger("resurgence.control")


class DeadlinePassed(ResurgenceError):
    """A state took longer than it may."""

    code = "control.deadline"


class Supervisor:
    """Drives one job to a terminal state."""

    def __init__(self, ctx: JobContext, metadata: MetadataStore) -> None:
        self._ctx = ctx
        self._metadata = metadata
        self._metadata_answers = True

    async def run(self) -> State:
        """The terminal state that the job ends in."""
        state: State = Created()
        await self._persist(state, "")
        try:
            while state.name not in TERMINAL:
                transition = await self._step(state)
                require_edge(state.name, transition.target.name)
                self._ctx.events.emit(
                    "state",
                    **{
                        "from": state.name,
                        "to": transition.target.name,
                        "reason": transition.cause,
                    },
                )
                await self._persist(transition.target, transition.cause)
                state = transition.target
            return state
        finally:
            # Whatever happens to the controller, no worker stays behind.
            await self._ctx.tear_down()
            await self._ctx.channel.close()

    async def _step(self, state: State) -> Transition:
        """One state's work. A step that fails is tried again, then the job recovers, or fails if
        that cannot help.
        """
        for attempt in range(_TRIES):
            if attempt:
                await asyncio.sleep(_PAUSE.total_seconds() * attempt)
            try:
                return await self._within_deadline(state)
            except ResurgenceError as error:
                error_now = error
            except Exception as error:
                log.exception("defect in state %s", state.name)
                error_now = ResurgenceError(f"{state.name}: {type(error).__name__}: {error}")
            if error_now.retry_hint is RetryHint.NO_RETRY and not isinstance(state, Failing):
                failure = failure_from(error_now)
                self._ctx.note_failure(failure)
                return Transition(Failing(failure, failure.reason), failure.reason)
            if isinstance(error_now, DeadlinePassed) or state.name not in _REPEATABLE:
                break
        if state.name is StateName.CHECKPOINT_STOPPING:
            return Transition(Stopping(), error_now.message)
        if isinstance(state, Failing):
            return Transition(Failed(state.failure, state.reason), error_now.message)
        if state.name is StateName.STOPPING:
            failure = failure_from(error_now)
            self._ctx.note_failure(failure)
            return Transition(Failing(failure, failure.reason), failure.reason)
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
            raise DeadlinePassed(
                f"{state.name} took longer than {limit.total_seconds():.0f} s"
            ) from error

    async def _persist(self, state: State, cause: str) -> None:
        """Write the new status before the state runs. A database that stays broken does not stop
        the job: it holds nothing that a recovery needs. Nor does it hold it up: it is not waited
        for again until it answers.
        """
        ctx = self._ctx
        for attempt in range(_TRIES if self._metadata_answers else 1):
            if attempt:
                await asyncio.sleep(_PAUSE.total_seconds() * attempt)
            try:
                await asyncio.to_thread(
                    self._metadata.record_state,
                    ctx.definition.name,
                    identity=ctx.claim.job if ctx.claim else "",
                    state=state.name,
                    cause=cause,
                    generation=ctx.claim.generation if ctx.claim else 0,
                    sql=ctx.definition.sql,
                    now=ctx.clock.now(),
                )
            except StorageError as error:
                log.warning("%s", error.message)
                self._metadata_answers = False
            else:
                self._metadata_answers = True
                return
