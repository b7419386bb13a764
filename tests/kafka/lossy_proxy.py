"""A proxy before a Kafka broker that loses the answer to one request: the broker processes it, and
the connection is cut instead of a response.

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
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(self, api: int) -> None:
        """Lose the answer to the next request of a kind."""
        self._to_lose = api

    def close(self) -> None:
        self._listener.close()

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
