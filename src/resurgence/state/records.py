"""The records of checkpoints in object storage.

Every record contains its format version and its job, and ends with a checksum of itself: a flipped
bit in an offset would otherwise read as another offset. A record of a newer version is rejected,
never interpreted. Event times are microseconds since 1970, UTC.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    JsonValue,
    PlainSerializer,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from resurgence.errors import DamagedState, NewerFormat, ObjectMissing
from resurgence.ids import Epoch, Generation, JobIdentity, OperatorId

FORMAT_VERSION = 2

UNUSABLE = (DamagedState, ObjectMissing, NewerFormat)
"""Errors that make one record unusable. A job whose newest generation has a newer format is
rejected as a whole.
"""

OFFSETS, WATERMARKS, STAGED = "offsets", "watermarks", "staged"
"""The global tables of sources and sinks."""
DEAD_LETTERS, REPLAYS = "dead_letters", "replays"
"""Global tables of a source: its staged dead letters of the epoch, if it has some, and the newest
replay of dead letters that it has read, if there was one.
"""

Offset = dict[str, JsonValue]
"""A source's position: plain JSON, which only the source interprets. Others store it, return it and
compare it for equality.
"""


KeyGroups = Annotated[
    int,
    BeforeValidator(lambda value: int(value, 16) if isinstance(value, str) else value),
    PlainSerializer(lambda value: f"{value:016x}", return_type=str),
]
"""A bit set of key groups. Written in hexadecimal, for JSON readers with short integers."""


class Record(BaseModel):
    """An object that is written once and never changed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[2] = 2
    job: JobIdentity

    def encode(self) -> bytes:
        """Return the bytes that are stored and digested: JSON whose last member is the checksum of
        the rest.
        """
        body = self.model_dump_json(exclude_none=True).encode()
        return body.removesuffix(b"}") + _seal(body)


class Part(BaseModel):
    """A piece of a record."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    omitted_if_empty: ClassVar[frozenset[str]] = frozenset()
    """Fields that most jobs do not use. Where they are empty, a record is the same as one of a
    release that did not have them.
    """

    @model_serializer(mode="wrap")
    def _written(
        self, fields: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Any]:
        written: dict[str, Any] = fields(self)
        if info.mode == "json":
            for name in self.omitted_if_empty:
                if not written.get(name, True):
                    del written[name]
        return written


class GenerationRecord(Record):
    """The claim of a start of the job. The highest one is the fence."""

    generation: Generation
    claimed_at: datetime
    claimed_by: str
    rollback: int | None = None
    """The newest rollback in effect: this claim, or an earlier one, was made for it."""
    directory: str | None = None
    """The working directory of the job, which relative paths of its tables are relative to. None if
    the claim was not made to run the job.
    """


class OwnerKind(StrEnum):
    """The kind of process that runs a job."""

    RUN = "run"
    SERVICE = "service"
    ROLLBACK = "rollback"


_OWNER_NAMES = {
    OwnerKind.RUN: "`resurgence run`",
    OwnerKind.SERVICE: "a service",
    OwnerKind.ROLLBACK: "`resurgence rollback`",
}


class Owner(Part):
    """A process that runs a job."""

    id: str
    """The same for all processes that may take over from each other unconditionally."""
    kind: OwnerKind
    host: str
    pid: int
    since: datetime
    """When it started to run the job."""
    process_space: str
    """The scope of `pid`: a boot of a machine, and a container on it."""
    process_started: str
    """Distinguishes the process from a later one with the same pid."""
    control: str | None = None
    """HOST:PORT at which the workers of its jobs reach it, if it can adopt them."""

    @property
    def description(self) -> str:
        return f"{_OWNER_NAMES[self.kind]} on {self.host} (pid {self.pid})"


class LeaseRecord(Record):
    """The owner of a generation. The only record that is overwritten: it informs people, and no
    decision about state depends on it.
    """

    generation: Generation
    owner: Owner
    renewed_at: datetime


class RecordPosition(Part):
    """The position of one record in its source: a partition, such as a file or `topic/3`, and an
    offset in it, such as a line counted from 0.
    """

    partition: str
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}@{self.offset}"


class Replay(Part):
    """Dead letters of a source that an epoch reads again, besides its range."""

    number: int
    """Of the ReplayRequest."""
    rows: int


class InputRange(Part):
    """The input of an epoch from one source: from `start` up to `end`. `final`: the source ends
    there.
    """

    omitted_if_empty = frozenset({"excluded", "idle_partitions", "skipped_rows"})

    start: Offset
    end: Offset
    rows: int
    final: bool = False
    idle: bool = False
    """The source has been idle for so long that it does not hold back the watermark."""
    idle_partitions: tuple[str, ...] = ()
    """The partitions of the source that have been idle for so long."""
    skipped_rows: int = 0
    """Rows that the source no longer holds, and that are skipped by the user's choice."""
    excluded: tuple[RecordPosition, ...] = ()
    """Records that are left out, because the epoch failed on them."""
    replay: Replay | None = None
    planned_at: datetime | None = None
    """When the epoch was planned: its processing time, also when it is replayed. The engine sets it
    on the range that a source plans; every record has it.
    """

    @property
    def all_rows(self) -> int:
        """The rows of the range, including excluded ones, and of the replay."""
        return self.rows + (self.replay.rows if self.replay else 0)


