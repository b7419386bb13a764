"""Whatever messages workers send, in whatever order, the invariants of the detector hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from resurgence.control.detection.running_job_model import RunningJobModel, WorkerState
from resurgence.errors import ErrorDomain, RetryHint
from resurgence.ids import Epoch, Generation, WorkerId
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

TIMEOUT = timedelta(seconds=10)
EPOCH_TIMEOUT = timedelta(seconds=60)
WORKING = ("plan", "execute", "publish", "commit")


@dataclass
class Player:
    """A worker as it is: what it says next follows from what it has done."""

    name: WorkerId
    generation: Generation
    epoch: Epoch
    is_restored: bool = False
    step: int = 0
    is_done: bool = False
    outbox: list[FromWorker] = field(default_factory=list)

    def say(self, message: FromWorker) -> FromWorker:
        self.outbox.append(message)
        return message

    def next_word(self) -> FromWorker:
        who = {"worker": self.name, "generation": self.generation, "epoch": self.epoch}
        if not self.is_restored:
            self.is_restored = True
            return self.say(StateRestored.model_validate({**who, "seconds": {}}))
        self.step = (self.step + 1) % 3
        if self.step == 1:
            self.epoch = Epoch(self.epoch + 1)
            return self.say(EpochStarted.model_validate({**who, "epoch": self.epoch, "rows": 10}))
        if self.step == 2:
            return self.say(
                EpochSealed.model_validate(
                    {
                        **who,
                        "rows": 10,
                        "bytes": 1,
                        "state_bytes": 1,
                        "seconds": 0.1,
                        "watermark": None,
                        "counts": EpochCounts(),
                    }
                )
            )
        return self.say(EpochCommitted.model_validate(who))


class Detector(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model = RunningJobModel(heartbeat_timeout=TIMEOUT, epoch_timeout=EPOCH_TIMEOUT)
        self.now = datetime(2030, 1, 1, tzinfo=UTC)
        self.past: list[Player] = []
        self.first_failure: str | None = None
        self.exited = False
        self.stopped = False
        self.heard_at = self.now

    @initialize()
    def first_worker(self) -> None:
        self.start(0)

    def start(self, epoch: int) -> None:
        number = len(self.past) + 1
        self.player = Player(WorkerId(f"worker-{number}"), Generation(number), Epoch(epoch))
        self.model.expect(self.player.name, self.player.generation, 1000 + number, self.now)
        self.first_failure = None
        self.exited = self.stopped = False
        self.heard_at = self.now

    def hear(self, message: FromWorker) -> None:
        assert self.model.observe(message, self.now)
        self.heard_at = self.now

    # ---------------------------------------------------------------- what happens

    @rule(back=st.integers(0, 2))
    def a_new_worker_is_started(self, back: int) -> None:
        self.past.append(self.player)
        self.start(max(0, self.model.sealed_epoch - back))

    @rule(seconds=st.sampled_from([0.1, 1, 9.9, 10, 30, 60]))
    def time_goes_by(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    @precondition(lambda self: not self.stopped and not self.exited)
    @rule()
    def the_worker_goes_on(self) -> None:
        self.hear(self.player.next_word())

    @precondition(lambda self: not self.stopped and not self.exited)
    @rule(phase=st.sampled_from(["idle", *WORKING]), age=st.sampled_from([0.0, 5.0, 59.9, 60.0]))
    def the_worker_beats(self, phase: str, age: float) -> None:
        self.hear(
            self.player.say(
                Heartbeat(
                    worker=self.player.name,
                    generation=self.player.generation,
                    epoch=self.player.epoch,
                    phase=phase,
                    phase_seconds=age,
                )
            )
        )

    @precondition(lambda self: not self.stopped and not self.exited)
    @rule(error=st.sampled_from(["one", "two"]))
    def the_worker_reports_a_failure(self, error: str) -> None:
        self.first_failure = self.first_failure or error
        self.hear(
            self.player.say(
                TaskFailedEvent(
                    worker=self.player.name,
                    generation=self.player.generation,
                    operator=None,
                    subtask=None,
                    epoch=self.player.epoch,
                    error=error,
                    hint="",
                    code="task",
                    domain=ErrorDomain.INTERNAL,
                    retry_hint=RetryHint.WITH_BACKOFF,
                )
            )
        )

    @precondition(lambda self: not self.stopped and not self.exited)
    @rule(kind=st.sampled_from([WorkerStopped, InputFinished]))
    def the_worker_stops(self, kind: type[WorkerStopped] | type[InputFinished]) -> None:
        self.stopped = True
        self.hear(
            self.player.say(
                kind(
                    worker=self.player.name,
                    generation=self.player.generation,
                    epoch=self.player.epoch,
                )
            )
        )

    @precondition(lambda self: not self.exited)
    @rule(status=st.sampled_from([0, 1, -9]))
    def the_worker_exits(self, status: int) -> None:
        self.model.note_exit(self.player.name, status, self.now)
        self.exited = True

    @precondition(lambda self: any(each.outbox for each in self.past))
    @rule(data=st.data())
    def an_old_worker_is_heard_late(self, data: st.DataObject) -> None:
        words = [message for player in self.past for message in player.outbox]
        assert not self.model.observe(data.draw(st.sampled_from(words)), self.now)

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def an_old_worker_exits_late(self, data: st.DataObject) -> None:
        self.model.note_exit(data.draw(st.sampled_from(self.past)).name, -9, self.now)

    @rule(name=st.sampled_from([None, "stranger"]), away=st.sampled_from([-1, 0, 1]))
    def a_stranger_speaks(self, name: str | None, away: int) -> None:
        """By another name, or by this one from another generation."""
        if name is None and away == 0:
            return
        message = WorkerConnected(
            worker=WorkerId(name or self.player.name),
            generation=Generation(self.player.generation + away),
            token="",
            pid=1,
        )
        assert not self.model.observe(message, self.now)

    # ---------------------------------------------------------------- what must hold

    @invariant()
    def only_the_newest_worker_is_known(self) -> None:
        (status,) = self.model.workers
        assert (status.worker, status.generation) == (self.player.name, self.player.generation)
        assert self.model.generation == self.player.generation

    @invariant()
    def what_is_committed_is_sealed(self) -> None:
        assert self.model.committed_epoch <= self.model.sealed_epoch
        assert all(epoch > self.model.committed_epoch for epoch in self.model.started_rows)
        assert len(self.model.started_rows) <= 1

    @invariant()
    def a_restored_worker_agrees_with_the_model(self) -> None:
        assert (self.model.restored is not None) == self.player.is_restored
        if self.player.is_restored:
            assert self.model.sealed_epoch == self.player.epoch - (self.player.step == 1)

    @invariant()
    def the_first_failure_is_kept(self) -> None:
        failure = self.model.task_failed()
        assert (failure.error if failure else None) == self.first_failure

    @invariant()
    def an_exit_is_a_failure_unless_the_worker_had_stopped(self) -> None:
        assert (self.model.worker_exited() is not None) == (self.exited and not self.stopped)
        assert self.model.all_stopped() == self.stopped

    @invariant()
    def only_a_running_worker_times_out_or_stalls(self) -> None:
        (status,) = self.model.workers
        is_running = self.player.is_restored and not self.stopped and not self.exited
        assert (status.state is WorkerState.RUNNING) == is_running
        is_silent = self.now - self.heard_at >= TIMEOUT
        assert (self.model.worker_timedout(self.now) is not None) == (is_running and is_silent)
        if not is_running or status.phase == "idle":
            assert self.model.progress_stalled(self.now) is None


TestDetector = Detector.TestCase
TestDetector.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
