"""The process scheduler: a worker is a child process of the controller, in a process group of
its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from resurgence.errors import ResurgenceError
from resurgence.ids import Generation, WorkerId
from resurgence.worker.main import LOG_VARIABLE, TOKEN_VARIABLE

_TEAR_DOWN = timedelta(seconds=1)


class WorkerStartFailed(ResurgenceError):
    """The operating system would not start the process."""

    code = "worker.start"


@dataclass(frozen=True)
class WorkerOrder:
    """What the process needs to find its controller."""

    worker: WorkerId
    generation: Generation
    address: tuple[str, int]
    token: str
    log_file: Path


class WorkerProcess:
    """A running child."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def wait(self) -> int:
        """The exit status, negative for a signal."""
        return await self._process.wait()

    async def tear_down(self) -> None:
        """Kill the whole group and wait until it is gone. The dead are not waited for."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TEAR_DOWN.total_seconds()):
                await self._process.wait()


class ProcessScheduler:
    """Starts workers and watches them."""

    def __init__(self) -> None:
        self._watchers: set[asyncio.Task[None]] = set()

    async def start(
        self, order: WorkerOrder, exited: Callable[[WorkerId, int], Awaitable[None]]
    ) -> WorkerProcess:
        """Start a worker; `exited` is called at once when its process ends."""
        host, port = order.address
        order.log_file.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, TOKEN_VARIABLE: order.token, LOG_VARIABLE: str(order.log_file)}
        command = [
            sys.executable,
            "-m",
            "resurgence.worker.main",
            host,
            str(port),
            order.worker,
            str(order.generation),
        ]
        try:
            with order.log_file.open("ab") as log:
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
        watcher = asyncio.create_task(self._watch(order.worker, started, exited))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return started

    async def _watch(
        self,
        worker: WorkerId,
        process: WorkerProcess,
        exited: Callable[[WorkerId, int], Awaitable[None]],
    ) -> None:
        await exited(worker, await process.wait())
