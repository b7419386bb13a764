"""What starts and watches workers: the contract of schedulers, and the process scheduler, whose
workers are child processes of the controller, each in a process group of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from resurgence.control.background import in_thread
from resurgence.engine.spark.temporary_files import sweep_temporary_directories
from resurgence.errors import ResurgenceError
from resurgence.ids import Generation, WorkerId
from resurgence.storage.private_files import open_private_log
from resurgence.worker.process import LOG_VARIABLE, SPARK_VARIABLE, TOKEN_VARIABLE

_TEAR_DOWN = timedelta(seconds=1)
_SWEEP_WITHIN = timedelta(seconds=5)
_POLL_INTERVAL = timedelta(milliseconds=200)

Exited = Callable[[WorkerId, int | None], Awaitable[None]]


class WorkerStartFailed(ResurgenceError):
    """The operating system did not start the process."""

    code = "worker.start"


@dataclass(frozen=True)
class WorkerOrder:
    """What the process needs to find its controller."""

    worker: WorkerId
    generation: Generation
    address: tuple[str, int]
    token: str
    log_file: Path
    spark: dict[str, str] = field(default_factory=dict)
    """The Spark configuration; Spark starts before the first order arrives."""


class ScheduledWorker(Protocol):
    """A worker that a scheduler started or adopted."""

    @property
    def pid(self) -> int:
        """Its process number, recorded for a later controller; 0 if it has none here."""

    async def tear_down(self) -> None:
        """Kill the worker and everything it started, and wait briefly for its exit."""


class WorkerScheduler(Protocol):
    """Starts workers and watches them. A worker connects to the controller by itself."""

    async def start(self, order: WorkerOrder, exited: Exited) -> ScheduledWorker:
        """Start a worker, or raise WorkerStartFailed. Call `exited` as soon as it exits."""

    def adopt(self, worker: WorkerId, pid: int, exited: Exited) -> ScheduledWorker:
        """Watch a worker that another controller started."""

    async def close(self) -> None:
        """Wait briefly for workers that were torn down; leave the others running."""


@dataclass(frozen=True)
class Scheduler:
    """A kind of scheduler, under the name that the setting `controller.scheduler` takes."""

    name: str
    make: Callable[[], WorkerScheduler]


class WorkerProcess:
    """A worker as a child process."""

    swept = False
    """It has exited, and its process group has been killed."""
    torn_down = False
    """It was killed by `tear_down`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def wait(self) -> int | None:
        """Wait for the exit. Return the status, negative for a signal; None if it is unknown."""
        return await self._process.wait()

    async def tear_down(self) -> None:
        """Kill the whole process group and wait briefly for its exit."""
        self.torn_down = True
        self.sweep()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TEAR_DOWN.total_seconds()):
                await self.wait()

    def sweep(self) -> None:
        """Kill the rest of the process group; no effect once the leader has exited, because its pid
        may have been reused.
        """
        if not self.swept:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)


class AdoptedProcess(WorkerProcess):
    """A worker that another controller started: not a child, so its exit status is unknown."""

    def __init__(self, worker: WorkerId, pid: int) -> None:
        self._worker = worker
        self.pid = pid

    async def tear_down(self) -> None:
        if await in_thread(is_worker, self.pid, self._worker):
            await super().tear_down()

    async def wait(self) -> None:
        try:
            # Signals the exit at once, even if the parent does not reap the process.
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        except (AttributeError, OSError):
            while _exists(self.pid):
                await asyncio.sleep(_POLL_INTERVAL.total_seconds())
            return
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def is_worker(pid: int, worker: WorkerId) -> bool:
    """Return whether this process is that worker: a pid may have been reused. A worker of a scheduler
    without processes has the pid 0.
    """
    return pid != 0 and str(worker) in _arguments(pid)


def _arguments(pid: int) -> list[str]:
    """Return the command line of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        pass
    command = ["ps", "-o", "args=", "-p", str(pid)]
    try:
        completed = subprocess.run(command, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return completed.stdout.split()


class ProcessScheduler:
    """Starts worker processes and watches them."""

    module = "resurgence.worker.process"
    """What a worker process runs."""

    def __init__(self) -> None:
        self._watchers: dict[asyncio.Task[None], WorkerProcess] = {}

    async def start(self, order: WorkerOrder, exited: Exited) -> WorkerProcess:
        """Start a worker; `exited` is called as soon as its process exits."""
        host, port = order.address
        environment = {
            **os.environ,
            TOKEN_VARIABLE: order.token,
            LOG_VARIABLE: str(order.log_file),
            SPARK_VARIABLE: json.dumps(order.spark),
        }
        command = [
            sys.executable,
            "-m",
            self.module,
            host,
            str(port),
            order.worker,
            str(order.generation),
        ]
        try:
            with open_private_log(order.log_file) as log:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stderr=log,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            raise WorkerStartFailed(f"cannot start a worker: {error}") from error
        started = WorkerProcess(process)
        self.watch(order.worker, started, exited)
        return started

    def adopt(self, worker: WorkerId, pid: int, exited: Exited) -> WorkerProcess:
        """Watch a worker that another controller started."""
        adopted = AdoptedProcess(worker, pid)
        self.watch(worker, adopted, exited)
        return adopted

    def watch(self, worker: WorkerId, process: WorkerProcess, exited: Exited) -> None:
        async def run() -> None:
            status = await process.wait()
            process.sweep()
            process.swept = True
            await exited(worker, status)
            # The JVM removes them on a normal exit, but it was killed with the group.
            await in_thread(sweep_temporary_directories)

        watcher = asyncio.create_task(run())
        self._watchers[watcher] = process
        watcher.add_done_callback(self._watchers.pop)

    async def close(self) -> None:
        """Wait for killed workers to exit and for the removal of their files: on a busy machine
        that takes longer than a tear-down waits.
        """
        ended = [watcher for watcher, process in self._watchers.items() if process.torn_down]
        if ended:
            await asyncio.wait(ended, timeout=_SWEEP_WITHIN.total_seconds())


PROCESS = Scheduler("process", ProcessScheduler)
