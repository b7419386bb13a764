"""A worker process without Spark: the real connection, the real messages, the real checkpoints, and
no rows. `python -m tests.integration.stand_in_worker HOST PORT WORKER GENERATION`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from datetime import timedelta

from resurgence.errors import ResurgenceError
from resurgence.ids import Epoch, Generation, WorkerId
from resurgence.worker.connection import ControlConnection
from resurgence.worker.messages import Message, StartExecution
from resurgence.worker.process import TOKEN_VARIABLE
from tests.stand_ins.script import StandInScript

ORDER_DEADLINE = timedelta(minutes=1)


class StandIn:
    """Runs epochs of ten rows, one per interval, until it is stopped or fenced out."""

    def __init__(self, connection: ControlConnection, worker: WorkerId, generation: int) -> None:
        self._connection = connection
        token = os.environ.pop(TOKEN_VARIABLE, "")
        self._script = StandInScript(worker, Generation(generation), token, os.getpid())
        self._last: Message | None = None

    def run(self) -> int:
        script = self._script
        self._connection.greeting = self._greeting
        self._connection.send(script.connected())
        self._connection.listen()
        order = self._connection.next_order(ORDER_DEADLINE)
        assert isinstance(order, StartExecution)
        backend = script.accept(order)
        self._connection.patience = order.patience
        self._connection.new_address = lambda: backend.leases.control_address(script.generation)
        self._connection.beat(order.settings.pipeline.heartbeat_interval, script.heartbeat)
        try:
            return self._execute(order)
        except ResurgenceError as error:
            self._say_last(script.failed(error))
            return 1

    def _execute(self, order: StartExecution) -> int:
        script = self._script
        script.restore()
        script.runs = True
        self._connection.send(script.restored())
        stop = self._connection.stop_requested
        while not stop.wait(order.settings.pipeline.epoch_interval.total_seconds()):
            epoch = Epoch(script.epoch + 1)
            self._connection.send(script.started(epoch))
            script.seal(epoch)
            self._connection.send(script.sealed(epoch))
            script.commit(epoch)
            script.epoch = epoch
            self._connection.send(script.committed(epoch))
        self._say_last(script.stopped())
        self._connection.wait_until_sent()
        return 0

    def _greeting(self) -> tuple[Message, Sequence[Message]]:
        standing = [self._script.restored()] if self._script.runs else []
        return self._script.connected(), [*standing, *([self._last] if self._last else [])]

    def _say_last(self, message: Message) -> None:
        self._last = message
        self._connection.send(message)


def main() -> None:
    host, port, worker, generation = sys.argv[1:5]
    print(f"this is {worker}", file=sys.stderr, flush=True)
    connection = ControlConnection((host, int(port)))
    status = StandIn(connection, WorkerId(worker), int(generation)).run()
    time.sleep(0.05)
    os._exit(status)


if __name__ == "__main__":
    main()
