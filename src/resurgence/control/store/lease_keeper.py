"""Keeps a job's lease while a supervisor runs the job, and gives it back at the end.

A lease that cannot be written is no failure of the job: it only tells others who runs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import timedelta

from resurgence.control.jobs.context import JobContext
from resurgence.errors import StorageError
from resurgence.state.protocol.ownership import RENEW_EVERY

_RELEASE_WITHIN = timedelta(seconds=2)

log = logging.getLogger("resurgence.control")


class LeaseKeeper:
    """Renews the lease of the newest claim from the moment it is made."""

    def __init__(self, ctx: JobContext) -> None:
        self._ctx = ctx
        self._releasing = asyncio.Event()
        self._task = asyncio.create_task(self._keep())

    async def release(self) -> None:
        """Give the lease back; briefly, for storage may be away. It runs out by itself then."""
        self._releasing.set()
        await asyncio.wait({self._task}, timeout=_RELEASE_WITHIN.total_seconds())

    def close(self) -> None:
        """Stop renewing."""
        self._task.cancel()

    async def _keep(self) -> None:
        while not self._releasing.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RENEW_EVERY.total_seconds()):
                    await self._releasing.wait()
            # A renewal and the release take turns: one that came late would hold the job for ever.
            try:
                if self._releasing.is_set():
                    await self._ctx.claim.release_lease()
                else:
                    await self._ctx.claim.renew_lease()
            except StorageError as error:
                log.warning("the lease of %s: %s", self._ctx.definition.name, error.message)
