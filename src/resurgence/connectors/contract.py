"""The contracts of sources and sinks.

A source plans ranges of offsets and reads them as DataFrames. Reading a range again returns the
same rows. Only the source interprets its offsets: it splits a range in two, and it describes a
range to users.

A sink takes an epoch's rows in two steps. `stage` makes them durable but invisible, under names of
their own. `commit` makes them visible. It is idempotent: any process may call it again for the same
(job, epoch), and what was committed first stays. `discard` and `sweep` remove staged output that
will never be committed. `retract` removes the output of epochs that a rollback has declared dead.

An epoch's number alone does not identify what was committed: a state dir that was restored from a
backup uses the same numbers again, over other input. So a sink records with each commit the input
that it covers, and `recall` returns these records. The engine compares them with the state before
it runs the first epoch, and `commit` compares them once more. A sink without storage of its own,
such as a terminal, returns no records and cannot be compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from pydantic import BaseModel, ConfigDict
from pyspark.sql import DataFrame, SparkSession

from resurgence.errors import BadRecord, SinkConflict, UserError
from resurgence.ids import NO_EPOCH, Epoch, Generation, JobIdentity, OperatorId
from resurgence.state.protocol.decisions import EpochRange
from resurgence.state.records import InputRange, Offset, Part

BAD_POSITION = "__bad_position"
"""The column in which a source marks bad records with their position; null in good rows."""
RECORD_POSITION = "__record_position"
"""The column in which such a source returns the position of every record: a record may turn out to
be bad later.
"""


class Source(Protocol):
    """A replayable input of rows."""

    drops_bad_records: bool

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

    def read(self, spark: SparkSession, input_range: InputRange, parallelism: int) -> DataFrame:
        """Return the rows of a range: the declared columns, and BAD_POSITION if records can be
        bad.
        """
        ...

    def bad_record(self, input_range: InputRange, position: int) -> BadRecord:
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


class StagedFile(BaseModel):
    """A durable, invisible piece of an epoch's output: the first rows of an object."""

    model_config = ConfigDict(frozen=True)

    path: str
    rows: int
    bytes: int


class StagedOutput(BaseModel):
    """Everything that an epoch staged in one sink; plain JSON, stored in the checkpoint until it is
    committed.
    """

    model_config = ConfigDict(frozen=True)

    rows: int = 0
    files: tuple[StagedFile, ...] = ()

    def first(self, rows: int) -> StagedOutput:
        """Return the first rows of it: whole files, and the beginning of the last one needed."""
        files: list[StagedFile] = []
        for each in self.files:
            needed = min(each.rows, rows - sum(file.rows for file in files))
            if needed > 0:
                files.append(each.model_copy(update={"rows": needed}))
        return StagedOutput(rows=sum(each.rows for each in files), files=tuple(files))


def merged_output(parts: Iterable[StagedOutput]) -> StagedOutput:
    """Merge what several operators staged for one table."""
    listed = tuple(parts)
    return StagedOutput(
        rows=sum(each.rows for each in listed),
        files=tuple(file for each in listed for file in each.files),
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
    return ", ".join(f"{name} {value}" for name, value in offset.items())


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

    def commit(
        self, job: JobIdentity, epoch: Epoch, staged: StagedOutput, covered: CoveredInput
    ) -> None:
        """Make them visible, once, however often this is called, and record the input that they
        cover. Raises SinkConflict if the epoch was committed over other input.
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
