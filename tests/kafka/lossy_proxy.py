"""A proxy before a Kafka broker that loses the answer to one request: the broker processes it, and
the connection is cut instead of a response. Or it holds one request back: the broker never has it.

A broker names its own address to clients, so the proxy must be the address that it advertises.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

END_TXN = 26
_PATIENCE = 60.0


class LossyProxy:
    """Passes everything on, until `lose` is called."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.target = 0
        """The port of the broker."""
        self.lost = 0
        """How many answers were lost."""
        self._to_lose: int | None = None
        self.held = threading.Event()
        """A request is held back."""
        self._to_hold: int | None = None
        self._to_pass = 0
        self._counting = threading.Lock()
        self._closed = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(self, api: int) -> None:
        """Lose the answer to the next request of a kind."""
        self._to_lose = api

    def hold(self, api: int, number: int) -> None:
        """Hold back a request of a kind, counted from 1, until the proxy is closed."""
        self.held.clear()
        self._to_hold, self._to_pass = api, number - 1

    def _holds(self, api: int) -> bool:
        with self._counting:
            if api != self._to_hold:
                return False
            self._to_pass -= 1
            if self._to_pass >= 0:
                return False
            self._to_hold = None
            return True

    def close(self) -> None:
        self._listener.close()
        self._closed.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    broker = socket.create_connection(("127.0.0.1", self.target), _PATIENCE)
                except OSError:
                    client.close()
                    continue
                doomed: set[int] = set()
                for one, other, is_request in ((client, broker, True), (broker, client, False)):
                    arguments = (one, other, is_request, doomed)
                    threading.Thread(target=self._pump, args=arguments, daemon=True).start()

    def _pump(
        self, one: socket.socket, other: socket.socket, is_request: bool, doomed: set[int]
    ) -> None:
        """Pass frames on; `doomed` are the correlation ids of answers to lose."""
        with suppress(OSError, struct.error), one, other:
            while frame := _frame(one):
                if is_request:
                    api, _, correlation = struct.unpack(">hhi", frame[4:12])
                    if api == self._to_lose:
                        self._to_lose = None
                        doomed.add(correlation)
                    if self._holds(api):
                        self.held.set()
                        self._closed.wait()
                        return
                elif struct.unpack(">i", frame[4:8])[0] in doomed:
                    self.lost += 1
                    for each in (one, other):
                        each.shutdown(socket.SHUT_RDWR)
                    return
                other.sendall(frame)


def _frame(source: socket.socket) -> bytes:
    """A request or response with its length; empty at the end."""
    source.settimeout(None)
    head = _exactly(source, 4)
    return head + _exactly(source, struct.unpack(">i", head)[0]) if head else b""


def _exactly(source: socket.socket, size: int) -> bytes:
    pieces = b""
    while len(pieces) < size:
        piece = source.recv(size - len(pieces))
        if not piece:
            return b""
        pieces += piece
    return pieces


@contextmanager
def lossy_proxy() -> Iterator[LossyProxy]:
    proxy = LossyProxy()
    try:
        yield proxy
    finally:
        proxy.close()
