"""Simulated workers that outlive their controller: each speaks the real protocol over the real
channel, reconnects after a lost connection as a real one does, and can be frozen and killed.

A `World` holds them while controllers start and stop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from resurgence.control.workers.scheduler import (
    Exited,
    ProcessScheduler,
    WorkerOrder,
    WorkerProcess,
)
from resurgence.errors import ErrorDomain, ResurgenceError, RetryHint
from resurgence.ids import Epoch, JobName, OperatorId, WorkerId
from resurgence.state.records import EpochCounts
from resurgence.worker.connection import CONTROLLER_LOST
from resurgence.worker.messages import (
    TO_WORKER,
    Dismissed,
    EpochCommitted,
    EpochSealed,
    EpochStarted,
    Heartbeat,
    InputFinished,
    StandBy,
    StandbyReady,
    StartExecution,
    StateRestored,
    StopAfterEpoch,
    TaskFailedEvent,
    WorkerConnected,
    WorkerMessage,
    WorkerStopped,
    encode,
)

_T = TypeVar("_T")

BEAT_SECONDS = 0.05
KILLED = -9


class SimulatedWorker:
    """One worker process, seen from outside."""

    def __init__(self, world: World, order: WorkerOrder, script: Script, pid: int) -> None:
        self.name = order.worker
        self.pid = pid
        self.orders: list[StandBy | StartExecution] = []
        self.stop_asked = asyncio.Event()
        self.silent = False
        """It lives, and sends no heartbeats."""
        self._world = world
        self._script = script
        self._address = order.address
        self._generation = order.generation
        self._token = order.token
        self._patience = timedelta(0)
        self._epoch = Epoch(0)
        self._runs = False
        self._last_word: WorkerMessage | None = None
        self._kept: list[WorkerMessage] = []
        self._writer: asyncio.StreamWriter | None = None
        self._ordered: asyncio.Queue[StandBy | StartExecution] = asyncio.Queue()
        self._awake = asyncio.Event()
        self._awake.set()
        self.life = world.spawn(self._live())

    def __repr__(self) -> str:
        return f"{self.name} of generation {self._generation}"

    @property
    def job(self) -> JobName | None:
        last = self.orders[-1] if self.orders else None
        return last.job if isinstance(last, StartExecution) else None

    @property
    def started(self) -> list[StartExecution]:
        """The orders to run a job that it got."""
        return [each for each in self.orders if isinstance(each, StartExecution)]

    @property
    def is_alive(self) -> bool:
        return not self.life.done()

    @property
    def is_connected(self) -> bool:
        return self._writer is not None

    @property
    def exit_status(self) -> int:
        # One that was killed before it drew breath says nothing itself.
        return KILLED if self.life.cancelled() else self.life.result()

    @property
    def is_well(self) -> bool:
        return self.is_alive and self._awake.is_set() and self._runs and self._writer is not None

    def kill(self) -> None:
        self.life.cancel()

    def freeze(self) -> None:
        """Neither says nor hears anything from now on; its connection stays."""
        self._awake.clear()

    # ---------------------------------------------------------------- what scripts do

    async def run_epoch(self) -> None:
        """Start, seal and commit the next epoch."""
        self._epoch = Epoch(self._epoch + 1)
        who = {"worker": self.name, "generation": self._generation, "epoch": self._epoch}
        sealed = {"rows": 10, "bytes": 1, "state_bytes": 1, "seconds": 0.1, "watermark": None}
        counts = {"counts": EpochCounts()}
        await self.say(EpochStarted.model_validate({**who, "rows": 10}))
        await self.say(EpochSealed.model_validate({**who, **sealed, **counts}))
        await self.say(EpochCommitted.model_validate(who))

    async def stop_when_told(self) -> int:
        await self.stop_asked.wait()
        await self._world.may_stop.wait()
        await self._say_last(
            WorkerStopped(worker=self.name, generation=self._generation, epoch=self._epoch)
        )
        return 0

    async def finish(self) -> int:
        await self._say_last(
            InputFinished(worker=self.name, generation=self._generation, epoch=self._epoch)
        )
        return 0

    async def fail(
        self, error: str, retry_hint: RetryHint, domain: ErrorDomain, *, usable: bool = False
    ) -> int | None:
        """Report a failure; then leave, or wait for another order."""
        self._runs = False
        await self._say_last(
            TaskFailedEvent(
                worker=self.name,
                generation=self._generation,
                operator=OperatorId("source-1"),
                subtask=1,
                epoch=Epoch(self._epoch + 1),
                error=error,
                hint="fix it",
                code="task",
                domain=domain,
                retry_hint=retry_hint,
                worker_usable=usable,
            )
        )
        return None if usable else 1

    async def say(self, message: WorkerMessage) -> None:
        """Say something, now or when somebody listens again."""
        await self._awake.wait()
        if self._writer is not None:
            self._writer.write(encode(message))
        elif not isinstance(message, Heartbeat):
            self._kept.append(message)

    async def _say_last(self, message: WorkerMessage) -> None:
        self._last_word = message
        await self.say(message)

    # ---------------------------------------------------------------- life

    async def _live(self) -> int:
        talk = self._world.spawn(self._talk())
        beat = self._world.spawn(self._beat())
        work = self._world.spawn(self._work())
        try:
            await asyncio.wait([talk, work], return_when=asyncio.FIRST_COMPLETED)
            return work.result() if work.done() else CONTROLLER_LOST
        except asyncio.CancelledError:
            return KILLED
        finally:
            for task in (talk, beat, work):
                task.cancel()
            if self._writer is not None:
                self._writer.close()

    async def _work(self) -> int:
        while True:
            order = await self._ordered.get()
            self.orders.append(order)
            if isinstance(order, StandBy):
                await self.say(
                    StandbyReady(worker=self.name, generation=self._generation, seconds={})
                )
                continue
            self._generation, self._token = order.plan.generation, order.token
            self._patience, self._epoch = order.patience, order.plan.epoch
            self._last_word = None
            await self._world.may_restore.wait()
            self._runs = True
            await self.say(self._standing())
            status = await self._script(self)
            if status is not None:
                while self._writer is None:
                    await asyncio.sleep(BEAT_SECONDS)
                await self._writer.drain()
                return status

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            if self.orders and not self.silent:
                await self.say(
                    Heartbeat(
                        worker=self.name,
                        generation=self._generation,
                        epoch=self._epoch,
                        phase="idle" if self._runs else "start",
                        phase_seconds=0.0,
                    )
                )

    async def _talk(self) -> None:
        """Keep the connection; return when the other end was gone for too long."""
        reader: asyncio.StreamReader | None = None
        with contextlib.suppress(OSError):
            reader = await self._connected()
        while reader is not None:
            with contextlib.suppress(OSError):
                while line := await reader.readline():
                    await self._awake.wait()
                    match TO_WORKER.validate_json(line):
                        case StandBy() | StartExecution() as order:
                            self._ordered.put_nowait(order)
                        case StopAfterEpoch():
                            self.stop_asked.set()
                        case Dismissed():
                            return
            if self._writer is not None:
                self._writer.close()
                self._writer = None
            await self._awake.wait()
            reader = await self._connected_anew()

    async def _connected(self) -> asyncio.StreamReader:
        reader, self._writer = await asyncio.open_connection(*self._address)
        name = WorkerConnected(
            worker=self.name, generation=self._generation, token=self._token, pid=self.pid
        )
        last = [self._last_word] if self._last_word else []
        standing = [self._standing()] if self._runs else []
        for each in (name, *self._kept, *standing, *last):
            self._writer.write(encode(each))
        self._kept.clear()
        return reader

    async def _connected_anew(self) -> asyncio.StreamReader | None:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._patience.total_seconds()
        while loop.time() < give_up_at:
            await self._awake.wait()
            try:
                return await self._connected()
            except OSError:
                await asyncio.sleep(0.02)
        return None

    def _standing(self) -> StateRestored:
        return StateRestored(
            worker=self.name, generation=self._generation, epoch=self._epoch, seconds={}
        )


Script = Callable[[SimulatedWorker], Awaitable[int | None]]
"""What a worker does once its state is restored: its exit status, or None to take another order."""


async def works(worker: SimulatedWorker) -> int:
    await worker.run_epoch()
    return await worker.stop_when_told()


async def ignores_orders(worker: SimulatedWorker) -> int:
    await worker.run_epoch()
    await asyncio.Event().wait()
    return 0


async def finishes(worker: SimulatedWorker) -> int:
    await worker.run_epoch()
    return await worker.finish()


async def fails_for_good(worker: SimulatedWorker) -> int | None:
    return await worker.fail("line 3 is not JSON", RetryHint.NO_RETRY, ErrorDomain.USER)


async def fails(worker: SimulatedWorker) -> int | None:
    return await worker.fail("out of memory", RetryHint.WITH_BACKOFF, ErrorDomain.INTERNAL)


async def fails_and_stays(worker: SimulatedWorker) -> int | None:
    return await worker.fail(
        "a task failed", RetryHint.WITH_BACKOFF, ErrorDomain.INTERNAL, usable=True
    )


async def fails_in_storage(worker: SimulatedWorker) -> int | None:
    return await worker.fail("no route", RetryHint.WITH_BACKOFF, ErrorDomain.EXTERNAL)


class World:
    """The workers that there are, whichever controller started them."""

    def __init__(self) -> None:
        self.workers: list[SimulatedWorker] = []
        self.scripts: list[Script] = [works]
        """One for each worker; the last one holds for all that come after."""
        self.may_restore = asyncio.Event()
        self.may_stop = asyncio.Event()
        self.may_die = asyncio.Event()
        self.open_gates()
        self.dying = 0
        """So many are being torn down."""
        self.befalls_next: Callable[[SimulatedWorker], None] | None = None
        """What happens to the next worker that is started."""
        self.refusals: list[ResurgenceError] = []
        """How the next attempts to start a worker fail."""
        self.tasks: set[asyncio.Task[Any]] = set()

    @property
    def alive(self) -> list[SimulatedWorker]:
        return [each for each in self.workers if each.is_alive]

    def open_gates(self) -> None:
        """Let workers do what is asked of them."""
        for gate in (self.may_restore, self.may_stop, self.may_die):
            gate.set()

    def spawn(self, coroutine: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """A task of the world: it goes on when a controller is killed."""
        task = asyncio.create_task(coroutine)
        self.tasks.add(task)
        return task

    def start(self, order: WorkerOrder) -> SimulatedWorker:
        script = self.scripts[min(len(self.workers), len(self.scripts) - 1)]
        worker = SimulatedWorker(self, order, script, 1000 + len(self.workers))
        self.workers.append(worker)
        befalls, self.befalls_next = self.befalls_next, None
        if befalls is not None:
            befalls(worker)
        return worker


class SimulatedProcess(WorkerProcess):
    """A worker of the world, as a controller holds it."""

    def __init__(
        self, scheduler: SimulatedScheduler, worker: SimulatedWorker, *, child: bool
    ) -> None:
        self.pid = worker.pid
        self._scheduler = scheduler
        self._worker = worker
        self._child = child

    async def wait(self) -> int | None:
        await asyncio.wait([self._worker.life])
        return self._worker.exit_status if self._child else None

    async def tear_down(self) -> None:
        if self._scheduler.severed:
            return
        self._scheduler.world.dying += 1
        try:
            await self._scheduler.world.may_die.wait()
        finally:
            self._scheduler.world.dying -= 1
        self._worker.kill()
        await self.wait()


class SimulatedScheduler(ProcessScheduler):
    """One controller's hold on the world."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.severed = False
        """The controller was killed: it does nothing to anyone any more."""

    async def start(self, order: WorkerOrder, exited: Exited) -> WorkerProcess:
        if self.world.refusals:
            raise self.world.refusals.pop()
        process = SimulatedProcess(self, self.world.start(order), child=True)
        self.watch(order.worker, process, exited)
        return process

    def adopt(self, worker: WorkerId, pid: int, exited: Exited) -> WorkerProcess:
        found = [each for each in self.world.workers if (each.name, each.pid) == (worker, pid)]
        process = SimulatedProcess(self, found[0], child=False)
        self.watch(worker, process, exited)
        return process
