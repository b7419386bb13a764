"""The failure detector: which facts count, and from which instant."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from resurgence.control.detection.running_job_model import RunningJobModel, WorkerState
from resurgence.errors import ErrorDomain, RetryHint
from resurgence.ids import Epoch, Generation, OperatorId, WorkerId
from resurgence.state.records import EpochCounts
from resurgence.worker.messages import (
    EpochCommitted,
    EpochSealed,
    EpochStarted,
    FromWorker,
    Heartbeat,
    InputFinished,
    StateRestored,
    TaskFailedEvent,
    WorkerConnected,
    WorkerStopped,
)

START = datetime(2030, 1, 1, tzinfo=UTC)
TIMEOUT = timedelta(seconds=10)
EPOCH_TIMEOUT = timedelta(minutes=10)
ONE = WorkerId("worker-1")
TWO = WorkerId("worker-2")
INSTANT = timedelta(microseconds=1)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def heartbeat(phase: str = "execute", age: float = 0.0, generation: int = 1) -> Heartbeat:
    return Heartbeat(
        worker=ONE,
        generation=Generation(generation),
        epoch=Epoch(1),
        phase=phase,
        phase_seconds=age,
        operator=OperatorId("window-1"),
    )


def restored(epoch: int = 3, *, worker: WorkerId = ONE, generation: int = 1) -> StateRestored:
    return StateRestored(
        worker=worker, generation=Generation(generation), epoch=Epoch(epoch), seconds={}
    )


def started(epoch: int, rows: int) -> EpochStarted:
    return EpochStarted(worker=ONE, generation=Generation(1), epoch=Epoch(epoch), rows=rows)


def sealed(epoch: int) -> EpochSealed:
    return EpochSealed(
        worker=ONE,
        generation=Generation(1),
        epoch=Epoch(epoch),
        rows=0,
        bytes=0,
        state_bytes=0,
        seconds=0.0,
        watermark=None,
        counts=EpochCounts(),
    )


def committed(epoch: int) -> EpochCommitted:
    return EpochCommitted(
        worker=ONE,
        generation=Generation(1),
        epoch=Epoch(epoch),
    )


def task_failed(error: str, *, worker: WorkerId = ONE, generation: int = 1) -> TaskFailedEvent:
    return TaskFailedEvent(
        worker=worker,
        generation=Generation(generation),
        operator=None,
        subtask=None,
        epoch=Epoch(4),
        error=error,
        hint="",
        code="task",
        domain=ErrorDomain.INTERNAL,
        retry_hint=RetryHint.WITH_BACKOFF,
    )


FINISHED = InputFinished(worker=ONE, generation=Generation(1), epoch=Epoch(9))
STOPPED = WorkerStopped(worker=ONE, generation=Generation(1), epoch=Epoch(9))
CONNECTED = WorkerConnected(worker=ONE, generation=Generation(1), token="t", pid=99)


@pytest.fixture
def model() -> RunningJobModel:
    """Knows of one worker, of generation 1, that was just started."""
    fresh = RunningJobModel(heartbeat_timeout=TIMEOUT, epoch_timeout=EPOCH_TIMEOUT)
    fresh.expect(ONE, Generation(1), 17, START)
    return fresh


@pytest.fixture
def running(model: RunningJobModel) -> RunningJobModel:
    """Its worker has restored epoch 3."""
    assert model.observe(restored(), START)
    return model


# ---------------------------------------------------------------- silence


def test_a_running_worker_is_timed_out_exactly_at_the_timeout(running: RunningJobModel) -> None:
    assert running.worker_timedout(START + TIMEOUT - INSTANT) is None
    found = running.worker_timedout(START + TIMEOUT)
    assert found is not None
    assert (found.worker, found.pid) == (ONE, 17)


@pytest.mark.parametrize(
    "message",
    [heartbeat(), started(4, 10), sealed(4), committed(4), task_failed("x"), CONNECTED],
    ids=lambda message: message.type,
)
def test_every_message_counts_as_a_heartbeat(running: RunningJobModel, message: FromWorker) -> None:
    assert running.observe(message, after(5))
    assert running.worker_timedout(after(5) + TIMEOUT - INSTANT) is None
    assert running.worker_timedout(after(5) + TIMEOUT) is not None


def starts(model: RunningJobModel) -> None:
    model.observe(heartbeat("start"), START)


def is_stopped(model: RunningJobModel) -> None:
    model.observe(restored(), START)
    model.observe(STOPPED, START)


def is_finished(model: RunningJobModel) -> None:
    model.observe(restored(), START)
    model.observe(FINISHED, START)


def has_exited(model: RunningJobModel) -> None:
    model.observe(restored(), START)
    model.note_exit(ONE, -9, START)


@pytest.mark.parametrize("happened", [starts, is_stopped, is_finished, has_exited])
def test_only_running_workers_time_out_or_stall(
    model: RunningJobModel, happened: Callable[[RunningJobModel], None]
) -> None:
    happened(model)
    assert model.worker_timedout(START + timedelta(days=1)) is None
    assert model.progress_stalled(START + timedelta(days=1)) is None


def test_a_worker_that_never_sent_a_message_does_not_time_out(model: RunningJobModel) -> None:
    assert model.worker_timedout(START + timedelta(days=1)) is None


# ---------------------------------------------------------------- task failures


def test_the_first_task_failure_is_kept(running: RunningJobModel) -> None:
    assert running.task_failed() is None
    running.observe(task_failed("the cause"), after(1))
    running.observe(task_failed("a consequence"), after(2))
    found = running.task_failed()
    assert found is not None
    assert found.error == "the cause"


# ---------------------------------------------------------------- standing still


def test_an_epoch_stalls_exactly_when_its_phase_is_as_old_as_the_timeout(
    running: RunningJobModel,
) -> None:
    running.observe(heartbeat("execute", age=5.0), after(60))
    began_at = after(55)
    assert running.progress_stalled(began_at + EPOCH_TIMEOUT - INSTANT) is None
    stalled = running.progress_stalled(began_at + EPOCH_TIMEOUT)
    assert stalled is not None
    assert (stalled.epoch, stalled.phase) == (Epoch(4), "execute")
    assert (stalled.operator, stalled.stalled_for) == (OperatorId("window-1"), EPOCH_TIMEOUT)


def test_heartbeats_of_the_same_phase_do_not_reset_its_age(running: RunningJobModel) -> None:
    for second in range(0, 601, 100):
        running.observe(heartbeat("execute", age=float(second)), after(second))
    assert running.worker_timedout(after(600)) is None
    assert running.progress_stalled(after(600)) is not None


def test_the_next_phase_starts_with_age_zero(running: RunningJobModel) -> None:
    running.observe(heartbeat("execute", age=599.0), after(599))
    running.observe(heartbeat("publish", age=0.0), after(600))
    assert running.progress_stalled(after(601)) is None


def test_an_idle_worker_never_stalls(running: RunningJobModel) -> None:
    running.observe(heartbeat("idle", age=86_400.0), after(86_400))
    assert running.progress_stalled(after(86_400)) is None


def test_a_commit_that_stalls_is_of_the_epoch_that_was_sealed(running: RunningJobModel) -> None:
    running.observe(sealed(4), after(1))
    running.observe(heartbeat("commit", age=600.0), after(601))
    stalled = running.progress_stalled(after(601))
    assert stalled is not None
    assert stalled.epoch == 4


# ---------------------------------------------------------------- other generations


@pytest.mark.parametrize(
    "message",
    [
        heartbeat(generation=2),
        restored(8, generation=2),
        restored(8, worker=TWO),
        task_failed("of before", worker=TWO),
        task_failed("of before", generation=2),
    ],
    ids=["heartbeat", "restored", "restored by a stranger", "a stranger's failure", "failure"],
)
def test_messages_of_another_generation_or_an_unknown_worker_are_dropped(
    model: RunningJobModel, message: FromWorker
) -> None:
    before = model.workers
    assert not model.observe(message, after(5))
    assert model.workers == before
    assert (model.restored, model.task_failed(), model.sealed_epoch) == (None, None, 0)


def test_messages_of_a_worker_of_the_previous_run_are_dropped(
    running: RunningJobModel,
) -> None:
    running.expect(TWO, Generation(2), 18, after(20))
    late_words: list[FromWorker] = [
        heartbeat(),
        restored(),
        started(4, 1),
        sealed(4),
        committed(4),
        task_failed("of before"),
        FINISHED,
        STOPPED,
    ]
    for message in late_words:
        assert not running.observe(message, after(21))
    running.note_exit(ONE, -9, after(22))
    (status,) = running.workers
    assert (status.worker, status.state, status.last_heard_at) == (
        TWO,
        WorkerState.STARTING,
        after(20),
    )
    assert running.worker_exited() is None
    assert running.task_failed() is None
    assert not running.finished
    assert not running.all_stopped()


def test_a_reused_name_does_not_let_old_messages_in(running: RunningJobModel) -> None:
    running.expect(ONE, Generation(2), 18, after(20))
    assert not running.observe(task_failed("of before"), after(21))
    assert running.observe(restored(5, generation=2), after(22))


def test_expecting_a_new_generation_discards_the_facts_of_older_ones(
    running: RunningJobModel,
) -> None:
    running.observe(started(4, 100), after(1))
    running.observe(task_failed("x"), after(1))
    running.observe(FINISHED, after(1))
    running.expect(TWO, Generation(2), 18, after(20))
    assert running.task_failed() is None
    assert running.restored is None
    assert not running.finished
    assert running.started_rows == {}


# ---------------------------------------------------------------- exits


def test_an_unexpected_exit_is_a_failure(running: RunningJobModel) -> None:
    running.note_exit(ONE, -9, after(1))
    found = running.worker_exited()
    assert found is not None
    assert found.exit_status == -9


def test_an_exit_while_starting_is_a_failure(model: RunningJobModel) -> None:
    model.note_exit(ONE, 1, after(1))
    assert model.worker_exited() is not None


@pytest.mark.parametrize("last_word", [STOPPED, FINISHED], ids=["stopped", "finished"])
def test_an_exit_after_a_stop_is_no_failure(
    running: RunningJobModel, last_word: FromWorker
) -> None:
    running.observe(last_word, after(1))
    running.note_exit(ONE, 0, after(2))
    assert running.worker_exited() is None
    assert running.all_stopped()


def test_the_first_exit_status_is_kept(running: RunningJobModel) -> None:
    running.note_exit(ONE, -9, after(1))
    running.note_exit(ONE, 0, after(2))
    found = running.worker_exited()
    assert found is not None
    assert found.exit_status == -9


# ---------------------------------------------------------------- epochs


def test_restored_state_counts_as_sealed_and_committed(running: RunningJobModel) -> None:
    assert (running.sealed_epoch, running.committed_epoch) == (3, 3)


def test_rows_of_started_epochs_are_remembered_until_they_are_sealed(
    running: RunningJobModel,
) -> None:
    running.observe(started(4, 100), after(1))
    assert running.started_rows == {4: 100}
    running.observe(sealed(4), after(2))
    assert running.started_rows == {}
    assert (running.sealed_epoch, running.committed_epoch) == (4, 3)
    running.observe(committed(4), after(3))
    assert (running.sealed_epoch, running.committed_epoch) == (4, 4)


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [heartbeat("idle")],
        [heartbeat("execute", age=3.0)],
        [heartbeat("execute", age=EPOCH_TIMEOUT.total_seconds() - 4)],
        [heartbeat("execute", age=3.0), sealed(4), committed(4)],
    ],
)
def test_a_failure_is_due_exactly_when_the_detector_finds_one(
    running: RunningJobModel, messages: list[FromWorker]
) -> None:
    for message in messages:
        running.observe(message, after(1))
    due_at = after(1) + running.due_in(after(1))

    def fails(at: datetime) -> bool:
        return bool(running.worker_timedout(at) or running.progress_stalled(at))

    assert not fails(due_at - timedelta(milliseconds=1))
    assert fails(due_at)


def test_a_failure_that_is_overdue_is_due_now(running: RunningJobModel) -> None:
    assert running.due_in(after(1000)) == timedelta(0)


def test_a_worker_that_does_not_run_is_never_due_before_a_timeout(model: RunningJobModel) -> None:
    assert model.due_in(after(1000)) == TIMEOUT
