"""A server process on a free port, with a deadline for its start."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.servers.builds import NoServer

_DEADLINE = 30.0
_END_WITH_MY_INPUT = "read -r _; kill -KILL $0"
"""A shell beside the server waits for its standard input to close, also by SIGKILL of the tests."""


class ServerProcess:
    """A process that ends with the tests, however those end. Its output is in `server.log`."""

    def __init__(
        self, command: Sequence[str], folder: Path, variables: Mapping[str, str] | None = None
    ) -> None:
        self._log = folder / "server.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **(variables or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                start_new_session=True,  # Ctrl-C is for the tests
            )
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _END_WITH_MY_INPUT, str(self._process.pid)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """End it by SIGKILL. Idempotent."""
        self._process.kill()
        self._process.wait(_DEADLINE)
        self._guard.kill()
        self._guard.communicate()

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-500:].strip()


@contextmanager
def running(
    command: Callable[[int], Sequence[str]], folder: Path, variables: Mapping[str, str]
) -> Iterator[int]:
    """Run a server, made from its port; the port, when it accepts connections."""
    reasons = ""
    for _ in range(3):  # another process may take the port first
        port = free_port()
        process = ServerProcess(command(port), folder, variables)
        try:
            if _accepts(process, port):
                yield port
                return
            reasons = process.last_words()
        finally:
            process.kill()
    raise NoServer(f"{Path(command(0)[0]).name} does not start: {reasons}")


def _accepts(process: ServerProcess, port: int) -> bool:
    give_up_at = time.monotonic() + _DEADLINE
    while process.is_alive() and time.monotonic() < give_up_at:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        time.sleep(0.05)
    return False


def free_port() -> int:
    """A port that nobody uses now."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Different ports that nobody uses now."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
