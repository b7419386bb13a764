"""A controller for one job, inside the process that asked for it: what `resurgence run` uses."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from resurgence.clock import SystemClock
from resurgence.control.context import DesiredConfig, JobContext, JobDefinition, StopMode
from resurgence.control.events import Event, EventLog
from resurgence.control.failure import controller_failure
from resurgence.control.metadata import MetadataStore
from resurgence.control.running_job_model import RunningJobModel
from resurgence.control.scheduler import ProcessScheduler
from resurgence.control.states import State
from resurgence.control.supervisor import Supervisor
from resurgence.control.transitions import TERMINAL
from resurgence.errors import StorageError
from resurgence.state.backend import StateBackend
from resurgence.storage.object_store import ObjectStore
from resurgence.worker.messages import EpochCommitted


class EmbeddedController:
    """Runs one job to its end. Ctrl-C stops with a checkpoint, a second one at once."""

    def __init__(
        self,
        definition: JobDefinition,
        store: ObjectStore,
        metadata: MetadataStore,
        listeners: list[Callable[[Event], None]],
    ) -> None:
        self._definition = definition
        self._store = store
        self._metadata = metadata
        self._listeners = listeners
        self.profile: list[EpochCommitted] = []

    async def run(self) -> State:
        """The terminal state."""
        clock = SystemClock()
        pipeline = self._definition.settings.pipeline
        ctx = JobContext(
            definition=self._definition,
            desired=DesiredConfig(parallelism=pipeline.parallelism),
            backend=StateBackend(self._store, self._definition.name),
            scheduler=ProcessScheduler(),
            events=EventLog(clock, [self._record, *self._listeners]),
            clock=clock,
            model=RunningJobModel(
                heartbeat_timeout=pipeline.heartbeat_timeout, epoch_timeout=pipeline.epoch_timeout
            ),
            profile=self.profile,
        )
        left_in = await asyncio.to_thread(self._left_in)
        if left_in is not None and left_in not in TERMINAL:
            ctx.note_failure(controller_failure(left_in))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, lambda: _interrupt(ctx))
        try:
            return await Supervisor(ctx, self._metadata).run()
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def _left_in(self) -> str | None:
        """The state in which a controller of before left the job, as far as is known."""
        try:
            return self._metadata.state(self._definition.name)
        except StorageError:
            return None

    def _record(self, event: Event) -> None:
        # Without the database the job goes on: it holds nothing that a recovery needs.
        try:
            self._metadata.record_event(self._definition.name, event)
        except StorageError:
            return


def _interrupt(ctx: JobContext) -> None:
    ctx.request_stop(StopMode.CHECKPOINT if ctx.desired.stop is None else StopMode.FORCE)
