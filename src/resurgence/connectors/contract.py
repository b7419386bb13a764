"""The contracts of sources and sinks.

A source plans ranges of offsets and reads them as DataFrames. Reading a range again returns the
same rows. Only the source interprets its offsets: it splits a range in two, and it describes a
range to users.

A record that cannot be processed may have to be stored and read again later. So a source also
returns its records as they are in its input, and parses records that it did not read itself.

A sink takes an epoch's rows in two steps. `stage` makes them durable but invisible, under names of
their own. `commit` makes them visible. It is idempotent: any process may call it again for the same
(job, epoch), and what was committed first stays. A sink may hold rows back, durably, and make them
visible with a later commit; `flush` ends that. `discard` and `sweep` remove staged output that
will never be committed. `retract` removes the output of epochs that a rollback has declared dead.

A process that was killed may have begun a commit that only the sink's own system can end, such as a
transaction of Kafka. `take_over` ends it, so that nobody waits for it.

An epoch's number alone does not identify what was committed: a state dir that was restored from a
backup uses the same numbers again, over other input. So a sink records with each commit the input
that it covers, and `recall` returns these records. The engine compares them with the state before
it runs the first epoch, and `commit` compares them once more. A sink without storage of its own,
such as a terminal, returns no records and cannot be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from pyspark.sql import DataFrame, SparkSession

from resurgence.connectors.formats.options import BadData
from resurgence.errors import BadRecord, SinkConflict, UserError
from resurgence.ids import NO_EPOCH, Epoch, Generation, JobIdentity, OperatorId
from resurgence.state.protocol.decisions import EpochRange
from resurgence.state.records import InputRange, Offset, Part, RecordPosition

POSITION_TYPE = "STRUCT<partition: STRING, offset: BIGINT>"
"""Spark's type of a RecordPosition."""
BAD_POSITION = "__bad_position"
"""The column in which a source marks bad records with their position; null in good rows."""
RECORD_POSITION = "__record_position"
"""The column in which such a source returns the position of every record: a record may turn out to
be bad later.
"""
RAW_RECORDS = (
    f"position {POSITION_TYPE}, raw BINARY, key BINARY,"
    " headers ARRAY<STRUCT<key: STRING, value: BINARY>>, timestamp TIMESTAMP"
)
"""Spark's schema of raw records: position, bytes, and what a message of a broker has besides."""
PARTITION = "__partition"
"""The column in which a source with partitions returns the number of a record's partition."""
RECORD_TIME = "__record_time"
"""The column in which such a source returns when a record was written to its partition, in
microseconds.
"""
_BRIEF = 200
"""How much of a member of an offset is shown."""
RECORD_BYTES = "__record_bytes"
"""The column in which a source that does not count exactly returns the size of a record."""


@dataclass(frozen=True)
class PartitionSpan:
    """One partition of a source in an input range."""

    name: str
    number: int
    """The value of PARTITION in its records."""
    rows: int
    """At most so many in the range; 0 if the range has none of it."""


class Source(Protocol):
    """A replayable input of rows. A source inherits from this, and overrides what it does more than
    the simplest one: that has no partitions, and knows the number of records of a range.
    """

    bad_data: BadData
    """What happens to bad records."""
    position_sql: str
    """SQL over the column `position` that describes it to users, as in `rides.json, line 4`."""
    counts_exactly: bool = True
    """`rows` of a range is the number of its records. If not, it is an upper bound, and the rows
    are counted by the Spark job that reads them.
    """

    def check(self) -> None:
        """Raise UserError if this can never be read."""
        ...

    def first_offset(self, now: datetime, parallelism: int) -> Offset:
        """Return the offset at which a new job begins."""
        ...

    def plan(self, offset: Offset, most_rows: int, now: datetime) -> InputRange | None:
        """Return the next range after an offset; None if there is none yet. Raises
        SourceRangeGone.
        """
        ...

    def holds(self, input_range: InputRange) -> bool:
        """Return whether the records of a recorded range can still be read. Asked for a range whose
        epoch was never sealed: if not, the epoch is planned anew. A source whose input cannot
        expire, or whose `read` reports the loss, need not find out.
        """
        return True

    def read(self, spark: SparkSession, input_range: InputRange, parallelism: int) -> DataFrame:
        """Return the rows of a range without its excluded records: the declared columns, and
        BAD_POSITION and RECORD_POSITION if records can be bad.
        """
        ...

    def records(self, spark: SparkSession, input_range: InputRange, parallelism: int) -> DataFrame:
        """Return the records of a range, as they are in the input, with the columns of RAW_RECORDS.
        Excluded records are left out.
        """
        ...

    def parse(self, records: DataFrame) -> DataFrame:
        """Convert raw records, of any range, to rows: the columns of `read`, BAD_POSITION and
        RECORD_POSITION.
        """
        ...

    def explainer(self) -> Callable[[bytes | None], str]:
        """Return a function that returns why a raw record is bad. It runs in Spark tasks."""
        ...

    def located(self, position: RecordPosition) -> RecordPosition:
        """Return where a recorded position is now, if the input was moved."""
        return position

    def bad_record(self, input_range: InputRange, position: RecordPosition) -> BadRecord:
        """Return the error that describes the bad record at a position to the user."""
        ...

    def halved(self, input_range: InputRange) -> tuple[InputRange, InputRange] | None:
        """Split the range in two, each part with fewer rows. Return None if it cannot be split.
        Raises SourceRangeGone.
        """
        ...

    def in_words(self, input_range: InputRange) -> str:
        """Describe the range to users, as in `after line 3, up to line 7`."""
        ...

    def partitions(self, input_range: InputRange) -> tuple[PartitionSpan, ...]:
        """Return every partition that the source has after a range; empty if it has no
        partitions. Each has its own watermark.
        """
        return ()

    def unread(self) -> Mapping[str, int]:
        """Return how many rows, at most, follow the range that was planned last, by partition. A
        partition without any may be missing.
        """
        return {}

    def measured(self, rows: int, size: int) -> None:
        """Take note of the rows and bytes of a range that was read, unless it counts exactly."""
        return

    def committed(self, input_range: InputRange) -> None:
        """Take note that the epoch of a range is committed; once more when the job is restored from
        it. Must neither wait nor fail.
        """
        return

    def close(self) -> None:
        """End what `committed` has begun. Called when the job stops or ends. May wait for a few
        seconds, and must not fail.
        """
        return


