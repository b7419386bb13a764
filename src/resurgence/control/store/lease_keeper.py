"""Renews a job's lease while a supervisor runs the job, and releases it at the end.

A lease that cannot be written is not a failure of the job: it only shows others who runs the job.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from datetime import timedelta

from resurgence.control.jobs.context import JobContext
from resurgence.errors import StorageError
from resurgence.state.protocol.ownership import RENEW_EVERY

_RELEASE_WITHIN = timedelta(seconds=2)
_JITTER = random.SystemRandom()
"""Separate from the global generator, which may be seeded for reproducibility."""

log = logging.getLogger("resurgence.control")


class LeaseKeeper:
    """Renews the lease of the newest claim, starting on creation."""

    def __init__(self, ctx: JobContext) -> None:
        self._ctx = ctx
        self._releasing = asyncio.Event()
        self._task = asyncio.create_task(self._renew_until_released())

    async def release(self) -> None:
        """Release the lease. Wait only briefly: if storage is unavailable, the lease expires."""
        self._releasing.set()
        await asyncio.wait({self._task}, timeout=_RELEASE_WITHIN.total_seconds())

    def close(self) -> None:
        """Stop renewing."""
        self._task.cancel()

    async def _renew_until_released(self) -> None:
        while not self._releasing.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RENEW_EVERY.total_seconds() * _spread()):
                    await self._releasing.wait()
            # One task does both: a renewal after the release would hold the job for ever.
            try:
                if self._releasing.is_set():
                    await self._ctx.claim.release_lease()
                else:
                    await self._ctx.claim.renew_lease()
            except StorageError as error:
                log.warning(
                    "cannot write the lease of job %s: %s", self._ctx.definition.name, error.message
                )


def _spread() -> float:
    """Return a factor that keeps jobs that started together from renewing together."""
    return _JITTER.uniform(0.75, 1.0)
