"""The workers of a controller: started for a job, warm as a standby, or adopted from an earlier
controller.

A worker has one owner at a time: the job that it runs, or the set of standbys, which all jobs of
the controller share. The owner receives its messages and is notified of its exit.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

from resurgence.clock import Clock
from resurgence.config import Settings
from resurgence.control.background import in_thread
from resurgence.control.detection.pause_aware_clock import PauseAwareClock
from resurgence.control.jobs.job_record import WorkerRecord
from resurgence.control.workers.channel import ControlChannel, Receive, token_digest
from resurgence.control.workers.scheduler import (
    Exited,
    ScheduledWorker,
    WorkerOrder,
    WorkerScheduler,
)
from resurgence.engine.spark.connector_jars import ready_jars, serves, with_jars
from resurgence.engine.spark.executors import Executor
from resurgence.errors import ResurgenceError
from resurgence.ids import NO_GENERATION, Generation, WorkerId
from resurgence.storage.private_files import make_private_folder
from resurgence.worker.messages import (
    ExecutorsListed,
    FromWorker,
    Heartbeat,
    StandBy,
    StandbyReady,
)

_DRAIN_TIMEOUT = timedelta(seconds=1)
_STANDBY_POLL = timedelta(milliseconds=200)
_STANDBY_DEADLINE = timedelta(minutes=3)
"""A standby that is not ready by then is replaced."""
_STANDBY_PAUSE = timedelta(seconds=5)
"""From the last acquire to the start of a standby, and between two starts, because a job that just
got a worker needs the machine more.
"""

LogFile = Callable[[WorkerId], Path]

_LONGEST_STANDBY_PAUSE = timedelta(minutes=5)

log = logging.getLogger("resurgence.control")


class Origin(StrEnum):
    """How a job acquired its worker."""

    STARTED = "started"
    STANDBY = "standby"
    IN_PLACE = "in_place"
    ADOPTED = "adopted"


@dataclass
class WorkerHandle:
    """A worker and its owner."""

    worker: WorkerId
    generation: Generation
    digest: str
    """The digest of its token."""
    log_file: Path
    spark: dict[str, str]
    """The configuration with which its Spark was started; it cannot change later."""
    started_at: datetime
    last_heard_at: datetime
    last_heard: datetime
    """The same on the detector's clock, which stops while the controller is paused."""
    receive: Receive
    exited: Exited
    token: str = ""
    process: ScheduledWorker | None = None
    ready: bool = False
    ended: bool = False
    phase: str = "start"
    executors: tuple[Executor, ...] = ()
    """Of a cluster; removed ones included."""

    @property
    def record(self) -> WorkerRecord:
        return WorkerRecord(self.worker, self.generation, self.pid, self.digest)

    @property
    def pid(self) -> int:
        return self.process.pid if self.process else 0


