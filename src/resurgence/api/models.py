"""Request and response models.

Every field of a request is bounded, and unknown fields are rejected. Responses may gain fields in a
later release: clients must ignore unknown ones.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from resurgence.control.jobs.job_record import StopMode, Wanted
from resurgence.control.jobs.transitions import StateName
from resurgence.engine.spark.executors import Executor
from resurgence.errors import ErrorDomain

JOB_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$"
"""The rule of `ids.job_name`."""
MAX_TEXT_LENGTH = 1_000_000
MAX_RECORD_LENGTH = 4_000_000
"""Of a record in Base64: as long as a request can be."""
MAX_SETTINGS = 200
_NO_NUL = r"^[^\x00]*$"
"""Databases cannot store NUL."""

_EXAMPLE = """\
CREATE TABLE ticks WITH (connector = 'impulse', event_rate = '10');
CREATE TABLE nowhere (counter BIGINT) WITH (connector = 'blackhole', type = 'sink');
INSERT INTO nowhere SELECT counter FROM ticks;
"""

JobNameText = Annotated[
    str,
    Field(pattern=JOB_NAME, max_length=100, description="The name of the job.", examples=["rides"]),
]
LongText = Annotated[str, Field(max_length=MAX_TEXT_LENGTH, pattern=_NO_NUL)]
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
        max_length=MAX_SETTINGS,
        description="Settings by dotted key.",
        examples=[{"pipeline.parallelism": "4"}],
    ),
]


class Request(BaseModel):
    """A request body."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class JobRequest(Request):
    """A new job."""

    name: JobNameText
    sql: Sql
    functions: Functions = None
    settings: JobSettings = Field(default_factory=dict)
    state_url: Annotated[str, Field(max_length=2000, pattern=_NO_NUL)] | None = Field(
        default=None,
        description="Where its state is stored; by default with the service's other jobs.",
    )
    start: bool = Field(default=True, description="Start the job at once.")


class PipelineRequest(Request):
    """An edited pipeline. It replaces the previous one, functions and settings included."""

    sql: Sql
    functions: Functions = None
    settings: JobSettings = Field(default_factory=dict)


class StopRequest(Request):
    """How to stop a job."""

    mode: StopMode = StopMode.CHECKPOINT


class RestartRequest(Request):
    """How to restart a job."""

    force: bool = Field(default=False, description="Do not wait for a checkpoint.")
    without_state: bool = Field(default=False, description="Start without state, this once.")


class RescaleRequest(Request):
    """The new parallelism."""

    parallelism: int = Field(ge=1, le=64)


class RollbackRequest(Request):
    """The checkpoint to roll back to."""

    to_epoch: int = Field(ge=0, description="The epoch to roll back to; 0: the beginning.")
    accept_duplicates: bool = Field(
        default=False, description="Roll back even if a sink cannot retract its output."
    )


LETTER_ID = r"^\d{1,19}-\d{1,10}$"
LetterId = Annotated[str, Field(pattern=LETTER_ID, examples=["5-1"])]


class CorrectedLetter(Request):
    """A dead letter with another record."""

    id: LetterId
    raw_base64: Annotated[str, Field(max_length=MAX_RECORD_LENGTH)] | None = Field(
        description="The corrected record; null: a record without a value."
    )
    source: Annotated[str, Field(max_length=200)] | None = Field(
        default=None, description="Refused if the dead letter is of another source."
    )
    position: Annotated[str, Field(max_length=MAX_TEXT_LENGTH)] | None = Field(
        default=None, description="Refused if the dead letter has another position."
    )


class ReplayOrder(Request):
    """Which dead letters are read again. Without a condition, all of them."""

    epoch: int | None = Field(default=None, ge=0, description="Only those of an epoch.")
    operator: Annotated[str, Field(max_length=200)] | None = Field(
        default=None, description="Only those of an operator or a source."
    )
    ids: Annotated[list[LetterId], Field(max_length=1000)] | None = Field(
        default=None, description="Only these, and those in `corrected`."
    )
    corrected: Annotated[list[CorrectedLetter], Field(max_length=1000)] = Field(
        default=[], description="Records to read instead of the stored ones."
    )
    again: bool = Field(default=False, description="Also those that were replayed before.")

    @property
    def chosen_ids(self) -> list[str] | None:
        """The ids to replay; None: all."""
        if self.ids is None and not self.corrected:
            return None
        return [*dict.fromkeys([*(self.ids or ()), *(each.id for each in self.corrected)])]


MOST_LETTER_ROWS = 1000


class LetterQuery(Request):
    """A query over the dead letters of a job."""

    sql: Annotated[LongText, Field(min_length=1)] = Field(
        description="A SELECT from dead_letters, in DuckDB's dialect.",
        examples=["SELECT error, count(*) FROM dead_letters GROUP BY ALL"],
    )
    limit: int = Field(
        default=100, ge=1, le=MOST_LETTER_ROWS, description="Maximum number of rows."
    )


