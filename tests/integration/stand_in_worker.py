"""A worker process without Spark: the real connection, the real messages, the real checkpoints, and
no rows. `python -m tests.integration.stand_in_worker HOST PORT WORKER GENERATION`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from resurgence.errors import ResurgenceError
from resurgence.ids import Epoch, Generation, WorkerId
from resurgence.state.backend import StateBackend
from resurgence.state.records import CommittedRecord, EpochCounts, GenerationRecord
from resurgence.storage.object_store import ObjectStore
from resurgence.worker.connection import ControlConnection
from resurgence.worker.messages import (
    EpochCommitted,
    EpochSealed,
    EpochStarted,
    Heartbeat,
    Message,
    StartExecution,
    StateRestored,
    TaskFailedEvent,
    WorkerConnected,
    WorkerStopped,
)
from resurgence.worker.process import TOKEN_VARIABLE
from tests.unit.state.sealed import seal

ORDER_DEADLINE = timedelta(minutes=1)


class StandIn:
    """Runs epochs of ten rows, one per interval, until it is stopped or fenced out."""

    def __init__(self, connection: ControlConnection, worker: WorkerId, generation: int) -> None:
        self._connection = connection
        self._worker = worker
        self._generation = Generation(generation)
        self._token = os.environ.pop(TOKEN_VARIABLE, "")
        self._epoch = Epoch(0)
        self._runs = False
        self._last: Message | None = None

    def run(self) -> int:
        self._connection.greeting = self._greeting
        self._connection.send(self._name())
        self._connection.listen()
        order = self._connection.next_order(ORDER_DEADLINE)
        assert isinstance(order, StartExecution)
        self._generation, self._token = order.plan.generation, order.token
        self._connection.patience = order.patience
        backend = StateBackend(ObjectStore(order.state_url), order.job)
        self._connection.new_address = lambda: backend.leases.control_address(self._generation)
        self._connection.beat(order.settings.pipeline.heartbeat_interval, self._heartbeat)
        try:
            return self._execute(order, backend)
        except ResurgenceError as error:
            self._say_last(
                TaskFailedEvent(
                    worker=self._worker,
                    generation=self._generation,
                    operator=None,
                    subtask=None,
                    epoch=Epoch(self._epoch + 1),
                    error=error.message,
                    hint=error.hint,
                    code=error.code,
                    domain=error.domain,
                    retry_hint=error.retry_hint,
                )
            )
            return 1

    def _execute(self, order: StartExecution, backend: StateBackend) -> int:
        plan = order.plan
        claim = GenerationRecord(
            job=plan.job,
            generation=plan.generation,
            claimed_at=datetime.now(UTC),
            claimed_by="its controller",
        )
        self._epoch = plan.epoch
        if plan.commit_pending and plan.manifest is not None:
            self._commit(backend, claim, plan.epoch)
        self._runs = True
        self._connection.send(self._standing())
        stop = self._connection.stop_requested
        while not stop.wait(order.settings.pipeline.epoch_interval.total_seconds()):
            epoch = Epoch(self._epoch + 1)
            who = {"worker": self._worker, "generation": self._generation, "epoch": epoch}
            self._connection.send(EpochStarted.model_validate({**who, "rows": 10}))
            now = datetime.now(UTC)
            seal(
                backend, order.graph, epoch, rows=0, is_committed=False, sealed_at=now, claim=claim
            )
            sealed = {"rows": 10, "bytes": 1, "state_bytes": 1, "seconds": 0.1, "watermark": None}
            self._connection.send(
                EpochSealed.model_validate({**who, **sealed, "counts": EpochCounts()})
            )
            self._commit(backend, claim, epoch)
            self._epoch = epoch
            self._connection.send(
                EpochCommitted.model_validate({**who, "profile_seconds": {}, "profile_calls": {}})
            )
        self._say_last(
            WorkerStopped(worker=self._worker, generation=self._generation, epoch=self._epoch)
        )
        self._connection.wait_until_sent()
        return 0

    def _commit(self, backend: StateBackend, claim: GenerationRecord, epoch: Epoch) -> None:
        backend.record_committed(
            CommittedRecord(
                job=claim.job,
                epoch=epoch,
                generation=claim.generation,
                inputs={},
                committed_at=datetime.now(UTC),
            )
        )

    def _name(self) -> WorkerConnected:
        return WorkerConnected(
            worker=self._worker, generation=self._generation, token=self._token, pid=os.getpid()
        )

    def _standing(self) -> StateRestored:
        return StateRestored(
            worker=self._worker, generation=self._generation, epoch=self._epoch, seconds={}
        )

    def _greeting(self) -> tuple[Message, Sequence[Message]]:
        standing = [self._standing()] if self._runs else []
        return self._name(), [*standing, *([self._last] if self._last else [])]

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(
            worker=self._worker,
            generation=self._generation,
            epoch=self._epoch,
            phase="idle" if self._runs else "start",
            phase_seconds=0.0,
        )

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
