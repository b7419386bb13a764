"""The worker's end of the control connection: orders come in and heartbeats go out on threads of
their own.

Neither thread ever calls Spark, so a hung epoch neither silences the heartbeat nor hides an order.

When the connection is lost the controller is gone, or has given this worker up. With patience, the
worker goes on and asks at the same address for as long, since the next controller may take it over;
what it has to say meanwhile is kept. When nobody takes it, or it has no patience, the process ends at
once, and the JVM with it.
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
"""Exit status of a worker whose controller went away."""
_PAUSE_SECONDS = 0.2
_LASTING_SECONDS = 1.0
_KEPT_MESSAGES = 10_000


class ControlConnection:
    """One connection to the controller, made anew as long as patience lasts."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._socket = _connected(address)
        self._sending = threading.Lock()
        self._is_up = True
        self._up_at = self._lost_at = time.monotonic()
        self._kept: deque[Message] = deque(maxlen=_KEPT_MESSAGES)
        self._orders: queue.Queue[StandBy | StartExecution] = queue.Queue()
        self.stop_asked = threading.Event()
        self._beat_seconds: float | None = None
        self._pause = threading.Event()
        self.patience = timedelta(0)
        self.greeting: Callable[[], tuple[Message, Sequence[Message]]]
        """What to say when connected anew: who I am; and, after what was kept, where I stand."""

    def send(self, message: Message) -> None:
        """Say something, now or when somebody listens again."""
        with self._sending:
            if self._is_up and self._write(message):
                return
            if not isinstance(message, Heartbeat):
                self._kept.append(message)

    def listen(self) -> None:
        """Begin to take orders."""
        threading.Thread(target=self._listen, name="orders", daemon=True).start()

    def next_order(self, deadline: timedelta | None) -> StandBy | StartExecution:
        """What to do; raises queue.Empty if nothing comes in time."""
        return self._orders.get(timeout=deadline.total_seconds() if deadline else None)

    def beat(self, interval: timedelta, heartbeat: Callable[[], Message]) -> None:
        """Begin to send heartbeats, or go on with another interval."""
        begun = self._beat_seconds is not None
        self._beat_seconds = interval.total_seconds()
        self._pause.set()
        if not begun:
            threading.Thread(
                target=self._beat, args=(heartbeat,), name="heartbeat", daemon=True
            ).start()

    def _beat(self, heartbeat: Callable[[], Message]) -> None:
        while True:
            self._pause.clear()
            self.send(heartbeat())
            self._pause.wait(self._beat_seconds)

    def wait_until_told(self) -> None:
        """Wait until all that was kept is said; the thread that listens keeps the deadline."""
        while True:
            with self._sending:
                if self._is_up and not self._kept:
                    return
            time.sleep(_PAUSE_SECONDS / 4)

    def _write(self, message: Message) -> bool:
        try:
            self._socket.sendall(encode(message))
        except OSError:
            self._is_up = False
            # Wakes the thread that listens, which connects anew.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            return False
        return True

    def _listen(self) -> None:
        while True:
            self._up_at = time.monotonic()
            try:
                for line in self._socket.makefile("rb"):
                    self._take(TO_WORKER.validate_json(line))
            except (OSError, ValueError):
                # Cut off, perhaps in the middle of an order; or by someone who is no controller.
                pass
            try:
                self._connect_anew()
            except Exception:
                # Without this thread nobody would notice that the controller is gone.
                os._exit(CONTROLLER_LOST)

    def _take(self, order: Message) -> None:
        match order:
            case StandBy() | StartExecution():
                self.stop_asked.clear()
                self._orders.put(order)
            case StopAfterEpoch():
                self.stop_asked.set()
            case Dismissed():
                os._exit(CONTROLLER_LOST)

    def _connect_anew(self) -> None:
        with self._sending:
            self._is_up = False
            self._socket.close()
        now = time.monotonic()
        if now - self._up_at > _LASTING_SECONDS:
            # Whoever hangs up at once is no controller: that does not renew the patience.
            self._lost_at = now
        else:
            time.sleep(_PAUSE_SECONDS)
        give_up_at = self._lost_at + self.patience.total_seconds()
        while time.monotonic() < give_up_at:
            try:
                fresh = _connected(self._address)
            except OSError:
                time.sleep(_PAUSE_SECONDS)
                continue
            with self._sending:
                self._socket = fresh
                name, standing = self.greeting()
                if all(self._write(each) for each in (name, *self._kept, *standing)):
                    self._kept.clear()
                    self._is_up = True
                    return
        os._exit(CONTROLLER_LOST)


def _connected(address: tuple[str, int]) -> socket.socket:
    connection = socket.create_connection(address, timeout=10)
    connection.settimeout(None)
    return connection
