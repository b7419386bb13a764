"""The two contracts: what a source gives and what a sink promises.

A source plans ranges of offsets and reads them as DataFrames. Reading a range again gives the same
rows. Only the source understands its offsets: it cuts a range in two, and it describes a range to
people.

A sink takes an epoch's rows in two steps. `stage` makes them durable and invisible, under names of
their own. `commit` makes them visible and may be called again, by anyone, for the same (job,
epoch): what was committed first stays. `discard` and `sweep` remove what was staged and will never
be committed. `retract` takes back what a rollback has declared dead.

An epoch's number alone does not say what was committed: a state dir that was restored from a backup
counts the same numbers again, over other input. So a sink records with each commit the input that
it covers, and `recall` returns what it recorded. The engine compares that with the state before it
runs the first epoch, and `commit` compares it once more. A sink that keeps nothing of its own, such
as a terminal, recalls nothing and cannot be compared.
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
"""A source that can meet bad records marks them here, with their position; good rows have null."""
RECORD_POSITION = "__record_position"
"""Such a source gives the position of every record here, so that it can be found to be bad later."""


class Source(Protocol):
    """Where rows come from."""

    drops_bad_records: bool

    def check(self) -> None:
        """Raise a UserError now if this can never be read."""
        ...

    def first_offset(self, now: datetime, parallelism: int) -> Offset:
        """Where a new job begins."""
        ...

    def plan(self, offset: Offset, most_rows: int, now: datetime) -> InputRange | None:
        """What to read next from here; None if there is nothing yet. Raises SourceRangeGone."""
        ...

    def read(self, spark: SparkSession, input_range: InputRange, parallelism: int) -> DataFrame:
        """The rows of a range: the declared columns, and BAD_POSITION where records can be bad."""
        ...

    def bad_record(self, input_range: InputRange, position: int) -> BadRecord:
        """The error for the bad record at a position, as a user would want to read it."""
        ...

    def halved(self, input_range: InputRange) -> tuple[InputRange, InputRange] | None:
        """The range cut in two, each part with fewer rows; None if it cannot be cut. Raises
        SourceRangeGone.
        """
        ...

    def in_words(self, input_range: InputRange) -> str:
        """The range for people, as in `after line 3, up to line 7`."""
        ...


class StagedFile(BaseModel):
    """A durable, invisible piece of an epoch's output: the first rows of an object."""

    model_config = ConfigDict(frozen=True)

    path: str
    rows: int
    bytes: int


class StagedOutput(BaseModel):
    """All that an epoch staged in one sink; plain JSON, kept in the checkpoint until it is
    committed.
    """

    model_config = ConfigDict(frozen=True)

    rows: int = 0
    files: tuple[StagedFile, ...] = ()

    def first(self, rows: int) -> StagedOutput:
        """Only so many rows of it: of the last file that is needed, those at its beginning."""
        files: list[StagedFile] = []
        for each in self.files:
            kept = min(each.rows, rows - sum(file.rows for file in files))
            if kept > 0:
                files.append(each.model_copy(update={"rows": kept}))
        return StagedOutput(rows=sum(each.rows for each in files), files=tuple(files))


def merged_output(parts: Iterable[StagedOutput]) -> StagedOutput:
    """What several operators staged for one table, as one."""
    listed = tuple(parts)
    return StagedOutput(
        rows=sum(each.rows for each in listed),
        files=tuple(file for each in listed for file in each.files),
    )


class SourceSpan(Part):
    """What an epoch read of one source."""

    start: Offset
    end: Offset


class CoveredInput(Part):
    """The input that an epoch's output was computed from.

    Offsets identify it. The planning time and the flags of a range do not belong to it: they say
    when and why the epoch was cut there.
    """

    sources: dict[OperatorId, SourceSpan]

    @classmethod
    def of(cls, inputs: Mapping[OperatorId, InputRange]) -> CoveredInput:
        """The part of an epoch's recorded input that identifies it."""
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
    """What a sink recorded of a job."""

    newest: Epoch = NO_EPOCH
    """The highest epoch that was ever committed or retracted. It is never forgotten."""
    inputs: dict[Epoch, CoveredInput] = field(default_factory=dict)
    """Of the epochs that were asked for: the input that their output covers. An epoch without
    output, or of an older release, is missing.
    """
    retracted: tuple[EpochRange, ...] = ()


def require_same_input(
    place: str, epoch: Epoch, held: CoveredInput | None, covered: CoveredInput
) -> None:
    """Refuse to commit an epoch that the sink holds over other input. None: it is not known."""
    if held not in (None, covered):
        raise SinkConflict(
            f"{place} holds epoch {epoch} over other input than the epoch to commit: it covers "
            f"{held}, not {covered}",
            hint="Check whether another copy of this state dir is running. Retract the epoch with "
            f"`resurgence rollback` to an epoch before {epoch}, or choose another --name and another path.",
        )


class Sink(Protocol):
    """Where rows go."""

    retracts: bool
    """What was committed can be taken back."""

    def check(self) -> None:
        """Raise a UserError now if this can never be written."""
        ...

    def stage(
        self, rows: DataFrame, job: JobIdentity, epoch: Epoch, generation: Generation
    ) -> StagedOutput:
        """Make an epoch's rows durable, and invisible."""
        ...

    def commit(
        self, job: JobIdentity, epoch: Epoch, staged: StagedOutput, covered: CoveredInput
    ) -> None:
        """Make them visible, once, however often this is called, and record the input that they
        cover. Raises SinkConflict if the epoch was committed over other input.
        """
        ...

    def recall(self, job: JobIdentity, epochs: Collection[Epoch]) -> SinkMemory:
        """What was recorded of a job's commits, with the input of some epochs. A sink without a
        memory returns an empty one.
        """
        ...

    def discard(self, staged: StagedOutput) -> None:
        """Remove what will never be committed."""
        ...

    def sweep(self, job: JobIdentity, epoch: Epoch) -> None:
        """Remove what the job staged for epochs up to this one, which are all committed."""
        ...

    def forget(self, job: JobIdentity, before: Epoch) -> None:
        """Drop the records of epochs before one, which can neither be replayed nor retracted any
        more. The newest record stays, however old it is.
        """
        ...

    def retract(self, job: JobIdentity, after: Epoch, up_to: Epoch) -> None:
        """Take back what was committed for the epochs after one up to another, also if this was
        begun before. Later epochs go on after them.
        """
        ...


def whole_number(content: Mapping[str, object], name: str) -> int:
    """A member of an offset, or of a commit record."""
    value = content.get(name)
    if not isinstance(value, int):
        raise UserError(
            f"'{name}' is missing in {dict(content)}",
            hint="Restore the checkpoint from a backup: it was edited by hand.",
        )
    return value
