"""The messages between a worker and its controller: one JSON object per line, over one connection.

Every message of a worker carries its generation; the controller drops messages of any other. Events
are named in the past tense, orders in the imperative.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from resurgence.config import Duration, Settings
from resurgence.engine.epochs.lag import LagSummary
from resurgence.engine.epochs.profile import EpochProfile
from resurgence.engine.spark.executors import Executor
from resurgence.errors import ErrorDomain, RetryHint
from resurgence.graph.model import Graph
from resurgence.ids import Epoch, Generation, JobName, OperatorId, WorkerId
from resurgence.state.load_plan import LoadPlan
from resurgence.state.protocol.decisions import EpochRange
from resurgence.state.records import EpochCounts


class Message(BaseModel):
    """A message in either direction."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class WorkerMessage(Message):
    """A message of a worker."""

    worker: WorkerId
    generation: Generation


class WorkerConnected(WorkerMessage):
    """The first message: identifies the worker by the token of its generation. After a reconnect it
    is sent again, followed by the status.
    """

    type: Literal["worker_connected"] = "worker_connected"
    token: str
    pid: int


class StandbyReady(WorkerMessage):
    """Spark is started and warm: the worker can run any job."""

    type: Literal["standby_ready"] = "standby_ready"
    seconds: dict[str, float]


class Heartbeat(WorkerMessage):
    """The worker is alive; with the phase of its engine and the time in that phase."""

    type: Literal["heartbeat"] = "heartbeat"
    epoch: Epoch
    phase: str
    phase_seconds: float
    operator: OperatorId | None = None


class StateRestored(WorkerMessage):
    """State is restored and pending commits are done: the job runs. Sent again after a reconnect,
    with the current epoch.
    """

    type: Literal["state_restored"] = "state_restored"
    epoch: Epoch
    committed_pending: bool = False
    """The sinks of the epoch had not committed, and now have."""
    seconds: dict[str, float]


class ExecutorsListed(WorkerMessage):
    """The executors of the worker's Spark application have changed. Sent again after a reconnect.
    Not sent with a local master, which has none.
    """

    type: Literal["executors_listed"] = "executors_listed"
    executors: tuple[Executor, ...]


class ExecutorAdded(WorkerMessage):
    """Spark got an executor."""

    type: Literal["executor_added"] = "executor_added"
    executor: Executor


class ExecutorLostEvent(WorkerMessage):
    """Spark lost an executor. It re-runs the executor's tasks elsewhere."""

    type: Literal["executor_lost"] = "executor_lost"
    epoch: Epoch
    executor: Executor


class EpochStarted(WorkerMessage):
    """The input of an epoch is fixed."""

    type: Literal["epoch_started"] = "epoch_started"
    epoch: Epoch
    rows: int
    replay: EpochRange | None = None
    """The epochs that are replayed over recorded input, if this is one of them."""


class EpochSealed(WorkerMessage):
    """The checkpoint of an epoch exists."""

    type: Literal["epoch_sealed"] = "epoch_sealed"
    epoch: Epoch
    rows: int
    bytes: int
    state_bytes: int
    cache_hits: int = 0
    cache_misses: int = 0
    seconds: float
    watermark: int | None
    counts: EpochCounts


class EpochCommitted(WorkerMessage):
    """The sinks of an epoch have committed."""

    type: Literal["epoch_committed"] = "epoch_committed"
    epoch: Epoch
    phases: dict[str, float] = {}
    """Seconds by kind of work, up to now."""
    operators: dict[OperatorId, float] = {}
    """Seconds by operator."""
    lag: LagSummary | None = None
    """None: no source has partitions."""


class EpochProfiled(WorkerMessage):
    """Where the time of an epoch went. Sent only if the job is profiled."""

    type: Literal["epoch_profiled"] = "epoch_profiled"
    profile: EpochProfile


class CheckpointDamaged(WorkerMessage):
    """Verification found a checkpoint unusable before a restore needed it."""

    type: Literal["checkpoint_damaged"] = "checkpoint_damaged"
    epoch: Epoch
    reasons: tuple[str, ...]


class TaskFailedEvent(WorkerMessage):
    """An order failed for good. The worker waits for another one if it is usable, and exits if
    not.
    """

    type: Literal["task_failed"] = "task_failed"
    operator: OperatorId | None
    subtask: int | None
    epoch: Epoch
    error: str
    hint: str
    code: str
    domain: ErrorDomain
    retry_hint: RetryHint
    damaged_path: str | None = None
    line: int | None = None
    column: int | None = None
    traceback: str = ""
    """Of the user's function, if one raised."""
    position: str = ""
    """The position in the input."""
    worker_usable: bool = False
    """Spark can be reused: the worker can run another generation."""


class InputFinished(WorkerMessage):
    """Bounded input is read to its end and committed."""

    type: Literal["input_finished"] = "input_finished"
    epoch: Epoch


class WorkerStopped(WorkerMessage):
    """The worker stopped as ordered, after this checkpoint."""

    type: Literal["worker_stopped"] = "worker_stopped"
    epoch: Epoch


class StandBy(Message):
    """Start Spark with these settings, warm it up, and wait."""

    type: Literal["stand_by"] = "stand_by"
    settings: Settings


class StartExecution(Message):
    """Run this graph from this load plan, as the plan's generation."""

    type: Literal["start_execution"] = "start_execution"
    job: JobName
    state_url: str
    graph: Graph
    plan: LoadPlan
    settings: Settings
    functions_file: str | None
    token: str
    """Identifies the worker after a reconnect."""
    patience: Duration
    """How long to keep running without a controller."""


class StopAfterEpoch(Message):
    """Finish the current epoch, then stop."""

    type: Literal["stop_after_epoch"] = "stop_after_epoch"


class Dismissed(Message):
    """The controller does not expect this worker: exit, and change nothing more."""

    type: Literal["dismissed"] = "dismissed"


FromWorker = Annotated[
    WorkerConnected
    | StandbyReady
    | Heartbeat
    | ExecutorsListed
    | ExecutorAdded
    | ExecutorLostEvent
    | StateRestored
    | EpochStarted
    | EpochSealed
    | EpochCommitted
    | EpochProfiled
    | CheckpointDamaged
    | TaskFailedEvent
    | InputFinished
    | WorkerStopped,
    Field(discriminator="type"),
]
ToWorker = Annotated[
    StandBy | StartExecution | StopAfterEpoch | Dismissed, Field(discriminator="type")
]

FROM_WORKER: TypeAdapter[FromWorker] = TypeAdapter(FromWorker)
# Errors do not quote an invalid order, because its graph may contain secrets.
TO_WORKER: TypeAdapter[ToWorker] = TypeAdapter(
    ToWorker, config=ConfigDict(hide_input_in_errors=True)
)


def encode(message: Message) -> bytes:
    """Return a message as a line of JSON."""
    return message.model_dump_json().encode() + b"\n"
