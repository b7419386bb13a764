"""The records that checkpoints are made of, as they lie in object storage.

Every record says its format version and whose job it is, and ends with a checksum of itself: a
flipped bit in an offset would otherwise read as another offset. A record of a newer version is
refused, never guessed at. Instants of event time are microseconds since 1970, UTC.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    JsonValue,
    PlainSerializer,
    ValidationError,
)

from resurgence.errors import DamagedState, NewerFormat, ObjectMissing
from resurgence.ids import Epoch, Generation, JobIdentity, OperatorId

FORMAT_VERSION = 2

UNUSABLE = (DamagedState, ObjectMissing, NewerFormat)
"""What makes one record unusable. A job whose newest generation is of a newer format is refused
as a whole.
"""

OFFSETS, STAGED = "offsets", "staged"
"""The global tables of sources and sinks."""

Offset = dict[str, JsonValue]
"""A source's position: plain JSON, which only the source understands. Others store it, return it and
compare it for equality.
"""


KeyGroups = Annotated[
    int,
    BeforeValidator(lambda value: int(value, 16) if isinstance(value, str) else value),
    PlainSerializer(lambda value: f"{value:016x}", return_type=str),
]
"""A set of key groups: bit n stands for group n. Written in hexadecimal, for JSON readers with
short integers.
"""


class Record(BaseModel):
    """Something written once and never changed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[2] = 2
    job: JobIdentity

    def encode(self) -> bytes:
        """The bytes that are stored, and digested: JSON, whose last member is the checksum of all
        before it.
        """
        body = self.model_dump_json(exclude_none=True).encode()
        return body.removesuffix(b"}") + _seal(body)


