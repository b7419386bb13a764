"""A proxy before an S3 server: counts requests, delays them, and makes them fail by script.

It runs in a thread of its own. A fault fails the first requests that match it, a
fixed number of times; `struck` counts them.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum

_START_DEADLINE = 10.0
_SILENCE = 120.0
_STALL_AFTER = 100
"""Bytes of a slow body that arrive before it stalls."""


class Failure(StrEnum):
    """How a request fails."""

    SLOW_DOWN = "503 SlowDown"
    SERVER_ERROR = "500 InternalError"
    NO_ANSWER = "no answer"
    """The request is not passed on."""
    SLOW_BODY = "slow body"
    """The request is processed; the response begins and stalls."""
    CUT_UPLOAD = "cut upload"
    """The connection is cut before the request was read; nothing is passed on."""
    LOST_ANSWER = "lost answer"
    """The request is processed; the connection is cut instead of a response."""
    FAILED_ANSWER = "failed answer"
    """The request is processed; the response is 500, so that the client retries."""


_ANSWERED = {
    Failure.SLOW_DOWN: (503, "SlowDown"),
    Failure.SERVER_ERROR: (500, "InternalError"),
    Failure.FAILED_ANSWER: (500, "InternalError"),
}


@dataclass
class Fault:
    """Fails the next requests of a kind whose path contains a text."""

    failure: Failure
    kind: str = ""
    """As in `SeenRequest`; empty: any."""
    path: str = ""
    times: int = 1
    struck: int = 0

    def is_for(self, kind: str, path: str) -> bool:
        return self.struck < self.times and self.kind in ("", kind) and self.path in path


@dataclass(frozen=True)
class SeenRequest:
    """A request and how long it took, by `time.monotonic`."""

    kind: str
    """The method, or LIST, COPY, CREATE (a conditional PUT) or BULK_DELETE."""
    path: str
    status: int
    """0 if there was no response."""
    started_at: float
    ended_at: float


@dataclass
class FaultyProxy:
    """Listens on a port of its own."""

    upstream: int
    rewrite: Callable[[bytes], bytes] = bytes
    """Changes the head of a request before it is passed on."""
    rewrite_answer: Callable[[bytes], bytes] = bytes
    """Changes a response."""
    delay: float = 0.0
    """Seconds that each request waits before it is passed on."""
    faults: list[Fault] = field(default_factory=list)
    arrived: Counter[str] = field(default_factory=Counter)
    """Requests by kind, with or without a response."""
    seen: list[SeenRequest] = field(default_factory=list)
    """Requests that are over."""
    open_requests: int = 0
    port: int = 0

    def inject(self, *faults: Fault) -> None:
        self.faults.extend(faults)

    async def listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            upstream = await asyncio.open_connection("127.0.0.1", self.upstream)
            while await self._one_request(reader, writer, *upstream):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for each in (writer, upstream[1]) if upstream else (writer,):
                each.close()

    async def _one_request(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        up_reader: asyncio.StreamReader,
        up_writer: asyncio.StreamWriter,
    ) -> bool:
        """Serve one request; whether the connection can be used again."""
        head = await reader.readuntil(b"\r\n\r\n")
        started_at = time.monotonic()
        method, path, headers = parsed(head)
        kind = _kind(method, path, headers)
        self.arrived[kind] += 1
        self.open_requests += 1
        fault = next((each for each in self.faults if each.is_for(kind, path)), None)
        if fault is not None:
            fault.struck += 1
        status = 0
        try:
            if fault is not None and fault.failure is Failure.CUT_UPLOAD:
                return False
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            if self.delay:
                await asyncio.sleep(self.delay)
            if fault is not None and fault.failure is Failure.NO_ANSWER:
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1), _SILENCE)
                return False
            if fault is not None and fault.failure in (Failure.SLOW_DOWN, Failure.SERVER_ERROR):
                status = await _answer(writer, *_ANSWERED[fault.failure])
                return True
            up_writer.write(self.rewrite(head) + body)
            status, answer = await _response(up_reader, method)
            answer = self.rewrite_answer(answer)
            if fault is None:
                writer.write(answer)
                await writer.drain()
                return True
            if fault.failure is Failure.FAILED_ANSWER:
                status = await _answer(writer, *_ANSWERED[fault.failure])
                return True
            if fault.failure is Failure.SLOW_BODY:
                end = min(answer.index(b"\r\n\r\n") + _STALL_AFTER, len(answer) - 1)
                writer.write(answer[:end])
                await writer.drain()
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1), _SILENCE)
            return False
        finally:
            self.seen.append(SeenRequest(kind, path, status, started_at, time.monotonic()))
            self.open_requests -= 1


def parsed(head: bytes) -> tuple[str, str, dict[str, str]]:
    """The method, the path and the headers of a request."""
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return method, path, {name.lower(): value.strip() for name, value in pairs}


def _kind(method: str, path: str, headers: dict[str, str]) -> str:
    if method == "GET" and "list-type=" in path:
        return "LIST"
    if method == "POST" and path.endswith(("?delete", "?delete=")):
        return "BULK_DELETE"
    if method == "PUT" and "x-amz-copy-source" in headers:
        return "COPY"
    if method == "PUT" and "if-none-match" in headers:
        return "CREATE"
    return method


async def _answer(writer: asyncio.StreamWriter, status: int, code: str) -> int:
    body = f"<Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
    head = f"HTTP/1.1 {status} {code}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    writer.write(head + body)
    await writer.drain()
    return status


async def _response(reader: asyncio.StreamReader, method: str) -> tuple[int, bytes]:
    """Read a whole response."""
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    _, _, headers = parsed(b"GET / HTTP/1.1\r\n" + head.split(b"\r\n", 1)[1])
    if method == "HEAD" or status in (204, 304):
        return status, head
    if headers.get("transfer-encoding") != "chunked":
        return status, head + await reader.readexactly(int(headers.get("content-length", "0")))
    parts = [head]
    while True:
        size = await reader.readuntil(b"\r\n")
        parts += [size, await reader.readexactly(int(size, 16) + 2)]
        if int(size, 16) == 0:
            return status, b"".join(parts)


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """The loop of all proxies of this process, which never ends: connections outlive a test."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="faulty proxies", daemon=True).start()
    return loop


@contextmanager
def faulty_proxy(
    upstream: int,
    rewrite: Callable[[bytes], bytes] = bytes,
    rewrite_answer: Callable[[bytes], bytes] = bytes,
) -> Iterator[FaultyProxy]:
    """A proxy before the server on a port."""
    proxy = FaultyProxy(upstream, rewrite, rewrite_answer)
    server = asyncio.run_coroutine_threadsafe(proxy.listen(), _loop()).result(_START_DEADLINE)
    try:
        yield proxy
    finally:
        _loop().call_soon_threadsafe(server.close)
