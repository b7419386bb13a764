"""The worker's end of the control connection, in a real process: it reconnects, buffers its
messages in order, and exits when it is dismissed or no controller accepts it.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import IO

import pytest

from resurgence.worker.connection import CONTROLLER_LOST
from resurgence.worker.messages import Dismissed, Message, StopAfterEpoch, encode

WORKER = """
import sys, threading
from datetime import timedelta
from resurgence.worker.connection import ControlConnection
from resurgence.worker.messages import EpochStarted, Heartbeat, StateRestored, WorkerConnected

who = {"worker": "worker-1", "generation": 4}
name = WorkerConnected(**who, token="secret", pid=17)
connection = ControlConnection(("127.0.0.1", int(sys.argv[1])))
connection.patience = timedelta(seconds=float(sys.argv[2]))
connection.greeting = lambda: (name, [StateRestored(**who, epoch=9, seconds={})])
connection.send(name)
connection.listen()

def heartbeat():
    return Heartbeat(**who, epoch=9, phase="idle", phase_seconds=0.0)

for line in sys.stdin:
    order, _, number = line.strip().partition(" ")
    if order == "say":
        connection.send(EpochStarted(**who, epoch=int(number), rows=1))
    elif order == "beat":
        connection.send(heartbeat())
    elif order == "beat_on":
        connection.beat(timedelta(milliseconds=1), heartbeat)
    elif order == "look_at":
        connection.new_address = lambda: ("127.0.0.1", int(number))
    elif order == "await_stop":
        print(connection.stop_requested.wait(5), flush=True)
        continue
    elif order == "await_told":
        connection.wait_until_sent()
    elif order == "await_loss":
        while connection._is_up:
            threading.Event().wait(0.005)
    print("done", flush=True)
"""
SECONDS = 10.0


class Controller:
    """The other end: a socket that listens, closes and listens again, at the same port."""

    def __init__(self) -> None:
        self.port = 0
        self._server: socket.socket | None = None
        self._connection: socket.socket | None = None
        self._lines: IO[bytes] | None = None
        self.listen()

    def listen(self) -> None:
        self._server = socket.create_server(("127.0.0.1", self.port), reuse_port=False)
        self.port = self._server.getsockname()[1]

    def accept(self, within: float = SECONDS) -> None:
        assert self._server is not None
        self._server.settimeout(within)
        self._connection, _ = self._server.accept()
        self._connection.settimeout(SECONDS)
        self._lines = self._connection.makefile("rb")

    def hear(self) -> dict[str, object]:
        assert self._lines is not None
        heard = json.loads(self._lines.readline())
        assert isinstance(heard, dict)
        return heard

    def say(self, message: Message) -> None:
        self.write(encode(message))

    def write(self, data: bytes) -> None:
        assert self._connection is not None
        self._connection.sendall(data)

    def hang_up(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
            self._connection.close()
        if self._lines is not None:
            self._lines.close()

    def die(self) -> None:
        """Close the port."""
        assert self._server is not None
        self._server.close()
        self.hang_up()


class Worker:
    """A process with the connection under test."""

    def __init__(self, port: int, patience: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(port), str(patience)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def do(self, order: str) -> str:
        self.begin(order)
        return self.answer()

    def begin(self, order: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def exit_status(self, within: float = SECONDS) -> int | None:
        """None: it goes on."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(within)
        return None

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def controller() -> Iterator[Controller]:
    one = Controller()
    yield one
    one.die()


@contextlib.contextmanager
def connected(controller: Controller, patience: float) -> Iterator[Worker]:
    worker = Worker(controller.port, patience)
    try:
        controller.accept()
        assert controller.hear()["type"] == "worker_connected"
        yield worker
    finally:
        worker.end()


def test_a_worker_reconnects_with_its_identity_its_buffered_messages_in_order_and_its_phase(
    controller: Controller,
) -> None:
    with connected(controller, patience=30) as worker:
        worker.do("say 1")
        assert controller.hear()["epoch"] == 1
        controller.die()
        worker.do("await_loss")
        for epoch in (2, 3, 4):
            worker.do(f"say {epoch}")
            worker.do("beat")
        controller.listen()
        controller.accept()
        first = controller.hear()
        assert (first["type"], first["token"], first["generation"]) == (
            "worker_connected",
            "secret",
            4,
        )
        kept = [controller.hear() for _ in range(3)]
        assert [(each["type"], each["epoch"]) for each in kept] == [
            ("epoch_started", 2),
            ("epoch_started", 3),
            ("epoch_started", 4),
        ]
        standing = controller.hear()
        assert (standing["type"], standing["epoch"]) == ("state_restored", 9)
        worker.do("say 5")
        assert controller.hear()["epoch"] == 5


