"""The worker's end of the control connection. One thread receives orders, another sends heartbeats.

Neither thread calls Spark, so a hung epoch neither stops the heartbeat nor hides an order.

A lost connection means that the controller is gone, or has given up this worker. The worker then
keeps running and reconnects for as long as `patience`, because another controller may adopt it: at
the same address, or at the one that `new_address` finds. Meanwhile it buffers its messages. If no
controller adopts it in time, the process exits at once, and the JVM with it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta

from resurgence.worker.messages import (
    TO_WORKER,
    Dismissed,
    Heartbeat,
    Message,
    StandBy,
    StartExecution,
    StopAfterEpoch,
    encode,
)

CONTROLLER_LOST = 3
"""Exit status of a worker that lost its controller."""
_RETRY_SECONDS = 0.2
_STABLE_SECONDS = 1.0
_LOOK_UP_SECONDS = 1.0
_MAX_BUFFERED = 10_000


class ControlConnection:
    """The connection to the controller, re-established within `patience`."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._socket = _connect(address)
        self._sending = threading.Lock()
        self._is_up = True
        self._up_at = self._lost_at = time.monotonic()
        self._buffer: deque[Message] = deque(maxlen=_MAX_BUFFERED)
        self._orders: queue.Queue[StandBy | StartExecution] = queue.Queue()
        self.stop_requested = threading.Event()
        self._beat_seconds: float | None = None
        self._pause = threading.Event()
        self.patience = timedelta(0)
        self.new_address: Callable[[], tuple[str, int] | None] = lambda: None
        """Returns the address of the controller that owns the job now, if it is known."""
        self.greeting: Callable[[], tuple[Message, Sequence[Message]]]
        """What a reconnect sends: the identification, and the status that follows the buffer."""

    def send(self, message: Message) -> None:
        """Send a message, or buffer it until the connection is up. Heartbeats are not buffered."""
        with self._sending:
            if self._is_up and self._write(message):
                return
            if not isinstance(message, Heartbeat):
                self._buffer.append(message)

    def listen(self) -> None:
        """Start to receive orders."""
        threading.Thread(target=self._receive, name="orders", daemon=True).start()

    def next_order(self, deadline: timedelta | None) -> StandBy | StartExecution:
        """Return the next order; raise queue.Empty if none arrives in time."""
        return self._orders.get(timeout=deadline.total_seconds() if deadline else None)

    def beat(self, interval: timedelta, heartbeat: Callable[[], Message]) -> None:
        """Start to send heartbeats, or change their interval."""
        is_beating = self._beat_seconds is not None
        self._beat_seconds = interval.total_seconds()
        self._pause.set()
        if not is_beating:
            threading.Thread(
                target=self._beat, args=(heartbeat,), name="heartbeat", daemon=True
            ).start()

    def _beat(self, heartbeat: Callable[[], Message]) -> None:
        while True:
            self._pause.clear()
            self.send(heartbeat())
            self._pause.wait(self._beat_seconds)

    def wait_until_sent(self) -> None:
        """Wait until the buffer is sent. The receiving thread enforces the deadline."""
        while True:
            with self._sending:
                if self._is_up and not self._buffer:
                    return
            time.sleep(_RETRY_SECONDS / 4)

    def _write(self, message: Message) -> bool:
        try:
            self._socket.sendall(encode(message))
        except OSError:
            self._is_up = False
            # Wakes the receiving thread, which reconnects.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            return False
        return True

    def _receive(self) -> None:
        while True:
            self._up_at = time.monotonic()
            try:
                for line in self._socket.makefile("rb"):
                    self._handle(TO_WORKER.validate_json(line))
            except (OSError, ValueError):
                # The connection broke, perhaps within an order, or the peer is not a controller.
                pass
            try:
                self._reconnect()
            except Exception:
                # Without this thread the loss of the controller would go unnoticed.
                os._exit(CONTROLLER_LOST)

    def _handle(self, order: Message) -> None:
        match order:
            case StandBy() | StartExecution():
                self.stop_requested.clear()
                self._orders.put(order)
            case StopAfterEpoch():
                self.stop_requested.set()
            case Dismissed():
                os._exit(CONTROLLER_LOST)

    def _reconnect(self) -> None:
        with self._sending:
            self._is_up = False
            self._socket.close()
        now = time.monotonic()
        if now - self._up_at > _STABLE_SECONDS:
            # A peer that disconnects at once is no controller: it does not extend the deadline.
            self._lost_at = now
        else:
            time.sleep(_RETRY_SECONDS)
        give_up_at = self._lost_at + self.patience.total_seconds()
        look_up_at = time.monotonic() + _LOOK_UP_SECONDS
        while time.monotonic() < give_up_at:
            try:
                fresh = _connect(self._address)
            except OSError:
                time.sleep(_RETRY_SECONDS)
                if time.monotonic() >= look_up_at:
                    self._address = self.new_address() or self._address
                    look_up_at = time.monotonic() + _LOOK_UP_SECONDS
                continue
            with self._sending:
                self._socket = fresh
                identification, status = self.greeting()
                if all(self._write(each) for each in (identification, *self._buffer, *status)):
                    self._buffer.clear()
                    self._is_up = True
                    return
        os._exit(CONTROLLER_LOST)


def _connect(address: tuple[str, int]) -> socket.socket:
    connection = socket.create_connection(address, timeout=10)
    connection.settimeout(None)
    return connection
