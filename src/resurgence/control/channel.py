"""The controller's end of the control connections: loopback only, one token per worker, one
queue for all.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from pydantic import ValidationError

from resurgence.ids import Generation, WorkerId
from resurgence.worker.messages import (
    FROM_WORKER,
    LONGEST_MESSAGE,
    FromWorker,
    Message,
    WorkerConnected,
    encode,
)


@dataclass
class _Expected:
    generation: Generation
    token: str
    writer: asyncio.StreamWriter | None = None
    closed: asyncio.Event = field(default_factory=asyncio.Event)


class ControlChannel:
    """Accepts the workers that are expected, and no one else."""

    def __init__(self, receive: Callable[[FromWorker], None]) -> None:
        self._receive = receive
        self._expected: dict[WorkerId, _Expected] = {}
        self._server: asyncio.Server | None = None
        self._handlers: set[asyncio.Task[None]] = set()

    async def open(self) -> tuple[str, int]:
        """Begin to listen; the address to give to workers."""
        self._server = await asyncio.start_server(
            self._handle, "127.0.0.1", 0, limit=LONGEST_MESSAGE
        )
        host, port = self._server.sockets[0].getsockname()[:2]
        return str(host), int(port)

    def expect(self, worker: WorkerId, generation: Generation) -> str:
        """Let a worker in; its token. Workers of before are not let in any more."""
        token = secrets.token_hex(16)
        self._expected = {worker: _Expected(generation, token)}
        return token

    def is_connected(self, worker: WorkerId) -> bool:
        """Whether the worker has said who it is."""
        expected = self._expected.get(worker)
        return expected is not None and expected.writer is not None

    async def drained(self, worker: WorkerId) -> None:
        """Wait until all that a worker said has been received."""
        expected = self._expected.get(worker)
        if expected is not None and expected.writer is not None:
            await expected.closed.wait()

    async def send(self, worker: WorkerId, message: Message) -> None:
        """Give an order; a worker that is gone does not get it, which the scheduler notices."""
        expected = self._expected.get(worker)
        if expected is None or expected.writer is None or expected.writer.is_closing():
            return
        expected.writer.write(encode(message))
        try:
            await expected.writer.drain()
        except ConnectionError:
            return

    async def close(self) -> None:
        """Stop listening and hang up on everyone."""
        if self._server is not None:
            self._server.close()
        for expected in self._expected.values():
            if expected.writer is not None:
                expected.writer.close()
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        expected: _Expected | None = None
        try:
            while line := await reader.readline():
                message = FROM_WORKER.validate_json(line)
                if expected is None:
                    expected = self._admit(message)
                    if expected is None:
                        return
                    expected.writer = writer
                self._receive(message)
        except (ConnectionError, ValidationError, ValueError, asyncio.CancelledError):
            # Whoever does not speak our language, or was cut off, is treated as gone.
            return
        finally:
            self._handlers.discard(task)
            if expected is not None:
                expected.closed.set()
            writer.close()

    def _admit(self, message: FromWorker) -> _Expected | None:
        expected = self._expected.get(message.worker)
        if (
            not isinstance(message, WorkerConnected)
            or expected is None
            or expected.writer is not None
        ):
            return None
        token_fits = hmac.compare_digest(message.token.encode(), expected.token.encode())
        return expected if token_fits and message.generation == expected.generation else None
