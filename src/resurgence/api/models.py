"""What requests may say and what answers look like.

Requests are bounded in every direction and refuse what they do not know. Answers may gain fields in
a later release: whoever reads them ignores what is new.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from resurgence.control.jobs.job_record import StopMode, Wanted
from resurgence.control.jobs.transitions import StateName
from resurgence.errors import ErrorDomain

JOB_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$"
"""As `ids.job_name` has it."""
LONGEST_TEXT = 1_000_000
MOST_SETTINGS = 200
_NO_NUL = r"^[^\x00]*$"
"""No database keeps a NUL."""

_EXAMPLE = """\
CREATE TABLE ticks WITH (connector = 'impulse', event_rate = '10');
CREATE TABLE nowhere (counter BIGINT) WITH (connector = 'blackhole', type = 'sink');
INSERT INTO nowhere SELECT counter FROM ticks;
"""

JobNameText = Annotated[
    str, Field(pattern=JOB_NAME, max_length=100, description="A job's name.", examples=["rides"])
]
LongText = Annotated[str, Field(max_length=LONGEST_TEXT, pattern=_NO_NUL)]
Sql = Annotated[
    LongText,
    Field(
        min_length=1,
        description="The pipeline. Relative paths are relative to the service's working directory.",
        examples=[_EXAMPLE],
    ),
]
Functions = Annotated[
    LongText | None, Field(description="The text of a Python module with functions for the SQL.")
]
SettingKey = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,200}$")]
SettingValue = Annotated[str, Field(max_length=10_000, pattern=_NO_NUL)]
JobSettings = Annotated[
    dict[SettingKey, SettingValue],
    Field(
        max_length=MOST_SETTINGS,
        description="Settings by their dotted keys.",
        examples=[{"pipeline.parallelism": "4"}],
    ),
]


class Request(BaseModel):
    """What a client sends."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class JobRequest(Request):
    """A new job."""

    name: JobNameText
    sql: Sql
    functions: Functions = None
    settings: JobSettings = Field(default_factory=dict)
    state_url: Annotated[str, Field(max_length=2000, pattern=_NO_NUL)] | None = Field(
        default=None,
        description="Where its state is kept; by default with the service's other jobs.",
    )
    start: bool = Field(default=True, description="Whether it is to run at once.")


class PipelineRequest(Request):
    """An edited pipeline: it replaces the whole of the one before, settings included."""

    sql: Sql
    functions: Functions = None
    settings: JobSettings = Field(default_factory=dict)


class StopRequest(Request):
    """How to stop a job."""

    mode: StopMode = StopMode.CHECKPOINT


class RestartRequest(Request):
    """How to restart a job."""

    force: bool = Field(default=False, description="Do not wait for a checkpoint.")
    without_state: bool = Field(default=False, description="Begin from nothing, this once.")


class RescaleRequest(Request):
    """Another number of subtasks."""

    parallelism: int = Field(ge=1, le=64)


class RollbackRequest(Request):
    """Which checkpoint to go back to."""

    to_epoch: int = Field(ge=0, description="The checkpoint to go on from; 0: the beginning.")
    accept_duplicates: bool = Field(
        default=False, description="Also if a sink cannot take back what it has written."
    )


class ErrorDetail(BaseModel):
    """What went wrong, whose it is to mend, and what to do."""

    code: str
    message: str
    hint: str = ""
    domain: ErrorDomain
    line: int | None = Field(default=None, description="Where in the SQL, from 1.")
    column: int | None = None


class ErrorAnswer(BaseModel):
    """The one shape of all error answers."""

    error: ErrorDetail


class WorkerDetail(BaseModel):
    """A worker process, active or standing by."""

    worker: str
    generation: int
    pid: int
    job: str | None
    state: str
    phase: str
    started_at: datetime
    last_heard_at: datetime | None


class PipelineDetail(BaseModel):
    """The pipeline of a job, with `***` for what must not be shown."""

    sql: str
    functions: str | None
    settings: dict[str, str]
    state_url: str


class Desired(BaseModel):
    """What is wanted of a job."""

    wanted: Wanted
    stop_mode: StopMode
    parallelism: int
    run: int = Field(description="How many starts and restarts were asked for.")


class Status(BaseModel):
    """What a job is; it converges to what is wanted."""

    state: StateName
    cause: str
    parallelism: int
    run: int = Field(description="The start or restart that it is at.")
    generation: int
    identity: str
    worker_pid: int | None
    failure: dict[str, JsonValue] | None = Field(description="Why the job failed, if it did.")
    changed_at: datetime | None


class Job(BaseModel):
    """A job: what is wanted of it, what it is, and how far it has come."""

    name: str
    desired: Desired
    status: Status
    progress: dict[str, JsonValue]
    created_at: datetime


class JobDetail(Job):
    """A job with its pipeline."""

    pipeline: PipelineDetail


class Jobs(BaseModel):
    """All jobs, by name."""

    jobs: list[Job]


class RollbackSink(BaseModel):
    """What a sink does about the rows that it committed after the checkpoint."""

    table: str
    rows: int
    retracts: bool = Field(description="False: it keeps them, and gets them a second time.")


class RollbackSource(BaseModel):
    """From where a source is read again."""

    operator: str
    offset: dict[str, JsonValue] | None = Field(description="Null: from its beginning.")
    rows: int = Field(description="Rows after it that were read before.")


class Rollback(BaseModel):
    """What a rollback would do."""

    to_epoch: int
    first_undone: int | None = Field(description="Null: no epoch is undone.")
    last_undone: int | None
    rows: int = Field(description="Rows of output that are undone.")
    sinks: list[RollbackSink]
    sources: list[RollbackSource]


class JobEvent(BaseModel):
    """Something that happened; its other facts stand beside these."""

    model_config = ConfigDict(extra="allow")

    id: int
    event: str
    at: str


class JobEvents(BaseModel):
    """Events of a job, oldest first."""

    events: list[JobEvent]


class Incidents(BaseModel):
    """Failures from detection to resumption, oldest first."""

    incidents: list[dict[str, JsonValue]]


class Workers(BaseModel):
    """All worker processes."""

    workers: list[WorkerDetail]


class Health(BaseModel):
    """The service is alive, or ready."""

    status: Literal["ok"]
    version: str