class StateFile(Part):
    """One Parquet file of a state table."""

    path: str
    subtask: int
    epoch: Epoch
    rows: int
    bytes: int
    key_groups: KeyGroups
    """The key groups that the rows can belong to."""
    time_start: int
    time_end: int
    """Event time of the rows: first and last bin, inclusive."""
    digest: str
    """Of all its bytes: page checksums do not cover the footer, and do not identify the file."""


class TableKind(StrEnum):
    """The kind of a state table."""

    GLOBAL = "global"
    TIME = "time"
    KEY = "key"


class TableCheckpoint(Part):
    """A table of one operator at one epoch. Global tables are small and stored inline; the others
    are files.
    """

    kind: TableKind
    table_format: Literal[1] = 1
    schema_text: str = ""
    files: tuple[StateFile, ...] = ()
    values: dict[str, JsonValue] = {}


class OperatorCheckpointMetadata(Record):
    """One operator's complete state after an epoch: it names every live file, regardless of the
    epoch that wrote it.
    """

    operator: OperatorId
    epoch: Epoch
    generation: Generation
    parallelism: int
    watermark: int | None = None
    timers: tuple[int, ...] = ()
    """Event times at which the operator has work to do."""
    tables: dict[str, TableCheckpoint] = {}
    input: InputRange | None = None
    """For a source: the input of this epoch."""
    place: str | None = None
    """The location of a source's or sink's rows, if it has one."""


class ObjectDigest(Part):
    """An object and the digest of its bytes."""

    path: str
    bytes: int
    sha256: str


class EpochCounts(Part):
    """Row counts of one epoch, or of several."""

    omitted_if_empty = frozenset({"dead_rows", "skipped_rows"})

    rows_in: dict[OperatorId, int] = {}
    """Per source: rows read, including bad and dead rows, and replayed dead letters."""
    bad_rows: dict[OperatorId, int] = {}
    """Per source: rows dropped because they could not be parsed."""
    dead_rows: dict[OperatorId, int] = {}
    """Per source: rows that became dead letters."""
    skipped_rows: dict[OperatorId, int] = {}
    """Per source: rows that it no longer held when they were due."""
    late_rows: dict[OperatorId, int] = {}
    """Per window: late rows, dropped because all their windows had closed."""
    partly_late_rows: dict[OperatorId, int] = {}
    """Per window: rows added to open windows, but too late for others that had closed."""
    kept_rows: dict[OperatorId, int] = {}
    """Per window: rows added to state."""
    rows_out: dict[OperatorId, int] = {}
    """Per sink: rows staged."""

    def plus(self, other: EpochCounts) -> EpochCounts:
        return self._combined(other, 1)

    def minus(self, other: EpochCounts) -> EpochCounts:
        return self._combined(other, -1)

    def _combined(self, other: EpochCounts, sign: int) -> EpochCounts:
        both = {
            name: (getattr(self, name), getattr(other, name)) for name in type(self).model_fields
        }
        return EpochCounts(
            **{
                name: {
                    operator: mine.get(operator, 0) + sign * theirs.get(operator, 0)
                    for operator in {**mine, **theirs}
                }
                for name, (mine, theirs) in both.items()
            }
        )


