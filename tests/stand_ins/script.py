"""What a stand-in worker says and stores, whatever runs it: a process of its own (`tests.integration`)
or one task among a thousand (`worker_host`).
"""

from __future__ import annotations

from datetime import UTC, datetime

from resurgence.errors import ResurgenceError
from resurgence.ids import Epoch, Generation, WorkerId
from resurgence.state.backend import StateBackend
from resurgence.state.records import CommittedRecord, EpochCounts, GenerationRecord
from resurgence.storage.object_store import ObjectStore
from resurgence.worker.messages import (
    EpochCommitted,
    EpochSealed,
    EpochStarted,
    Heartbeat,
    StartExecution,
    StateRestored,
    TaskFailedEvent,
    WorkerConnected,
    WorkerStopped,
)
from tests.unit.state.sealed import seal

ROWS = 10
"""Of every epoch."""


class StandInScript:
    """The state of a stand-in worker, as messages and checkpoints. No I/O but that of `seal` and
    `commit`.
    """

    def __init__(self, worker: WorkerId, generation: Generation, token: str, pid: int) -> None:
        self._worker = worker
        self._token = token
        self._pid = pid
        self.generation = generation
        self.epoch = Epoch(0)
        """The last committed epoch."""
        self.runs = False
        self._claim: GenerationRecord | None = None
        self._order: StartExecution | None = None
        self._backend: StateBackend | None = None

    def accept(self, order: StartExecution) -> StateBackend:
        """Take an order to start. Return the checkpoints of its job."""
        plan = order.plan
        self._order, self._token = order, order.token
        self.generation, self.epoch = plan.generation, plan.epoch
        self._claim = GenerationRecord(
            job=plan.job,
            generation=plan.generation,
            claimed_at=datetime.now(UTC),
            claimed_by="its controller",
        )
        self._backend = StateBackend(ObjectStore(order.state_url), order.job)
        return self._backend

    # ---------------------------------------------------------------- checkpoints

    def restore(self) -> None:
        """Complete a pending commit. Blocks."""
        assert self._order is not None
        plan = self._order.plan
        if plan.commit_pending and plan.manifest is not None:
            self.commit(plan.epoch)

    def seal(self, epoch: Epoch) -> None:
        """Publish the checkpoint of an epoch. Blocks."""
        assert self._order is not None
        assert self._backend is not None
        seal(
            self._backend,
            self._order.graph,
            epoch,
            rows=0,
            is_committed=False,
            sealed_at=datetime.now(UTC),
            claim=self._claim,
        )

    def commit(self, epoch: Epoch) -> None:
        """Record that the sinks of an epoch have committed. Blocks."""
        assert self._backend is not None
        assert self._claim is not None
        self._backend.record_committed(
            CommittedRecord(
                job=self._claim.job,
                epoch=epoch,
                generation=self._claim.generation,
                inputs={},
                committed_at=datetime.now(UTC),
            )
        )

    # ---------------------------------------------------------------- messages

    def connected(self) -> WorkerConnected:
        return WorkerConnected(
            worker=self._worker, generation=self.generation, token=self._token, pid=self._pid
        )

    def restored(self) -> StateRestored:
        return StateRestored(
            worker=self._worker, generation=self.generation, epoch=self.epoch, seconds={}
        )

    def heartbeat(self) -> Heartbeat:
        return Heartbeat(
            worker=self._worker,
            generation=self.generation,
            epoch=self.epoch,
            phase="idle" if self.runs else "start",
            phase_seconds=0.0,
        )

    def started(self, epoch: Epoch) -> EpochStarted:
        return EpochStarted(worker=self._worker, generation=self.generation, epoch=epoch, rows=ROWS)

    def sealed(self, epoch: Epoch) -> EpochSealed:
        return EpochSealed(
            worker=self._worker,
            generation=self.generation,
            epoch=epoch,
            rows=ROWS,
            bytes=1,
            state_bytes=1,
            seconds=0.1,
            watermark=None,
            counts=EpochCounts(),
        )

    def committed(self, epoch: Epoch) -> EpochCommitted:
        return EpochCommitted(
            worker=self._worker,
            generation=self.generation,
            epoch=epoch,
        )

    def stopped(self) -> WorkerStopped:
        return WorkerStopped(worker=self._worker, generation=self.generation, epoch=self.epoch)

    def failed(self, error: ResurgenceError) -> TaskFailedEvent:
        return TaskFailedEvent(
            worker=self._worker,
            generation=self.generation,
            operator=None,
            subtask=None,
            epoch=Epoch(self.epoch + 1),
            error=error.message,
            hint=error.hint,
            code=error.code,
            domain=error.domain,
            retry_hint=error.retry_hint,
        )
