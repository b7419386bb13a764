"""Opens the controller of a service with its dependencies, and closes it at the end."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from resurgence.clock import SystemClock
from resurgence.config import settings_from
from resurgence.control.background import in_thread
from resurgence.control.controller import Controller
from resurgence.control.definitions.job_environment import JobEnvironment
from resurgence.control.store.metadata import MetadataStore
from resurgence.control.telemetry.webhooks import Webhooks
from resurgence.control.workers.registry import make_scheduler
from resurgence.control.workers.worker_pool import WorkerPool
from resurgence.errors import ConfigError, StorageError
from resurgence.secrets import open_options

_HOLD_TIMEOUT = timedelta(seconds=3)
_HOLD_CHECK_INTERVAL = timedelta(seconds=5)

log = logging.getLogger("resurgence.control")


@asynccontextmanager
async def open_service(
    metadata: MetadataStore, *, state_url: str, folder: Path, values: Mapping[str, str], url: str
) -> AsyncIterator[Controller]:
    """Open the controller of a service. It resumes the stored jobs, and stops them at a checkpoint
    when it ends. `folder` is for logs; `values` are settings of all jobs, by dotted key; `url` is
    the address of the API.

    A SQLite file has one controller, a Postgres database any number.
    """
    settings = settings_from(values)
    clock = SystemClock()
    pool = WorkerPool(
        make_scheduler(settings.controller.scheduler),
        clock,
        patience=settings.controller.adopt_timeout,
        standby=settings.controller.standby,
        standby_settings=settings,
        log_folder=folder / "logs",
    )
    environment = JobEnvironment(state_url=state_url, folder=folder, settings=dict(values))
    controller = Controller(
        metadata,
        pool,
        environment,
        clock,
        _webhooks(settings.controller.webhook_url, settings.controller.webhook_secret),
        url,
        settings.controller.lease,
    )
    watch: asyncio.Task[None] | None = None
    if not metadata.can_be_shared:
        await _hold(metadata)
    await controller.open()
    if not metadata.can_be_shared:
        watch = asyncio.create_task(_watch_hold(metadata))
    try:
        yield controller
    finally:
        if watch is not None:
            watch.cancel()
        await controller.close()


async def _hold(metadata: MetadataStore) -> None:
    """Raise ConfigError if another service holds the database: two would fence each other's jobs.
    Wait briefly, because one that was just killed may not have exited yet.
    """
    give_up_at = asyncio.get_running_loop().time() + _HOLD_TIMEOUT.total_seconds()
    while not await in_thread(metadata.hold):
        if asyncio.get_running_loop().time() > give_up_at:
            raise ConfigError(
                "another service uses this metadata database",
                hint="Stop it, or start this one with another --state-dir. Several services can "
                "share a Postgres database.",
            )
        await asyncio.sleep(0.1)


async def _watch_hold(metadata: MetadataStore) -> None:
    """Shut this service down when another one holds its database and runs its jobs."""
    while True:
        await asyncio.sleep(_HOLD_CHECK_INTERVAL.total_seconds())
        try:
            if await in_thread(metadata.still_holds):
                continue
        except StorageError as error:
            log.warning("cannot verify the hold on the metadata database: %s", error.message)
            continue
        log.error("another service has taken over the metadata database; shutting down")
        signal.raise_signal(signal.SIGTERM)
        return


def _webhooks(url: str, secret: str) -> Webhooks | None:
    if not url:
        return None
    opened = open_options("controller", {"webhook_url": url, "webhook_secret": secret}).values
    return Webhooks(opened["webhook_url"], opened["webhook_secret"] or None)