def raw_records(records: DataFrame) -> DataFrame:
    """Return records with columns `position` and `raw` as RAW_RECORDS: they have nothing else."""
    return records.selectExpr(
        "position",
        "raw",
        "CAST(NULL AS BINARY) AS key",
        "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
        "CAST(NULL AS TIMESTAMP) AS timestamp",
    )


def left_out(records: DataFrame, excluded: Collection[RecordPosition]) -> DataFrame:
    """Return records, which have a column `position`, without those at excluded positions."""
    return records.where(f"NOT ({is_at(excluded)})") if excluded else records


def is_at(positions: Collection[RecordPosition]) -> str:
    """Return SQL that is true where the column `position` is one of these."""
    partitions: dict[str, list[int]] = {}
    for each in positions:
        partitions.setdefault(each.partition, []).append(each.offset)
    return " OR ".join(
        f"(position.partition = {_literal(partition)} AND position.offset IN"
        f" ({', '.join(f'{offset}L' for offset in offsets)}))"
        for partition, offsets in partitions.items()
    )


def _literal(text: str) -> str:
    """Return a text as a literal in Spark SQL, whatever characters it has."""
    return f"decode(unhex('{text.encode().hex()}'), 'UTF-8')"


class StagedFile(BaseModel):
    """A durable, invisible piece of an epoch's output: the first rows of an object."""

    model_config = ConfigDict(frozen=True)

    path: str
    rows: int
    bytes: int
    folder: str = ""
    """The partition that all its rows belong to, for sinks that have some."""
    details: dict[str, JsonValue] = Field(default_factory=dict)
    """What the commit must know of it besides, if the sink has more to know."""

    @model_serializer(mode="wrap")
    def _without_empty_parts(self, content: SerializerFunctionWrapHandler) -> dict[str, object]:
        plain: dict[str, object] = content(self)
        optional = {"folder", "details"}
        return {name: each for name, each in plain.items() if each or name not in optional}


class StagedOutput(BaseModel):
    """Everything that an epoch staged in one sink; plain JSON, stored in the checkpoint until it is
    committed.
    """

    model_config = ConfigDict(frozen=True)

    rows: int = 0
    files: tuple[StagedFile, ...] = ()
    planned_at: int = 0
    """When the epoch was planned, in microseconds. The same at every attempt to commit it."""

    def first(self, rows: int) -> StagedOutput:
        """Return the first rows of it: whole files, and the beginning of the last one needed."""
        files: list[StagedFile] = []
        for each in self.files:
            needed = min(each.rows, rows - sum(file.rows for file in files))
            if needed > 0:
                files.append(each.model_copy(update={"rows": needed}))
        return self.model_copy(
            update={"rows": sum(each.rows for each in files), "files": tuple(files)}
        )


def merged_output(parts: Iterable[StagedOutput]) -> StagedOutput:
    """Merge what several operators staged for one table."""
    listed = tuple(parts)
    return StagedOutput(
        rows=sum(each.rows for each in listed),
        files=tuple(file for each in listed for file in each.files),
        planned_at=max((each.planned_at for each in listed), default=0),
    )


class SourceSpan(Part):
    """The range that an epoch read from one source."""

    start: Offset
    end: Offset