def test_a_worker_reconnects_repeatedly_and_receives_orders(controller: Controller) -> None:
    with connected(controller, patience=30) as worker:
        for _ in range(3):
            controller.hang_up()
            controller.accept()
            assert controller.hear()["type"] == "worker_connected"
            assert controller.hear()["type"] == "state_restored"
        controller.say(StopAfterEpoch())
        assert worker.do("await_stop") == "True"


def test_a_worker_with_buffered_messages_waits_for_a_controller(
    controller: Controller,
) -> None:
    with connected(controller, patience=30) as worker:
        controller.die()
        worker.do("await_loss")
        worker.do("say 1")
        worker.begin("await_told")
        controller.listen()
        controller.accept()
        assert [controller.hear()["type"] for _ in range(3)] == [
            "worker_connected",
            "epoch_started",
            "state_restored",
        ]
        assert worker.answer() == "done"


def test_concurrent_sends_do_not_interleave_lines(controller: Controller) -> None:
    with connected(controller, patience=0) as worker:
        worker.do("beat_on")
        for epoch in range(200):
            worker.begin(f"say {epoch}")
        heard: list[object] = []
        while len(heard) < 200:
            message = controller.hear()
            if message["type"] == "epoch_started":
                heard.append(message["epoch"])
        assert heard == list(range(200))


def test_a_dismissed_worker_exits_at_once(controller: Controller) -> None:
    with connected(controller, patience=30) as worker:
        controller.say(Dismissed())
        assert worker.exit_status() == CONTROLLER_LOST


def test_a_worker_that_is_dismissed_when_it_reconnects_exits(controller: Controller) -> None:
    with connected(controller, patience=30) as worker:
        controller.hang_up()
        controller.accept()
        controller.say(Dismissed())
        assert worker.exit_status() == CONTROLLER_LOST


def test_a_worker_without_adopt_timeout_exits_with_its_controller(controller: Controller) -> None:
    with connected(controller, patience=0) as worker:
        controller.hang_up()
        assert worker.exit_status() == CONTROLLER_LOST


def test_a_worker_exits_at_its_adopt_timeout(controller: Controller) -> None:
    with connected(controller, patience=1) as worker:
        controller.die()
        began = time.monotonic()
        assert worker.exit_status() == CONTROLLER_LOST
        assert 0.9 < time.monotonic() - began < 5


def test_an_order_that_was_cut_off_is_a_lost_connection(controller: Controller) -> None:
    with connected(controller, patience=0) as worker:
        controller.write(encode(StopAfterEpoch())[:-5])
        controller.hang_up()
        assert worker.exit_status(within=2) == CONTROLLER_LOST


def test_a_connection_that_is_closed_at_once_does_not_renew_the_adopt_timeout(
    controller: Controller,
) -> None:
    """Another program may have got the port."""
    with connected(controller, patience=0.5) as worker:
        controller.hang_up()
        give_up_at = time.monotonic() + 2
        while time.monotonic() < give_up_at:
            with contextlib.suppress(TimeoutError):
                controller.accept(within=0.1)
                controller.hang_up()
        assert worker.exit_status(within=1) == CONTROLLER_LOST


def test_it_finds_the_controller_that_adopts_it(controller: Controller) -> None:
    """The address is known only some time after the old controller died."""
    with contextlib.closing(socket.socket()) as reserved, contextlib.ExitStack() as ending:
        reserved.bind(("127.0.0.1", 0))
        worker = Worker(controller.port, patience=SECONDS)
        ending.callback(worker.end)
        controller.accept()
        controller.hear()
        worker.do(f"look_at {reserved.getsockname()[1]}")
        controller.die()
        worker.do("await_loss")
        worker.do("say 10")
        other = Controller()
        ending.callback(other.die)
        worker.do(f"look_at {other.port}")
        other.accept()
        heard = [other.hear() for _ in range(3)]
        assert [each["type"] for each in heard] == [
            "worker_connected",
            "epoch_started",
            "state_restored",
        ]
