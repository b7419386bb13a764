"""A thousand stand-in workers in one event loop.

Schedulers (`host_scheduler`) connect to a socket and order workers by line; each worker then has a
control connection of its own to its controller, and speaks the real protocol. The first epoch of
every generation is a real checkpoint in storage, so that a recovery has one to restore; the others
are messages only, because storing them is the work of workers, not of controllers.

A worker can be made to fail: it exits, as by SIGKILL, or goes silent with its connection open.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType

from resurgence.errors import ResurgenceError
from resurgence.ids import Epoch, Generation, JobName, WorkerId
from resurgence.worker.connection import CONTROLLER_LOST
from resurgence.worker.messages import (
    TO_WORKER,
    Message,
    StartExecution,
    StopAfterEpoch,
    encode,
)
from tests.stand_ins.script import StandInScript

KILLED = -9
_LONGEST_ORDER = 16 * 1024 * 1024
_STORING_THREADS = 2


class Fault(StrEnum):
    """How a worker fails."""

    EXIT = "exit"
    SILENCE = "silence"


@dataclass(frozen=True)
class InjectedFault:
    """A failure of a job's worker."""

    job: JobName
    fault: Fault
    at: float
    """Seconds since the epoch."""


class _Exit(Exception):
    """The worker exits by itself."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class HostedWorker:
    """One stand-in worker: a task."""

    def __init__(
        self, script: StandInScript, address: tuple[str, int], storing: ThreadPoolExecutor
    ) -> None:
        self._script = script
        self._address = address
        self._storing = storing
        self._is_silent = False
        self._writer: asyncio.StreamWriter | None = None
        self._stop = asyncio.Event()
        self.job: JobName | None = None

    @property
    def runs(self) -> bool:
        return self._script.runs and not self._is_silent

    def go_silent(self) -> None:
        self._is_silent = True

    async def run(self) -> int:
        """Run until it exits. Return its exit status."""
        try:
            reader, self._writer = await asyncio.open_connection(
                *self._address, limit=_LONGEST_ORDER
            )
        except OSError:
            return CONTROLLER_LOST
        tasks: set[asyncio.Task[None]] = set()
        try:
            self._say(self._script.connected())
            order = TO_WORKER.validate_json(await reader.readline())
            assert isinstance(order, StartExecution)
            self.job = order.job
            tasks = {
                asyncio.create_task(self._listen(reader)),
                asyncio.create_task(self._beat(order)),
                asyncio.create_task(self._execute(order)),
            }
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        except _Exit as exit_:
            return exit_.status
        except ResurgenceError as error:
            # It was fenced out, or storage failed.
            self._say(self._script.failed(error))
            return 1
        except (OSError, ValueError):
            return CONTROLLER_LOST
        finally:
            self._script.runs = False
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._writer.close()
        return 0

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            if isinstance(TO_WORKER.validate_json(line), StopAfterEpoch):
                self._stop.set()
        raise _Exit(CONTROLLER_LOST)

    async def _beat(self, order: StartExecution) -> None:
        while True:
            self._say(self._script.heartbeat())
            await asyncio.sleep(order.settings.pipeline.heartbeat_interval.total_seconds())

    async def _execute(self, order: StartExecution) -> None:
        script = self._script
        script.accept(order)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._storing, script.restore)
        script.runs = True
        self._say(script.restored())
        is_first = True
        while not self._stop.is_set():
            epoch = Epoch(script.epoch + 1)
            self._say(script.started(epoch))
            if is_first:
                await loop.run_in_executor(self._storing, script.seal, epoch)
                await loop.run_in_executor(self._storing, script.commit, epoch)
                is_first = False
            self._say(script.sealed(epoch))
            script.epoch = epoch
            self._say(script.committed(epoch))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(order.settings.pipeline.epoch_interval.total_seconds()):
                    await self._stop.wait()
        self._say(script.stopped())
        raise _Exit(0)

    def _say(self, message: Message) -> None:
        assert self._writer is not None
        if not self._is_silent:
            self._writer.write(encode(message))


class WorkerHost:
    """Runs the workers that schedulers order, and makes them fail."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self._workers: dict[WorkerId, tuple[HostedWorker, asyncio.Task[int]]] = {}
        self._storing = ThreadPoolExecutor(_STORING_THREADS, thread_name_prefix="stand-in")
        self._server: asyncio.Server | None = None
        self._watchers: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> WorkerHost:
        self._server = await asyncio.start_unix_server(self._serve, str(self.socket))
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for _, task in self._workers.values():
            task.cancel()
        await asyncio.gather(*(task for _, task in self._workers.values()), return_exceptions=True)
        await asyncio.gather(*self._watchers, return_exceptions=True)
        self._storing.shutdown(cancel_futures=True)

    def running(self) -> list[JobName]:
        """Return the jobs whose workers run epochs."""
        return sorted(
            worker.job for worker, _ in self._workers.values() if worker.runs and worker.job
        )

    def fail(self, job: JobName, fault: Fault) -> InjectedFault:
        """Make the worker of a running job fail."""
        worker, task = next(each for each in self._workers.values() if each[0].job == job)
        if fault is Fault.EXIT:
            task.cancel()
        else:
            worker.go_silent()
        return InjectedFault(job, fault, time.time())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Obey one scheduler. Its workers survive it, as processes would."""
        while line := await reader.readline():
            order = json.loads(line)
            worker = WorkerId(order["worker"])
            if order["do"] == "start":
                self._start(worker, order, writer)
            elif worker in self._workers:
                self._workers[worker][1].cancel()
        writer.close()

    def _start(
        self, worker: WorkerId, order: dict[str, object], writer: asyncio.StreamWriter
    ) -> None:
        host, port = str(order["host"]), int(str(order["port"]))
        generation = Generation(int(str(order["generation"])))
        script = StandInScript(worker, generation, str(order["token"]), pid=0)
        hosted = HostedWorker(script, (host, port), self._storing)
        task = asyncio.create_task(hosted.run())
        self._workers[worker] = (hosted, task)
        watcher = asyncio.create_task(self._watch(worker, task, writer))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)

    async def _watch(
        self, worker: WorkerId, task: asyncio.Task[int], writer: asyncio.StreamWriter
    ) -> None:
        try:
            await asyncio.wait({task})
        finally:
            del self._workers[worker]
        status = KILLED if task.cancelled() else task.result()
        if not writer.is_closing():
            writer.write(json.dumps({"worker": worker, "status": status}).encode() + b"\n")