class CoveredInput(Part):
    """The input that an epoch's output was computed from.

    Offsets identify it. The planning time and the flags of a range are not part of it: they record
    when and why the epoch ended there.
    """

    sources: dict[OperatorId, SourceSpan]

    @classmethod
    def of(cls, inputs: Mapping[OperatorId, InputRange]) -> CoveredInput:
        """Return the part of an epoch's recorded input that identifies it."""
        return cls(
            sources={
                operator: SourceSpan(start=each.start, end=each.end)
                for operator, each in inputs.items()
            }
        )

    def __str__(self) -> str:
        return "; ".join(
            f"{operator} from {_brief(each.start)} to {_brief(each.end)}"
            for operator, each in sorted(self.sources.items())
        )


def _brief(offset: Offset) -> str:
    texts = ((name, str(value)) for name, value in offset.items())
    return ", ".join(
        f"{name} {text if len(text) <= _BRIEF else f'{text[:_BRIEF]}…'}" for name, text in texts
    )


@dataclass(frozen=True)
class SinkMemory:
    """The records of a job in a sink."""

    newest: Epoch = NO_EPOCH
    """The highest epoch that was ever committed or retracted. Its record is never dropped."""
    inputs: dict[Epoch, CoveredInput] = field(default_factory=dict)
    """The input that the output of each requested epoch covers. An epoch without output, or of an
    older release, is missing.
    """
    retracted: tuple[EpochRange, ...] = ()


def require_same_input(
    place: str, epoch: Epoch, held: CoveredInput | None, covered: CoveredInput
) -> None:
    """Raise SinkConflict if the sink holds the epoch over other input. `held` is None if the sink
    has no record of its input.
    """
    if held not in (None, covered):
        raise SinkConflict(
            f"{place} holds epoch {epoch} over other input than the epoch to commit: it covers "
            f"{held}, not {covered}",
            hint="Check whether another copy of this state dir is running. Retract the epoch with "
            f"`resurgence rollback` to an epoch before {epoch}, or choose another --name and "
            "another path.",
        )


class Sink(Protocol):
    """An output of rows, staged and committed by epoch."""

    retracts: bool
    """Committed output can be retracted."""

    def check(self) -> None:
        """Raise UserError if this can never be written."""
        ...

    def stage(
        self, rows: DataFrame, job: JobIdentity, epoch: Epoch, generation: Generation
    ) -> StagedOutput:
        """Make an epoch's rows durable but invisible."""
        ...

    def rehearsed(self, rows: DataFrame) -> DataFrame:
        """Return rows as they would be written. Computing the result fails, as `stage` does, on a
        row that the sink refuses. Nothing is written.
        """
        ...

    def commit(
        self,
        spark: SparkSession,
        job: JobIdentity,
        epoch: Epoch,
        staged: StagedOutput,
        covered: CoveredInput,
    ) -> None:
        """Make them visible, once, however often this is called, and record the input that they
        cover. Raises SinkConflict if the epoch was committed over other input. A sink whose rows
        travel through tasks runs a Spark job.
        """
        ...

    def flush(
        self,
        spark: SparkSession,
        job: JobIdentity,
        epoch: Epoch,
        permit: Callable[[], None],
        now: datetime | None = None,
    ) -> None:
        """Make visible what commits have held back, once, however often this is called. Called
        between epochs: when the job ends, and with `now` while there is nothing to read, for what
        is due then. `epoch` is the next one. `permit` raises if this process no longer runs the
        job. A sink that holds nothing back does nothing.
        """
        ...

    def take_over(self, job: JobIdentity) -> None:
        """End the commits that earlier processes of the job may have begun. Called before `recall`
        by the process that runs the job from now on.
        """
        ...

    def recall(self, job: JobIdentity, epochs: Collection[Epoch]) -> SinkMemory:
        """Return the records of a job's commits, with the input of `epochs`. A sink without records
        returns an empty SinkMemory.
        """
        ...

    def discard(self, staged: StagedOutput) -> None:
        """Remove staged output that will never be committed."""
        ...

    def sweep(self, job: JobIdentity, epoch: Epoch) -> None:
        """Remove what the job staged for epochs up to this one, which are all committed."""
        ...

    def forget(self, job: JobIdentity, before: Epoch) -> None:
        """Drop the records of epochs before one, which can neither be replayed nor retracted any
        more. Retain the newest record, however old it is.
        """
        ...

    def retract(self, job: JobIdentity, after: Epoch, up_to: Epoch) -> None:
        """Retract what was committed for the epochs after one up to another, also if this was begun
        before. Later epochs are numbered after them.
        """
        ...


def whole_number(content: Mapping[str, object], name: str) -> int:
    """Return a whole number from an offset or a commit record. Raise UserError if it is missing."""
    value = content.get(name)
    if not isinstance(value, int):
        raise UserError(
            f"'{name}' is missing in {dict(content)}",
            hint="Restore the checkpoint from a backup. It was edited by hand.",
        )
    return value