class Totals(Part):
    """Counts since an epoch: the first one, or the first one after a rollback to an empty state."""

    since: Epoch
    counts: EpochCounts


class Manifest(Record):
    """The record that seals an epoch's checkpoint: an epoch exists if and only if its manifest
    does.
    """

    epoch: Epoch
    attempt: int
    generation: Generation
    parent: Epoch
    operators: dict[OperatorId, ObjectDigest]
    inputs: dict[OperatorId, InputRange]
    counts: EpochCounts = EpochCounts()
    totals: Totals
    """Counts of all input of this checkpoint, including this epoch."""
    finished: bool = False
    """There is no next epoch: all sources have ended, or no sink accepts more rows."""
    began_at: datetime
    sealed_at: datetime


class CommittedRecord(Record):
    """The sinks have committed an epoch. Repeats its input, so that it can be replayed if the
    manifest is lost.
    """

    epoch: Epoch
    generation: Generation
    inputs: dict[OperatorId, InputRange]
    counts: EpochCounts = EpochCounts()
    committed_at: datetime


class ThinnedEpoch(Part):
    """An epoch whose checkpoint retention has removed although older ones are retained. It is
    committed.
    """

    inputs: dict[OperatorId, InputRange]
    attempt: int
    """The number for the next manifest of this epoch."""


class ThinnedEpochs(Record):
    """The input of a run of thinned epochs, which a restore of an older checkpoint replays."""

    epochs: dict[Epoch, ThinnedEpoch]


class CondemnedRecord(Record):
    """A manifest that proved unusable, and the reasons."""

    epoch: Epoch
    attempt: int
    generation: Generation
    reasons: tuple[str, ...]


class RollbackRecord(Record):
    """A rollback: the epochs after `to_epoch`, up to `highest_epoch`, are dead. It is in effect if
    `generation` was claimed for it.
    """

    number: int
    to_epoch: Epoch
    """0: back to an empty state."""
    highest_epoch: Epoch
    """The highest epoch of which any object was seen."""
    generation: Generation
    recorded_at: datetime


class ReplayRequest(Record):
    """A request to read dead letters of a source again, in one epoch after it."""

    operator: OperatorId
    """The source."""
    number: int
    """Counted from 1, per source."""
    path: str
    """The Parquet file with the records."""
    rows: dict[Epoch, int]
    """How many records it has, by the epoch of the dead letter."""
    requested_at: datetime


AnyRecord = TypeVar("AnyRecord", bound=Record)


def _seal(body: bytes) -> bytes:
    """Return the end of a record: the checksum of its content."""
    return b',"checksum":"%s"}' % hashlib.sha256(body).hexdigest()[:16].encode()


_SEAL_LENGTH = len(_seal(b""))


def decode(kind: type[AnyRecord], data: bytes, path: str) -> AnyRecord:
    """Decode a record. Raise NewerFormat if a newer release wrote it, DamagedState if damaged."""
    try:
        content = json.loads(data)
    except ValueError as error:
        raise DamagedState(f"{path} is not JSON ({len(data)} bytes)", path=path) from error
    # The version is checked first: a newer format may have another kind of checksum.
    version = content.get("version") if isinstance(content, dict) else None
    body, seal = data[:-_SEAL_LENGTH] + b"}", data[-_SEAL_LENGTH:]
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise NewerFormat(
            f"{path} has format version {version}, but this release reads up to {FORMAT_VERSION}",
            intact=seal == _seal(body),
            hint="Run the job with the release that wrote the record, or a newer one.",
        )
    if seal != _seal(body):
        raise DamagedState(f"{path} does not match its checksum", path=path)
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise DamagedState(
            f"{path} is not a {kind.__name__}: {place}: {first['msg']}", path=path
        ) from error


def object_digest(path: str, data: bytes) -> ObjectDigest:
    """Compute the digest of an object's bytes."""
    return ObjectDigest(path=path, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