@dataclass
class WorkerPool:
    """Provides workers to the jobs of one controller."""

    scheduler: WorkerScheduler
    clock: Clock
    channel: ControlChannel = field(default_factory=ControlChannel)
    patience: timedelta = timedelta(0)
    """How long workers continue without this controller."""
    standby: int = 0
    standby_settings: Settings = field(default_factory=Settings)
    log_folder: Path = Path()
    port: int = 0
    standby_ready: Callable[[WorkerHandle, dict[str, float]], None] = lambda _handle, _spent: None
    """Called when a standby is warm, with the seconds that each step took."""

    def __post_init__(self) -> None:
        self.address: tuple[str, int] | None = None
        self._handles: dict[WorkerId, WorkerHandle] = {}
        self._standbys: list[WorkerHandle] = []
        self._acquired_at = datetime.min.replace(tzinfo=UTC)
        self._standby_task: asyncio.Task[None] | None = None
        self.detector_clock = PauseAwareClock(self.clock)

    @property
    def handles(self) -> tuple[WorkerHandle, ...]:
        return tuple(self._handles.values())

    async def open(self) -> None:
        """Start to listen for workers and to maintain standbys."""
        if self.address is None:
            self.address = await self.channel.open(self.port)
            self.detector_clock.start()
            if self.standby:
                self._standby_task = asyncio.create_task(self._maintain_standbys())

    async def close(self) -> None:
        """End the standbys and close all other connections."""
        if self._standby_task is not None:
            self._standby_task.cancel()
            await asyncio.gather(self._standby_task, return_exceptions=True)
        for handle in list(self._standbys):
            await self.end(handle)
        await self.channel.close()
        await self.scheduler.close()
        self.detector_clock.close()

    # ---------------------------------------------------------------- for a job

    async def acquire(
        self,
        generation: Generation,
        spark: dict[str, str],
        log_file: LogFile,
        receive: Receive,
        exited: Exited,
    ) -> tuple[WorkerHandle, Origin]:
        """Return a worker for a generation: a matching standby, or else a new process."""
        self._acquired_at = self.clock.now()
        fits = [
            each for each in self._standbys if self._is_healthy(each) and serves(each.spark, spark)
        ]
        if fits:
            handle = fits[0]
            self._standbys.remove(handle)
            self.retask(handle, generation, receive, exited)
            _link_log(handle, log_file(handle.worker))
            return handle, Origin.STANDBY
        worker = WorkerId(f"worker-{uuid.uuid4().hex[:8]}")
        handle = await self._start(worker, generation, spark, log_file, receive, exited)
        return handle, Origin.STARTED

    def retask(
        self, handle: WorkerHandle, generation: Generation, receive: Receive, exited: Exited
    ) -> None:
        """Move a worker to another generation, and possibly to another owner."""
        handle.receive, handle.exited, handle.generation = receive, exited, generation
        handle.token = self.channel.expect(handle.worker, generation, self._receiver(handle.worker))
        handle.digest = token_digest(handle.token)

    def adopt(
        self,
        record: WorkerRecord,
        spark: dict[str, str],
        log_file: LogFile,
        receive: Receive,
        exited: Exited,
    ) -> WorkerHandle:
        """Expect a worker that another controller started. Call this before the channel listens,
        because it dismisses unexpected workers. The caller waits for the worker to connect.
        """
        worker, digest = record.worker, record.token_digest
        handle = self._register(worker, record.generation, digest, spark, log_file, receive, exited)
        handle.process = self.scheduler.adopt(worker, record.pid, self._exited)
        self.channel.expect_again(worker, record.generation, digest, self._receiver(worker))
        return handle

    async def end_stray(self, record: WorkerRecord) -> None:
        """End a worker of this machine that another controller started and may still hold."""
        await self.scheduler.adopt(record.worker, record.pid, _ignore_exit).tear_down()

    async def end(self, handle: WorkerHandle) -> None:
        """End the process of a worker, without a notification of its owner."""
        handle.exited = _ignore_exit
        if handle.process is not None:
            await handle.process.tear_down()
        self._remove(handle)

    def _remove(self, handle: WorkerHandle) -> None:
        self.channel.disconnect(handle.worker)
        self._handles.pop(handle.worker, None)
        if handle in self._standbys:
            self._standbys.remove(handle)
            # It never had a job, so no one can request its log.
            handle.log_file.unlink(missing_ok=True)

    async def _start(
        self,
        worker: WorkerId,
        generation: Generation,
        spark: dict[str, str],
        log_file: LogFile,
        receive: Receive,
        exited: Exited,
    ) -> WorkerHandle:
        await self.open()
        assert self.address is not None
        token = self.channel.expect(worker, generation, self._receiver(worker))
        digest = token_digest(token)
        handle = self._register(worker, generation, digest, spark, log_file, receive, exited)
        handle.token = token
        order = WorkerOrder(worker, generation, self.address, token, handle.log_file, spark)
        try:
            handle.process = await self.scheduler.start(order, self._exited)
        except BaseException:
            self._remove(handle)
            raise
        return handle

    def _register(
        self,
        worker: WorkerId,
        generation: Generation,
        digest: str,
        spark: dict[str, str],
        log_file: LogFile,
        receive: Receive,
        exited: Exited,
    ) -> WorkerHandle:
        now = self.clock.now()
        handle = WorkerHandle(
            worker=worker,
            generation=generation,
            digest=digest,
            log_file=log_file(worker),
            spark=spark,
            started_at=now,
            last_heard_at=now,
            last_heard=self.detector_clock.now(),
            receive=receive,
            exited=exited,
        )
        self._handles[worker] = handle
        return handle

    def _receiver(self, worker: WorkerId) -> Receive:
        def receive(message: FromWorker) -> None:
            handle = self._handles.get(worker)
            if handle is None:
                return
            handle.last_heard_at, handle.last_heard = self.clock.now(), self.detector_clock.now()
            if isinstance(message, Heartbeat):
                handle.phase = message.phase
            if isinstance(message, ExecutorsListed):
                handle.executors = message.executors
            handle.receive(message)

        return receive

    async def _exited(self, worker: WorkerId, status: int | None) -> None:
        # The last messages of the worker may still be in flight.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_TIMEOUT.total_seconds()):
                await self.channel.drained(worker)
        handle = self._handles.get(worker)
        if handle is None:
            return
        handle.ended = True
        await handle.exited(worker, status)
        self._remove(handle)

    # ---------------------------------------------------------------- standbys

    def _is_healthy(self, handle: WorkerHandle) -> bool:
        silent_for = self.detector_clock.now() - handle.last_heard
        return handle.ready and silent_for < self.standby_settings.pipeline.heartbeat_timeout

    async def _maintain_standbys(self) -> None:
        """Maintain the configured number of standbys. One that exits, falls silent or does not
        become ready is replaced.
        """
        pause = _STANDBY_PAUSE
        while True:
            if any(each.ready for each in self._standbys):
                pause = _STANDBY_PAUSE
            for handle in [each for each in self._standbys if not self._is_healthy(each)]:
                if handle.ready or self.clock.now() - handle.started_at > _STANDBY_DEADLINE:
                    log.warning("standby %s is unhealthy; replacing it", handle.worker)
                    await self.end(handle)
            may_start = self.clock.now() - self._acquired_at >= _STANDBY_PAUSE
            if may_start and len(self._standbys) < self.standby:
                try:
                    await self._start_standby()
                except ResurgenceError as error:
                    log.warning("cannot start a standby: %s", error.message)
                await asyncio.sleep(pause.total_seconds())
                # Back off until one becomes ready, so as not to add to what prevents it.
                pause = min(pause * 2, _LONGEST_STANDBY_PAUSE)
            await asyncio.sleep(_STANDBY_POLL.total_seconds())

    async def _start_standby(self) -> None:
        worker = WorkerId(f"standby-{uuid.uuid4().hex[:8]}")

        def receive(message: FromWorker) -> None:
            if isinstance(message, StandbyReady):
                handle.ready = True
                self.standby_ready(handle, message.seconds)

        async def exited(_worker: WorkerId, _status: int | None) -> None:
            log.warning("standby %s exited", worker)

        # The next job may need the jars of a connector.
        jars = await in_thread(ready_jars, self.standby_settings.connectors.jars)
        handle = await self._start(
            worker,
            NO_GENERATION,
            with_jars(self.standby_settings.spark, jars),
            lambda name: self.log_folder / f"{name}.log",
            receive,
            exited,
        )
        self._standbys.append(handle)
        give_up_at = self.clock.now() + _STANDBY_DEADLINE
        while not self.channel.is_connected(worker) and self.clock.now() < give_up_at:
            if handle.ended:
                return
            await asyncio.sleep(_STANDBY_POLL.total_seconds() / 4)
        await self.channel.send(worker, StandBy(settings=self.standby_settings))


async def _ignore_exit(_worker: WorkerId, _status: int | None) -> None:
    return


def _link_log(handle: WorkerHandle, place: Path) -> None:
    """Link a standby's log into the log folder of its job."""
    with contextlib.suppress(OSError):
        make_private_folder(place.parent)
        place.symlink_to(handle.log_file.absolute())
