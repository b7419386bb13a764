"""A TCP proxy before a Postgres server that cuts a connection at a chosen statement, once: before
the server has it, or after the server has answered, so that only the answer is lost.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Cut:
    """Where to cut: at the first message of a client with this text."""

    text: bytes
    is_answered: bool
    """The server gets the message and answers it."""
    skip: int = 0
    """So many messages with the text pass before."""
    happened: threading.Event = field(default_factory=threading.Event)

    def applies(self, data: bytes) -> bool:
        if self.happened.is_set() or self.text not in data:
            return False
        self.skip -= 1
        if self.skip >= 0:
            return False
        self.happened.set()
        return True


class PostgresProxy:
    """A running proxy."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.cut: Cut | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}?sslmode=disable&gssencmode=disable"

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                muted = threading.Event()
                for pump in (self._requests, self._answers):
                    arguments = (client, server, muted)
                    threading.Thread(target=pump, args=arguments, daemon=True).start()

    def _requests(
        self, client: socket.socket, server: socket.socket, muted: threading.Event
    ) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                if self.cut is not None and self.cut.applies(data):
                    if not self.cut.is_answered:
                        break
                    muted.set()
                server.sendall(data)
        _close(client, server)

    def _answers(
        self, client: socket.socket, server: socket.socket, muted: threading.Event
    ) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if muted.is_set():
                    break
                client.sendall(data)
        _close(client, server)


def _close(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


@contextmanager
def postgres_proxy(socket_path: str) -> Iterator[PostgresProxy]:
    """A proxy before the server with this socket."""
    proxy = PostgresProxy(socket_path)
    try:
        yield proxy
    finally:
        proxy.close()
