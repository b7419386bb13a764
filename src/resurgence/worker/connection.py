"""The worker's end of the control connection: orders come in and heartbeats go out on threads of
their own.

Neither thread ever calls Spark, so a hung epoch neither silences the heartbeat nor hides an order.
When the connection is lost the controller is gone or has given this worker up: the process ends at
once, and the JVM with it.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections.abc import Callable
from datetime import timedelta

from resurgence.worker.messages import TO_WORKER, Message, StartExecution, ToWorker, encode

CONTROLLER_LOST = 3
"""Exit status of a worker whose controller went away."""


class ControlConnection:
    """One connection to the controller."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=10)
        self._socket.settimeout(None)
        self._sending = threading.Lock()
        self._orders: queue.Queue[ToWorker] = queue.Queue()
        self.stop_asked = threading.Event()

    def send(self, message: Message) -> None:
        """Say something; if nobody listens any more, end."""
        try:
            with self._sending:
                self._socket.sendall(encode(message))
        except OSError:
            os._exit(CONTROLLER_LOST)

    def listen(self) -> None:
        """Begin to take orders."""
        threading.Thread(target=self._listen, name="orders", daemon=True).start()

    def first_order(self, deadline: timedelta) -> StartExecution:
        """What to run; raises queue.Empty if nothing comes in time."""
        order = self._orders.get(timeout=deadline.total_seconds())
        assert isinstance(order, StartExecution), f"expected an order to start, got {order.type}"
        return order

    def beat(self, interval: timedelta, heartbeat: Callable[[], Message]) -> None:
        """Begin to send heartbeats."""

        def run() -> None:
            pause = threading.Event()
            while not pause.wait(interval.total_seconds()):
                self.send(heartbeat())

        threading.Thread(target=run, name="heartbeat", daemon=True).start()

    def _listen(self) -> None:
        try:
            for line in self._socket.makefile("rb"):
                order = TO_WORKER.validate_json(line)
                if isinstance(order, StartExecution):
                    self._orders.put(order)
                else:
                    self.stop_asked.set()
        except OSError:
            pass
        os._exit(CONTROLLER_LOST)
