"""A scheduler whose workers are stand-ins in a `WorkerHost`: one socket for all of them."""

from __future__ import annotations

import asyncio
import json
import os

from resurgence.control.workers.scheduler import (
    Exited,
    Scheduler,
    WorkerOrder,
    WorkerStartFailed,
)
from resurgence.ids import WorkerId

SOCKET_VARIABLE = "RESURGENCE_STAND_IN_HOST"
_TEAR_DOWN_SECONDS = 1.0


class HostedProcess:
    """A worker in the host; it has no process number."""

    pid = 0

    def __init__(self, scheduler: HostScheduler, worker: WorkerId) -> None:
        self._scheduler = scheduler
        self._worker = worker
        self.ended = asyncio.Event()

    async def tear_down(self) -> None:
        if not self.ended.is_set():
            self._scheduler.send({"do": "kill", "worker": self._worker})
            await asyncio.wait(
                {asyncio.ensure_future(self.ended.wait())}, timeout=_TEAR_DOWN_SECONDS
            )


class HostScheduler:
    """Orders workers from the host that the environment names."""

    def __init__(self) -> None:
        self._writer: asyncio.StreamWriter | None = None
        self._connecting = asyncio.Lock()
        self._listener: asyncio.Task[None] | None = None
        self._workers: dict[WorkerId, tuple[HostedProcess, Exited]] = {}
        self._reports: set[asyncio.Task[None]] = set()

    async def start(self, order: WorkerOrder, exited: Exited) -> HostedProcess:
        try:
            await self._connect()
        except OSError as error:
            raise WorkerStartFailed(f"cannot start a worker: {error}") from error
        process = HostedProcess(self, order.worker)
        self._workers[order.worker] = (process, exited)
        host, port = order.address
        self.send(
            {
                "do": "start",
                "worker": order.worker,
                "host": host,
                "port": port,
                "generation": order.generation,
                "token": order.token,
            }
        )
        return process

    def adopt(self, worker: WorkerId, pid: int, exited: Exited) -> HostedProcess:
        """The host ends a worker that loses its controller, so there is none to adopt."""
        process = HostedProcess(self, worker)
        process.ended.set()
        return process

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
        if self._writer is not None:
            self._writer.close()

    def send(self, order: dict[str, object]) -> None:
        if self._writer is not None:
            self._writer.write(json.dumps(order).encode() + b"\n")

    async def _connect(self) -> None:
        async with self._connecting:
            if self._writer is None:
                reader, self._writer = await asyncio.open_unix_connection(
                    os.environ[SOCKET_VARIABLE]
                )
                self._listener = asyncio.create_task(self._listen(reader))

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            report = json.loads(line)
            process, exited = self._workers.pop(WorkerId(report["worker"]))
            process.ended.set()
            task = asyncio.ensure_future(exited(WorkerId(report["worker"]), report["status"]))
            self._reports.add(task)
            task.add_done_callback(self._reports.discard)


HOST = Scheduler("stand_in", HostScheduler)
