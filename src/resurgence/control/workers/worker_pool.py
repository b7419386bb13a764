"""The workers of a controller: started when a job needs one, kept warm as a standby, taken over from
a controller of before.

A worker has one owner at a time: the job it works for, or the bench of standbys, which all jobs of
the controller share. Who owns it gets what it says and hears of its end.
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
from resurgence.control.detection.pause_aware_clock import PauseAwareClock
from resurgence.control.jobs.job_record import WorkerRecord
from resurgence.control.workers.channel import ControlChannel, Receive, token_digest
from resurgence.control.workers.scheduler import (
    Exited,
    ProcessScheduler,
    WorkerOrder,
    WorkerProcess,
)
from resurgence.errors import ResurgenceError
from resurgence.ids import NO_GENERATION, Generation, WorkerId
from resurgence.storage.private_files import make_private_folder
from resurgence.worker.messages import FromWorker, Heartbeat, StandBy, StandbyReady

_LAST_WORDS = timedelta(seconds=1)
_BENCH_LOOK = timedelta(milliseconds=200)
_STANDBY_DEADLINE = timedelta(minutes=3)
"""A standby that is not ready by then is ended, and another one started."""
_STANDBY_PAUSE = timedelta(seconds=5)
"""From the last acquire to the start of a standby, and between two starts: a job that just got a worker
needs the machine more.
"""

LogFile = Callable[[WorkerId], Path]

_LONGEST_STANDBY_PAUSE = timedelta(minutes=5)

log = logging.getLogger("resurgence.control")


class Origin(StrEnum):
    """How a job came by its worker."""

    STARTED = "started"
    STANDBY = "standby"
    IN_PLACE = "in_place"
    ADOPTED = "adopted"


@dataclass
class WorkerHandle:
    """A worker, and who owns it."""

    worker: WorkerId
    generation: Generation
    digest: str
    """Of its token."""
    log_file: Path
    spark: dict[str, str]
    """What its Spark was started with: it cannot be changed later."""
    started_at: datetime
    last_heard_at: datetime
    last_heard: datetime
    """The same by the clock that stands still while the controller does."""
    receive: Receive
    exited: Exited
    token: str = ""
    process: WorkerProcess | None = None
    ready: bool = False
    ended: bool = False
    phase: str = "start"

    @property
    def record(self) -> WorkerRecord:
        return WorkerRecord(self.worker, self.generation, self.pid, self.digest)

    @property
    def pid(self) -> int:
        return self.process.pid if self.process else 0


@dataclass
class WorkerPool:
    """Gives workers to the jobs of one controller."""

    scheduler: ProcessScheduler
    clock: Clock
    channel: ControlChannel = field(default_factory=ControlChannel)
    patience: timedelta = timedelta(0)
    """How long workers go on without this controller."""
    standby: int = 0
    standby_settings: Settings = field(default_factory=Settings)
    log_folder: Path = Path()
    port: int = 0
    standby_ready: Callable[[WorkerHandle, dict[str, float]], None] = lambda _hand, _seconds: None
    """Called when a standby is started and warm, with what that took."""

    def __post_init__(self) -> None:
        self.address: tuple[str, int] | None = None
        self._handles: dict[WorkerId, WorkerHandle] = {}
        self._bench: list[WorkerHandle] = []
        self._acquired_at = datetime.min.replace(tzinfo=UTC)
        self._bench_task: asyncio.Task[None] | None = None
        self.detector_clock = PauseAwareClock(self.clock)

    @property
    def handles(self) -> tuple[WorkerHandle, ...]:
        return tuple(self._handles.values())

    async def open(self) -> None:
        """Begin to listen for workers, and to keep standbys."""
        if self.address is None:
            self.address = await self.channel.open(self.port)
            self.detector_clock.start()
            if self.standby:
                self._bench_task = asyncio.create_task(self._keep_bench())

    async def close(self) -> None:
        """End the standbys and hang up on all others."""
        if self._bench_task is not None:
            self._bench_task.cancel()
            await asyncio.gather(self._bench_task, return_exceptions=True)
        for handle in list(self._bench):
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
        """A worker for a generation: a standby if there is one that fits, else a new process."""
        self._acquired_at = self.clock.now()
        fits = [each for each in self._bench if self._is_well(each) and each.spark == spark]
        if fits:
            handle = fits[0]
            self._bench.remove(handle)
            self.retask(handle, generation, receive, exited)
            _show_log(handle, log_file(handle.worker))
            return handle, Origin.STANDBY
        worker = WorkerId(f"worker-{uuid.uuid4().hex[:8]}")
        handle = await self._start(worker, generation, spark, log_file, receive, exited)
        return handle, Origin.STARTED

    def retask(
        self, handle: WorkerHandle, generation: Generation, receive: Receive, exited: Exited
    ) -> None:
        """Let a worker be of another generation, and perhaps of another owner."""
        handle.receive, handle.exited, handle.generation = receive, exited, generation
        handle.token = self.channel.expect(handle.worker, generation, self._hears(handle.worker))
        handle.digest = token_digest(handle.token)

    def adopt(
        self,
        record: WorkerRecord,
        spark: dict[str, str],
        log_file: LogFile,
        receive: Receive,
        exited: Exited,
    ) -> WorkerHandle:
        """Expect a worker that another controller started; before this one listens, for whoever
        is not expected is dismissed. Whether it comes is the caller's to wait for.
        """
        worker, digest = record.worker, record.token_digest
        handle = self._register(worker, record.generation, digest, spark, log_file, receive, exited)
        handle.process = self.scheduler.adopt(worker, record.pid, self._exited)
        self.channel.expect_again(worker, record.generation, digest, self._hears(worker))
        return handle

    async def end(self, handle: WorkerHandle) -> None:
        """Make sure that its process is gone. Its owner knows, and is not told."""
        handle.exited = _not_told
        if handle.process is not None:
            await handle.process.tear_down()
        self._forget(handle)

    def _forget(self, handle: WorkerHandle) -> None:
        self.channel.forget(handle.worker)
        self._handles.pop(handle.worker, None)
        if handle in self._bench:
            self._bench.remove(handle)
            # It never had a job that its log could be asked for.
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
        token = self.channel.expect(worker, generation, self._hears(worker))
        digest = token_digest(token)
        handle = self._register(worker, generation, digest, spark, log_file, receive, exited)
        handle.token = token
        order = WorkerOrder(worker, generation, self.address, token, handle.log_file, spark)
        try:
            handle.process = await self.scheduler.start(order, self._exited)
        except BaseException:
            self._forget(handle)
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

    def _hears(self, worker: WorkerId) -> Receive:
        def receive(message: FromWorker) -> None:
            handle = self._handles.get(worker)
            if handle is None:
                return
            handle.last_heard_at, handle.last_heard = self.clock.now(), self.detector_clock.now()
            if isinstance(message, Heartbeat):
                handle.phase = message.phase
            handle.receive(message)

        return receive

    async def _exited(self, worker: WorkerId, status: int | None) -> None:
        # The last words of a worker may still be on their way.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS.total_seconds()):
                await self.channel.drained(worker)
        handle = self._handles.get(worker)
        if handle is None:
            return
        handle.ended = True
        await handle.exited(worker, status)
        self._forget(handle)

    # ---------------------------------------------------------------- the bench

    def _is_well(self, handle: WorkerHandle) -> bool:
        silent_for = self.detector_clock.now() - handle.last_heard
        return handle.ready and silent_for < self.standby_settings.pipeline.heartbeat_timeout

    async def _keep_bench(self) -> None:
        """Keep as many standbys as are wanted; one that dies, falls silent or does not get ready is
        replaced.
        """
        pause = _STANDBY_PAUSE
        while True:
            if any(each.ready for each in self._bench):
                pause = _STANDBY_PAUSE
            for handle in [each for each in self._bench if not self._is_well(each)]:
                if handle.ready or self.clock.now() - handle.started_at > _STANDBY_DEADLINE:
                    log.warning("the standby %s is not well; it is replaced", handle.worker)
                    await self.end(handle)
            rested = self.clock.now() - self._acquired_at >= _STANDBY_PAUSE
            if rested and len(self._bench) < self.standby:
                try:
                    await self._bench_one()
                except ResurgenceError as error:
                    log.warning("no standby: %s", error.message)
                await asyncio.sleep(pause.total_seconds())
                # Until one gets ready, whatever keeps them from it is not made worse.
                pause = min(pause * 2, _LONGEST_STANDBY_PAUSE)
            await asyncio.sleep(_BENCH_LOOK.total_seconds())

    async def _bench_one(self) -> None:
        worker = WorkerId(f"standby-{uuid.uuid4().hex[:8]}")

        def receive(message: FromWorker) -> None:
            if isinstance(message, StandbyReady):
                handle.ready = True
                self.standby_ready(handle, message.seconds)

        async def exited(_worker: WorkerId, _status: int | None) -> None:
            log.warning("the standby %s ended", worker)

        handle = await self._start(
            worker,
            NO_GENERATION,
            dict(self.standby_settings.spark),
            lambda name: self.log_folder / f"{name}.log",
            receive,
            exited,
        )
        self._bench.append(handle)
        give_up_at = self.clock.now() + _STANDBY_DEADLINE
        while not self.channel.is_connected(worker) and self.clock.now() < give_up_at:
            if handle.ended:
                return
            await asyncio.sleep(_BENCH_LOOK.total_seconds() / 4)
        await self.channel.send(worker, StandBy(settings=self.standby_settings))


async def _not_told(_worker: WorkerId, _status: int | None) -> None:
    return


def _show_log(handle: WorkerHandle, place: Path) -> None:
    """Let a standby's log be found among those of the job that took it."""
    with contextlib.suppress(OSError):
        make_private_folder(place.parent)
        place.symlink_to(handle.log_file.absolute())
