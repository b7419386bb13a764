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


@contextmanager
def running(
    command: Callable[[int], Sequence[str]], folder: Path, variables: Mapping[str, str]
) -> Iterator[int]:
    """Run a server, made from its port; the port, when it accepts connections."""
    reasons = ""
    for _ in range(3):  # another process may take the port first
        port = free_port()
        with (folder / "server.log").open("wb") as log:
            process = subprocess.Popen(
                command(port),
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                start_new_session=True,  # Ctrl-C is for the tests
            )
        guard = subprocess.Popen(
            ["/bin/sh", "-c", _END_WITH_MY_INPUT, str(process.pid)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            if _accepts(process, port):
                yield port
                return
            reasons = (folder / "server.log").read_text(errors="replace")[-500:].strip()
        finally:
            process.kill()
            process.wait(_DEADLINE)
            guard.kill()
            guard.communicate()
    raise NoServer(f"{Path(command(0)[0]).name} does not start: {reasons}")


def _accepts(process: subprocess.Popen[bytes], port: int) -> bool:
    give_up_at = time.monotonic() + _DEADLINE
    while process.poll() is None and time.monotonic() < give_up_at:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        time.sleep(0.05)
    return False


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