class ErrorDetail(BaseModel):
    """What failed, the domain that can fix it, and how."""

    code: str
    message: str
    hint: str = ""
    domain: ErrorDomain
    line: int | None = Field(default=None, description="The line of the SQL, from 1.")
    column: int | None = None


class ErrorAnswer(BaseModel):
    """The body of every error response."""

    error: ErrorDetail


class WorkerDetail(BaseModel):
    """A worker process, active or standby."""

    worker: str
    generation: int
    pid: int
    job: str | None
    state: str
    phase: str
    started_at: datetime
    last_heard_at: datetime | None
    executors: list[Executor] = Field(
        default=[],
        description="The executors of its Spark application on a cluster, also the newest hundred"
        " removed ones. Empty with a local master.",
    )
    controller: str | None = Field(
        default=None, description="The controller that has it, if the service can have several."
    )


class PipelineDetail(BaseModel):
    """The pipeline of a job, with secrets masked as `***`."""

    sql: str
    functions: str | None
    settings: dict[str, str]
    state_url: str


class Desired(BaseModel):
    """The desired state of a job."""

    wanted: Wanted
    stop_mode: StopMode
    parallelism: int
    run: int = Field(description="Number of requested starts and restarts.")


class Status(BaseModel):
    """The actual state of a job, which converges to the desired state."""

    state: StateName
    cause: str
    parallelism: int
    run: int = Field(description="The start or restart that it has reached.")
    generation: int
    identity: str
    worker_pid: int | None
    failure: dict[str, JsonValue] | None = Field(description="Why the job failed, if it did.")
    changed_at: datetime | None


class Job(BaseModel):
    """A job: its desired state, actual state and progress."""

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


class SinkDetail(BaseModel):
    """A table that a job writes."""

    table: str
    connector: str
    guarantee: str | None = Field(
        description="`exactly once` or `at least once`; null if the connector states none."
    )


class Sinks(BaseModel):
    """The tables that a job writes."""

    sinks: list[SinkDetail]


class RollbackSink(BaseModel):
    """The effect on a sink that committed rows after the checkpoint."""

    table: str
    rows: int
    retracts: bool = Field(description="False: it keeps the rows and receives them again.")


class RollbackSource(BaseModel):
    """The offset from which a source is read again."""

    operator: str
    offset: dict[str, JsonValue] | None = Field(description="Null: the beginning.")
    rows: int = Field(description="Rows after the offset that were already read.")


class Rollback(BaseModel):
    """The effects of a rollback."""

    to_epoch: int
    first_undone: int | None = Field(description="Null: no epoch is undone.")
    last_undone: int | None
    last_held: int | None = Field(
        description="The last epoch that only sinks have recorded, which is retracted, too. "
        "Null: there is none."
    )
    rows: int = Field(description="Output rows that are undone.")
    sinks: list[RollbackSink]
    sources: list[RollbackSource]


class LetterHeader(BaseModel):
    """A header of a message. Bytes that are not UTF-8 are escaped."""

    key: str
    value: str | None


class DeadLetter(BaseModel):
    """A record that the job could not process."""

    id: str
    operator: str = Field(description="The operator that failed; of a bad record, its source.")
    epoch: int
    position: str
    error: str
    raw: str | None = Field(
        description="The record. Bytes that are not UTF-8 are escaped. null: it has no value."
    )
    raw_base64: str | None = Field(default=None, description="The record, if it is not UTF-8.")
    source: str
    at: datetime = Field(description="When the epoch was planned.")
    replayed: bool = Field(description="A replay was requested.")
    key: str | None = Field(
        default=None, description="Of a message. Bytes that are not UTF-8 are escaped."
    )
    headers: list[LetterHeader] | None = Field(default=None, description="Of a message.")
    record_timestamp: datetime | None = Field(default=None, description="Of a message.")


class LetterRows(BaseModel):
    """The first rows of a query over dead letters."""

    columns: list[str]
    rows: list[list[JsonValue]] = Field(
        description="Types that JSON lacks are text; bytes are hexadecimal."
    )
    has_more: bool = Field(description="The query has more rows than the limit.")


class DeadLetters(BaseModel):
    """The newest dead letters of a job, oldest first."""

    dead_letters: list[DeadLetter]
    omitted: int = Field(description="How many older ones were left out.")


class Replayed(BaseModel):
    """The effects of a replay."""

    rows: int = Field(description="Dead letters that a later epoch reads.")
    skipped: int = Field(description="Dead letters that were replayed before.")
    warnings: list[str] = Field(description="Which of them will be late, and the like.")


class JobEvent(BaseModel):
    """An event of a job, with further fields by kind."""

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
    unreachable: list[str] = Field(
        default=[], description="Controllers that did not answer; their workers are missing."
    )


class Health(BaseModel):
    """The service is alive, or ready."""

    status: Literal["ok"]
    version: str
