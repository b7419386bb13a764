"""What a worker and its controller say to each other: one JSON object per line, over one
connection.

Every message of a worker carries its generation; the controller drops those of any other. Facts are
past, orders are imperative.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from resurgence.config import Duration, Settings
from resurgence.errors import ErrorDomain, RetryHint
from resurgence.graph.model import Graph
from resurgence.ids import Epoch, Generation, JobName, OperatorId, WorkerId
from resurgence.state.load_plan import LoadPlan
from resurgence.state.records import EpochCounts


class Message(BaseModel):
    """Anything that goes over the connection."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class WorkerMessage(Message):
    """Anything that a worker says."""

    worker: WorkerId
    generation: Generation


class WorkerConnected(WorkerMessage):
    """The first word: who I am, and the token of my generation. After a lost connection it is said
    again, and then where I stand.
    """

    type: Literal["worker_connected"] = "worker_connected"
    token: str
    pid: int


class StandbyReady(WorkerMessage):
    """Spark is started and warm; any job's order will do."""

    type: Literal["standby_ready"] = "standby_ready"
    seconds: dict[str, float]


class Heartbeat(WorkerMessage):
    """Still here; and what the engine is at, since how long."""

    type: Literal["heartbeat"] = "heartbeat"
    epoch: Epoch
    phase: str
    phase_seconds: float
    operator: OperatorId | None = None


class StateRestored(WorkerMessage):
    """State is restored and pending commits are done: the job runs. Said anew after a lost
    connection, with the epoch that it has come to.
    """

    type: Literal["state_restored"] = "state_restored"
    epoch: Epoch
    committed_pending: bool = False
    """The epoch's sinks had not been done, and are now."""
    seconds: dict[str, float]


class EpochStarted(WorkerMessage):
    """An epoch's input is fixed."""

    type: Literal["epoch_started"] = "epoch_started"
    epoch: Epoch
    rows: int


class EpochSealed(WorkerMessage):
    """An epoch's checkpoint exists."""

    type: Literal["epoch_sealed"] = "epoch_sealed"
    epoch: Epoch
    rows: int
    bytes: int
    state_bytes: int
    seconds: float
    watermark: int | None
    counts: EpochCounts


class EpochCommitted(WorkerMessage):
    """An epoch's sinks are done."""

    type: Literal["epoch_committed"] = "epoch_committed"
    epoch: Epoch
    profile_seconds: dict[str, float]
    profile_calls: dict[str, int]


class CheckpointDamaged(WorkerMessage):
    """A checkpoint that no one needs at the moment proved unusable."""

    type: Literal["checkpoint_damaged"] = "checkpoint_damaged"
    epoch: Epoch
    reasons: tuple[str, ...]


class TaskFailedEvent(WorkerMessage):
    """Something that the worker ran failed for good. The worker waits for another order if it can
    take one, and exits if not.
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
    """Of the user's own function, if one raised."""
    position: str = ""
    """Where in the input."""
    worker_usable: bool = False
    """Spark is well: the worker can take another generation."""


class InputFinished(WorkerMessage):
    """Bounded input is read to its end and committed."""

    type: Literal["input_finished"] = "input_finished"
    epoch: Epoch


class WorkerStopped(WorkerMessage):
    """The worker did as it was told and stands at this checkpoint."""

    type: Literal["worker_stopped"] = "worker_stopped"
    epoch: Epoch


class StandBy(Message):
    """Start Spark with these settings, warm it, and wait."""

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
    """What to show when the connection was lost."""
    patience: Duration
    """How long to go on without a controller."""


class StopAfterEpoch(Message):
    """Finish the epoch you are in, then stop."""

    type: Literal["stop_after_epoch"] = "stop_after_epoch"


class Dismissed(Message):
    """Nobody expects you: leave, and touch nothing more."""

    type: Literal["dismissed"] = "dismissed"


FromWorker = Annotated[
    WorkerConnected
    | StandbyReady
    | Heartbeat
    | StateRestored
    | EpochStarted
    | EpochSealed
    | EpochCommitted
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
# An order that does not fit is not quoted: its graph may hold secrets.
TO_WORKER: TypeAdapter[ToWorker] = TypeAdapter(
    ToWorker, config=ConfigDict(hide_input_in_errors=True)
)


def encode(message: Message) -> bytes:
    """A message as a line."""
    return message.model_dump_json().encode() + b"\n"
