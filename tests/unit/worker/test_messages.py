"""Messages of the control connection survive a round trip, one line each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from resurgence.config import settings_from
from resurgence.engine.epochs.profile import EpochProfile, WorkSeconds
from resurgence.engine.epochs.timeline import Work
from resurgence.engine.spark.executors import Executor, ExecutorState
from resurgence.errors import ErrorDomain, RetryHint
from resurgence.graph.model import Graph
from resurgence.ids import Epoch, Generation, JobIdentity, JobName, OperatorId, WorkerId
from resurgence.state.load_plan import LoadPlan
from resurgence.state.records import EpochCounts
from resurgence.worker.messages import (
    FROM_WORKER,
    TO_WORKER,
    CheckpointDamaged,
    Dismissed,
    EpochCommitted,
    EpochProfiled,
    EpochSealed,
    EpochStarted,
    ExecutorAdded,
    ExecutorLostEvent,
    ExecutorsListed,
    FromWorker,
    Heartbeat,
    InputFinished,
    StandBy,
    StandbyReady,
    StartExecution,
    StateRestored,
    StopAfterEpoch,
    TaskFailedEvent,
    ToWorker,
    WorkerConnected,
    WorkerMessage,
    WorkerStopped,
    encode,
)

ONE, FIRST, EPOCH = WorkerId("worker-1"), Generation(1), Epoch(3)

LOST = Executor(
    id="1",
    host="10.0.0.7",
    cores=4,
    state=ExecutorState.LOST,
    active_tasks=0,
    completed_tasks=12,
    failed_tasks=2,
    added_at=datetime(2026, 11, 17, 20, tzinfo=UTC),
    removed_at=datetime(2026, 11, 17, 21, tzinfo=UTC),
    reason="Command exited with code 137",
)

SAID: list[FromWorker] = [
    WorkerConnected(worker=ONE, generation=FIRST, token="t", pid=17),
    StandbyReady(worker=ONE, generation=FIRST, seconds={"spark": 2.5}),
    Heartbeat(worker=ONE, generation=FIRST, epoch=EPOCH, phase="execute", phase_seconds=0.5),
    StateRestored(worker=ONE, generation=FIRST, epoch=EPOCH, seconds={"restore": 0.1}),
    ExecutorsListed(worker=ONE, generation=FIRST, executors=(LOST,)),
    ExecutorAdded(worker=ONE, generation=FIRST, executor=LOST),
    ExecutorLostEvent(worker=ONE, generation=FIRST, epoch=EPOCH, executor=LOST),
    EpochStarted(worker=ONE, generation=FIRST, epoch=EPOCH, rows=10),
    EpochStarted(
        worker=ONE, generation=FIRST, epoch=EPOCH, rows=10, replay=(EPOCH, Epoch(EPOCH + 2))
    ),
    EpochSealed(
        worker=ONE,
        generation=FIRST,
        epoch=EPOCH,
        rows=10,
        bytes=1,
        state_bytes=2,
        seconds=0.5,
        watermark=-1,
        counts=EpochCounts(rows_in={OperatorId("source-1"): 10}),
    ),
    EpochCommitted(worker=ONE, generation=FIRST, epoch=EPOCH),
    EpochProfiled(
        worker=ONE,
        generation=FIRST,
        profile=EpochProfile(
            epoch=EPOCH,
            seconds=0.5,
            work=(WorkSeconds(work=Work.OPERATOR, operator=OperatorId("window-1"), tasks=0.5),),
        ),
    ),
    CheckpointDamaged(worker=ONE, generation=FIRST, epoch=EPOCH, reasons=("a page is wrong",)),
    TaskFailedEvent(
        worker=ONE,
        generation=FIRST,
        operator=OperatorId("window-1"),
        subtask=1,
        epoch=EPOCH,
        error="two\nlines",
        hint="",
        code="task",
        domain=ErrorDomain.USER,
        retry_hint=RetryHint.NO_RETRY,
    ),
    InputFinished(worker=ONE, generation=FIRST, epoch=EPOCH),
    WorkerStopped(worker=ONE, generation=FIRST, epoch=EPOCH),
]
ORDERS: list[ToWorker] = [
    StopAfterEpoch(),
    Dismissed(),
    StandBy(settings=settings_from({"pipeline.heartbeat_interval": "2s"})),
    StartExecution(
        job=JobName("rides"),
        state_url="file:///state",
        graph=Graph(operators=()),
        plan=LoadPlan(job=JobIdentity("j"), generation=FIRST, parallelism=2),
        settings=settings_from({"pipeline.epoch_timeout": "36h", "spark.master": "local[2]"}),
        functions_file=None,
        token="t",
        patience=timedelta(seconds=30),
    ),
]


@pytest.mark.parametrize("message", SAID, ids=lambda message: message.type)
def test_every_message_of_a_worker_survives_a_round_trip(message: FromWorker) -> None:
    line = encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert FROM_WORKER.validate_json(line) == message


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.type)
def test_every_order_survives_a_round_trip(order: ToWorker) -> None:
    assert TO_WORKER.validate_json(encode(order)) == order


def test_every_message_of_a_worker_is_tested_and_carries_its_generation() -> None:
    assert {type(each) for each in SAID} == set(WorkerMessage.__subclasses__())
    for message in SAID:
        tree = message.model_dump(mode="json")
        del tree["generation"]
        with pytest.raises(ValidationError, match="generation"):
            FROM_WORKER.validate_python(tree)
