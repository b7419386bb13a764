"""The claim of a process on a job: the newest generation record, and the lease that shows other
processes who holds it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from resurgence.clock import Clock
from resurgence.control.background import in_thread
from resurgence.control.jobs.requests import JobRequests
from resurgence.control.jobs.wake_up import WakeUp
from resurgence.control.telemetry.events import EventLog
from resurgence.errors import JobHeld
from resurgence.ids import NO_GENERATION, Generation
from resurgence.state.backend import StateBackend
from resurgence.state.protocol.ownership import LEASE, Sighting
from resurgence.state.records import GenerationRecord, Owner

_T = TypeVar("_T")

RequireOwned = Callable[[bool], None]
"""Raises JobLost if another controller of the service owns the job, or may own it. The argument is
whether no one else has claimed a generation: then an owner that cannot ask goes on.
"""


class JobClaim:
    """Claims generations of a job, and holds the lease of the newest."""

    def __init__(
        self,
        backend: StateBackend,
        owner: Owner,
        clock: Clock,
        events: EventLog,
        requests: JobRequests,
        wake_up: WakeUp,
    ) -> None:
        """`owner` identifies this process to others."""
        self._backend = backend
        self._owner = owner
        self._clock = clock
        self._events = events
        self._requests = requests
        self._wake_up = wake_up
        self._sighting: Sighting | None = None
        self.record: GenerationRecord | None = None
        self.take_over = False
        """Claim the job even if another live process runs it."""
        self.last_known = NO_GENERATION
        """The newest generation when this process took up the job, as the service has recorded it."""
        self.require_owned: RequireOwned | None = None
        """Asks the service which of its controllers owns the job; None: there is only one."""

    @property
    def generation(self) -> Generation:
        return self.record.generation if self.record else NO_GENERATION

    @property
    def is_shared(self) -> bool:
        """Whether other controllers of the service may own the job."""
        return self.require_owned is not None

    async def claim(self) -> GenerationRecord:
        """Claim the next generation, which fences every older one."""
        abandoned, now = threading.Event(), self._clock.now()

        def claim() -> GenerationRecord:
            return self._backend.claim_generation(
                now,
                abandoned.is_set,
                owner=self._owner,
                permit=self._permit,
                directory=str(Path.cwd()),
            )

        try:
            self.record = await self._once_free(claim)
        except asyncio.CancelledError:
            # The call may hang in its thread, and would claim once storage responds again.
            abandoned.set()
            raise
        # A process that takes the job over from here must not be fenced in return.
        self.take_over = False
        return self.record

    async def require_free(self) -> None:
        """Raise JobHeld if another live process runs the job."""
        await self._once_free(lambda: self._permit(self._backend.newest_generation()))

    async def renew_lease(self) -> None:
        """Renew the lease: this process still holds the job."""
        if self.record is not None:
            job, generation = self.record.job, self.record.generation
            await in_thread(
                self._backend.leases.renew, job, generation, self._owner, self._clock.now()
            )

    async def release_lease(self) -> None:
        """Release the lease: no process holds the job."""
        if self.record is not None:
            await in_thread(self._backend.leases.release, self.record.generation)

    async def verify_owned(self) -> bool:
        """Return False if there is only one controller. Raise JobLost if another one has the job."""
        if self.require_owned is None:
            return False
        await in_thread(self.require_owned, False)
        return True

    def _permit(self, newest: Generation) -> None:
        is_undisputed = newest == self.generation
        if self.require_owned is not None:
            self.require_owned(newest in (self.generation, self.last_known))
        if not self.take_over and not is_undisputed:
            self._backend.leases.require_free(
                newest, self._owner, self._clock.now(), before=self._sighting
            )

    async def _once_free(self, call: Callable[[], _T]) -> _T:
        """Return the result of `call`. If another owner may be dead, watch its lease until it is
        renewed or has expired.
        """
        while True:
            try:
                return await in_thread(call)
            except JobHeld as held:
                if held.proven or self._requests.stop is not None:
                    raise
                if self._sighting is None:
                    self._sighting = Sighting(held.renewed_at, self._clock.now())
                    self._events.emit("owner_watched", owner=held.message, at_most=LEASE.seconds)
                await self._wake_up.tick()
