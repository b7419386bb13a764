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
from resurgence.control.detection.listening_clock import ListeningClock
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
"""From the last hire to the start of a standby, and between two starts: a job that just got a worker
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
class Hand:
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
class Workforce:
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
    standby_ready: Callable[[Hand, dict[str, float]], None] = lambda _hand, _seconds: None
    """Called when a standby is started and warm, with what that took."""

    def __post_init__(self) -> None:
        self.address: tuple[str, int] | None = None
        self._hands: dict[WorkerId, Hand] = {}
        self._bench: list[Hand] = []
        self._hired_at = datetime.min.replace(tzinfo=UTC)
        self._bench_task: asyncio.Task[None] | None = None
        self.listening = ListeningClock(self.clock)

    @property
    def hands(self) -> tuple[Hand, ...]:
        return tuple(self._hands.values())

    async def open(self) -> None:
        """Begin to listen for workers, and to keep standbys."""
        if self.address is None:
            self.address = await self.channel.open(self.port)
            self.listening.start()
            if self.standby:
                self._bench_task = asyncio.create_task(self._keep_bench())

    async def close(self) -> None:
        """End the standbys and hang up on all others."""
        if self._bench_task is not None:
            self._bench_task.cancel()
            await asyncio.gather(self._bench_task, return_exceptions=True)
        for hand in list(self._bench):
            await self.end(hand)
        await self.channel.close()
        await self.scheduler.close()
        self.listening.close()

    # ---------------------------------------------------------------- for a job

    async def hire(
        self,
        generation: Generation,
        spark: dict[str, str],
        log_file: LogFile,
        receive: Receive,
        exited: Exited,
    ) -> tuple[Hand, Origin]:
        """A worker for a generation: a standby if there is one that fits, else a new process."""
        self._hired_at = self.clock.now()
        fits = [each for each in self._bench if self._is_well(each) and each.spark == spark]
        if fits:
            hand = fits[0]
            self._bench.remove(hand)
            self.retask(hand, generation, receive, exited)
            _show_log(hand, log_file(hand.worker))
            return hand, Origin.STANDBY
        worker = WorkerId(f"worker-{uuid.uuid4().hex[:8]}")
        hand = await self._start(worker, generation, spark, log_file, receive, exited)
        return hand, Origin.STARTED

    def retask(self, hand: Hand, generation: Generation, receive: Receive, exited: Exited) -> None:
        """Let a worker be of another generation, and perhaps of another owner."""
        hand.receive, hand.exited, hand.generation = receive, exited, generation
        hand.token = self.channel.expect(hand.worker, generation, self._hears(hand.worker))
        hand.digest = token_digest(hand.token)

    def adopt(
        self,
        record: WorkerRecord,
        spark: dict[str, str],
        log_file: LogFile,
        receive: Receive,
        exited: Exited,
    ) -> Hand:
        """Expect a worker that another controller started; before this one listens, for whoever
        is not expected is dismissed. Whether it comes is the caller's to wait for.
        """
        worker, digest = record.worker, record.token_digest
        hand = self._register(worker, record.generation, digest, spark, log_file, receive, exited)
        hand.process = self.scheduler.adopt(worker, record.pid, self._exited)
        self.channel.expect_again(worker, record.generation, digest, self._hears(worker))
        return hand

    async def end(self, hand: Hand) -> None:
        """Make sure that its process is gone. Its owner knows, and is not told."""
        hand.exited = _not_told
        if hand.process is not None:
            await hand.process.tear_down()
        self._forget(hand)

    def _forget(self, hand: Hand) -> None:
        self.channel.forget(hand.worker)
        self._hands.pop(hand.worker, None)
        if hand in self._bench:
            self._bench.remove(hand)
            # It never had a job that its log could be asked for.
            hand.log_file.unlink(missing_ok=True)

    async def _start(
        self,
        worker: WorkerId,
        generation: Generation,
        spark: dict[str, str],
        log_file: LogFile,
        receive: Receive,
        exited: Exited,
    ) -> Hand:
        await self.open()
        assert self.address is not None
        token = self.channel.expect(worker, generation, self._hears(worker))
        digest = token_digest(token)
        hand = self._register(worker, generation, digest, spark, log_file, receive, exited)
        hand.token = token
        order = WorkerOrder(worker, generation, self.address, token, hand.log_file, spark)
        try:
            hand.process = await self.scheduler.start(order, self._exited)
        except BaseException:
            self._forget(hand)
            raise
        return hand

    def _register(
        self,
        worker: WorkerId,
        generation: Generation,
        digest: str,
        spark: dict[str, str],
        log_file: LogFile,
        receive: Receive,
        exited: Exited,
    ) -> Hand:
        now = self.clock.now()
        hand = Hand(
            worker=worker,
            generation=generation,
            digest=digest,
            log_file=log_file(worker),
            spark=spark,
            started_at=now,
            last_heard_at=now,
            last_heard=self.listening.now(),
            receive=receive,
            exited=exited,
        )
        self._hands[worker] = hand
        return hand

    def _hears(self, worker: WorkerId) -> Receive:
        def receive(message: FromWorker) -> None:
            hand = self._hands.get(worker)
            if hand is None:
                return
            hand.last_heard_at, hand.last_heard = self.clock.now(), self.listening.now()
            if isinstance(message, Heartbeat):
                hand.phase = message.phase
            hand.receive(message)

        return receive

    async def _exited(self, worker: WorkerId, status: int | None) -> None:
        # The last words of a worker may still be on their way.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS.total_seconds()):
                await self.channel.drained(worker)
        hand = self._hands.get(worker)
        if hand is None:
            return
        hand.ended = True
        await hand.exited(worker, status)
        self._forget(hand)

    # ---------------------------------------------------------------- the bench

    def _is_well(self, hand: Hand) -> bool:
        silent_for = self.listening.now() - hand.last_heard
        return hand.ready and silent_for < self.standby_settings.pipeline.heartbeat_timeout

    async def _keep_bench(self) -> None:
        """Keep as many standbys as are wanted; one that dies, falls silent or does not get ready is
        replaced.
        """
        pause = _STANDBY_PAUSE
        while True:
            if any(each.ready for each in self._bench):
                pause = _STANDBY_PAUSE
            for hand in [each for each in self._bench if not self._is_well(each)]:
                if hand.ready or self.clock.now() - hand.started_at > _STANDBY_DEADLINE:
                    log.warning("the standby %s is not well; it is replaced", hand.worker)
                    await self.end(hand)
            rested = self.clock.now() - self._hired_at >= _STANDBY_PAUSE
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
                hand.ready = True
                self.standby_ready(hand, message.seconds)

        async def exited(_worker: WorkerId, _status: int | None) -> None:
            log.warning("the standby %s ended", worker)

        hand = await self._start(
            worker,
            NO_GENERATION,
            dict(self.standby_settings.spark),
            lambda name: self.log_folder / f"{name}.log",
            receive,
            exited,
        )
        self._bench.append(hand)
        give_up_at = self.clock.now() + _STANDBY_DEADLINE
        while not self.channel.is_connected(worker) and self.clock.now() < give_up_at:
            if hand.ended:
                return
            await asyncio.sleep(_BENCH_LOOK.total_seconds() / 4)
        await self.channel.send(worker, StandBy(settings=self.standby_settings))


async def _not_told(_worker: WorkerId, _status: int | None) -> None:
    return


def _show_log(hand: Hand, place: Path) -> None:
    """Let a standby's log be found among those of the job that took it."""
    with contextlib.suppress(OSError):
        make_private_folder(place.parent)
        place.symlink_to(hand.log_file.absolute())