class Part(BaseModel):
    """A piece of a record."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class GenerationRecord(Record):
    """A start of the job. The highest one is the fence."""

    generation: Generation
    claimed_at: datetime
    claimed_by: str
    rollback: int | None = None
    """The newest rollback that counts: this claim was made for it, or a claim before."""
    directory: str | None = None
    """The working directory of the job: relative paths of its tables are relative to it. None if
    the claim was not made to run it.
    """


class OwnerKind(StrEnum):
    """What kind of process runs a job."""

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
    """The same for all processes that take over from each other without asking."""
    kind: OwnerKind
    host: str
    pid: int
    since: datetime
    """When it took up the job."""
    process_space: str
    """Where `pid` means this process: a boot of a machine, and a container on it."""
    process_started: str
    """Tells it from a later process of the same number."""

    @property
    def description(self) -> str:
        return f"{_OWNER_NAMES[self.kind]} on {self.host} (pid {self.pid})"


class LeaseRecord(Record):
    """Who holds a generation. The one record that is written again: it is a hint to people, and no
    decision about state depends on it.
    """

    generation: Generation
    owner: Owner
    renewed_at: datetime


class InputRange(Part):
    """What an epoch reads of one source: from `start` up to `end`. `final`: nothing ever comes
    after it.
    """

    start: Offset
    end: Offset
    rows: int
    final: bool = False
    idle: bool = False
    """It had no rows for so long that it holds no watermark back."""
    planned_at: datetime | None = None
    """When the epoch was planned: its processing time, also when it is replayed. The engine sets it
    on what a source plans; every record has it.
    """


class StateFile(Part):
    """One Parquet file of a state table."""

    path: str
    subtask: int
    epoch: Epoch
    rows: int
    bytes: int
    key_groups: KeyGroups
    """Which key groups the rows may be of."""
    time_start: int
    time_end: int
    """Event time of the rows, first and last bin, both included."""
    digest: str
    """Of all its bytes: page checksums leave out the footer, and say nothing of whose file it is."""


class TableKind(StrEnum):
    """How a table grows and shrinks."""

    GLOBAL = "global"
    TIME = "time"
    KEY = "key"


class TableCheckpoint(Part):
    """A table of one operator at one epoch. Global tables are small and stand here; the others
    are files.
    """

    kind: TableKind
    table_format: Literal[1] = 1
    schema_text: str = ""
    files: tuple[StateFile, ...] = ()
    values: dict[str, JsonValue] = {}


class OperatorCheckpointMetadata(Record):
    """One operator's state after an epoch, complete: it names every live file, whichever epoch
    wrote it.
    """

    operator: OperatorId
    epoch: Epoch
    generation: Generation
    parallelism: int
    watermark: int | None = None
    timers: tuple[int, ...] = ()
    """Event times at which the operator still has something to do."""
    tables: dict[str, TableCheckpoint] = {}
    input: InputRange | None = None
    """For a source: what this epoch read."""
    place: str | None = None
    """Where a source or sink has its rows, if it has a place."""


class ObjectDigest(Part):
    """An object and what its bytes must be."""

    path: str
    bytes: int
    sha256: str


class EpochCounts(Part):
    """What went through an epoch, or through several."""

    rows_in: dict[OperatorId, int] = {}
    """Per source: rows read, bad ones among them."""
    bad_rows: dict[OperatorId, int] = {}
    """Per source: rows dropped because they could not be read as records."""
    late_rows: dict[OperatorId, int] = {}
    """Per window: rows left out because all windows they belong to had closed."""
    partly_late_rows: dict[OperatorId, int] = {}
    """Per window: rows kept for windows that are open, and left out of others that had closed."""
    kept_rows: dict[OperatorId, int] = {}
    """Per window: rows that went into state."""
    rows_out: dict[OperatorId, int] = {}
    """Per sink: rows staged."""

    def plus(self, other: EpochCounts) -> EpochCounts:
        """Both together."""
        return self._combined(other, 1)

    def minus(self, other: EpochCounts) -> EpochCounts:
        """What is in this one and not in the other."""
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
    """Counts since an epoch: the first one, or the first one after a rollback to nothing."""

    since: Epoch
    counts: EpochCounts


class Manifest(Record):
    """Seals an epoch's checkpoint: with it the epoch exists, without it the epoch was never
    there.
    """

    epoch: Epoch
    attempt: int
    generation: Generation
    parent: Epoch
    operators: dict[OperatorId, ObjectDigest]
    inputs: dict[OperatorId, InputRange]
    counts: EpochCounts = EpochCounts()
    totals: Totals
    """All that went into this checkpoint, this epoch included."""
    finished: bool = False
    """There is no next epoch: all sources are read to their end, or no sink takes more rows."""
    began_at: datetime
    sealed_at: datetime


class CommittedRecord(Record):
    """The sinks are done with an epoch. Repeats its input, so that it can be replayed should the
    manifest be lost.
    """

    epoch: Epoch
    generation: Generation
    inputs: dict[OperatorId, InputRange]
    counts: EpochCounts = EpochCounts()
    committed_at: datetime


class ThinnedEpoch(Part):
    """An epoch whose checkpoint retention has removed although older ones are kept. Its sinks are
    done.
    """

    inputs: dict[OperatorId, InputRange]
    attempt: int
    """The number for the next manifest of this epoch."""


class ThinnedEpochs(Record):
    """What a run of thinned epochs read, so that they can be replayed from an older checkpoint."""

    epochs: dict[Epoch, ThinnedEpoch]


class CondemnedRecord(Record):
    """A manifest that proved unusable, and why."""

    epoch: Epoch
    attempt: int
    generation: Generation
    reasons: tuple[str, ...]


class RollbackRecord(Record):
    """Everything after `to_epoch`, up to `highest_epoch`, is dead. It counts if `generation` was
    claimed for it.
    """

    number: int
    to_epoch: Epoch
    """0: back to nothing."""
    highest_epoch: Epoch
    """The highest epoch of which anything was seen."""
    generation: Generation
    recorded_at: datetime


AnyRecord = TypeVar("AnyRecord", bound=Record)


def _seal(body: bytes) -> bytes:
    """What ends a record: the checksum of its content."""
    return b',"checksum":"%s"}' % hashlib.sha256(body).hexdigest()[:16].encode()


_SEAL_LENGTH = len(_seal(b""))


def decode(kind: type[AnyRecord], data: bytes, path: str) -> AnyRecord:
    """A record from its bytes; a newer format and damage are told apart."""
    try:
        whole = json.loads(data)
    except ValueError as error:
        raise DamagedState(f"{path} is not JSON ({len(data)} bytes)", path=path) from error
    # The version comes first: a newer format may have another kind of checksum.
    version = whole.get("version") if isinstance(whole, dict) else None
    body, seal = data[:-_SEAL_LENGTH] + b"}", data[-_SEAL_LENGTH:]
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise NewerFormat(
            f"{path} has format version {version}, this release reads up to {FORMAT_VERSION}",
            intact=seal == _seal(body),
            hint="run it with the release that wrote it, or a newer one",
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
    """The digest of an object's bytes."""
    return ObjectDigest(path=path, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
