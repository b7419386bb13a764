"""The controller's end of the control connections: one server on loopback for all workers of a
controller, one token per generation.

Only digests of tokens are stored, so that the contents of the database do not authenticate anyone.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from pydantic import ValidationError

from resurgence.ids import Generation, WorkerId
from resurgence.worker.messages import (
    FROM_WORKER,
    Dismissed,
    FromWorker,
    Message,
    WorkerConnected,
    encode,
)

_LONGEST_REPORT = 4 * 1024 * 1024
"""Messages of a worker are short; load plans go the other way."""
_HANDSHAKE_TIMEOUT = timedelta(seconds=10)

Receive = Callable[[FromWorker], None]


@dataclass
class _Expected:
    generation: Generation
    token_digest: str
    receive: Receive
    writer: asyncio.StreamWriter | None = None
    closed: asyncio.Event = field(default_factory=asyncio.Event)


class ControlChannel:
    """Accepts connections from expected workers only."""

    def __init__(self) -> None:
        self._expected: dict[WorkerId, _Expected] = {}
        self._server: asyncio.Server | None = None
        self._handlers: set[asyncio.Task[None]] = set()

    async def open(self, port: int = 0) -> tuple[str, int]:
        """Start to listen, on this port if it is free. Return the address for workers."""
        try:
            self._server = await self._listen(port)
        except OSError:
            self._server = await self._listen(0)
        host, bound = self._server.sockets[0].getsockname()[:2]
        return str(host), int(bound)

    async def _listen(self, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._handle, "127.0.0.1", port, limit=_LONGEST_REPORT)

    def expect(self, worker: WorkerId, generation: Generation, receive: Receive) -> str:
        """Admit a worker, or move a connected one to another generation. Return its token."""
        token = secrets.token_hex(16)
        known = self._expected.get(worker)
        if known is not None:
            known.generation, known.receive = generation, receive
            known.token_digest = token_digest(token)
        else:
            self._expected[worker] = _Expected(generation, token_digest(token), receive)
        return token

    def expect_again(
        self, worker: WorkerId, generation: Generation, digest: str, receive: Receive
    ) -> None:
        """Admit a worker whose token another controller issued."""
        self._expected[worker] = _Expected(generation, digest, receive)

    def disconnect(self, worker: WorkerId) -> None:
        """Close the connection of a worker and stop admitting it."""
        expected = self._expected.pop(worker, None)
        if expected is not None and expected.writer is not None:
            expected.writer.close()

    def is_connected(self, worker: WorkerId) -> bool:
        """Return whether the worker is connected and authenticated."""
        expected = self._expected.get(worker)
        return expected is not None and expected.writer is not None

    async def drained(self, worker: WorkerId) -> None:
        """Wait until all messages of a worker have been received."""
        expected = self._expected.get(worker)
        if expected is not None and expected.writer is not None:
            await expected.closed.wait()

    async def send(self, worker: WorkerId, message: Message) -> None:
        """Send an order. No effect if the worker is disconnected: the scheduler detects that."""
        expected = self._expected.get(worker)
        if expected is None or expected.writer is None or expected.writer.is_closing():
            return
        expected.writer.write(encode(message))
        try:
            await expected.writer.drain()
        except ConnectionError:
            return

    async def close(self) -> None:
        """Stop listening and close all connections."""
        if self._server is not None:
            self._server.close()
        for worker in list(self._expected):
            self.disconnect(worker)
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        expected: _Expected | None = None
        try:
            while line := await self._line(reader, expected is None):
                message = FROM_WORKER.validate_json(line)
                if expected is None:
                    expected = self._admit(message)
                    if expected is None:
                        writer.write(encode(Dismissed()))
                        await writer.drain()
                        return
                    if expected.writer is not None:
                        # The worker lost that connection before we noticed.
                        expected.writer.close()
                    expected.writer = writer
                    expected.closed = asyncio.Event()
                expected.receive(message)
        except (ConnectionError, TimeoutError, ValidationError, ValueError, asyncio.CancelledError):
            # A peer that breaks the protocol, or was cut off, is treated as disconnected.
            return
        finally:
            self._handlers.discard(task)
            if expected is not None and expected.writer is writer:
                expected.closed.set()
                expected.writer = None
            with contextlib.suppress(RuntimeError):
                writer.close()

    async def _line(self, reader: asyncio.StreamReader, is_first: bool) -> bytes:
        """Read the next message. An unauthenticated peer has a deadline."""
        if not is_first:
            return await reader.readline()
        async with asyncio.timeout(_HANDSHAKE_TIMEOUT.total_seconds()):
            return await reader.readline()

    def _admit(self, message: FromWorker) -> _Expected | None:
        expected = self._expected.get(message.worker)
        if not isinstance(message, WorkerConnected) or expected is None:
            return None
        matches = hmac.compare_digest(token_digest(message.token), expected.token_digest)
        return expected if matches and message.generation == expected.generation else None


def token_digest(token: str) -> str:
    """Return a token as it is stored. It is random and long, so a plain digest is safe."""
    return hashlib.sha256(token.encode()).hexdigest()
