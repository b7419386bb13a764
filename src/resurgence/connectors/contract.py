"""The two contracts: what a source gives and what a sink promises.

A source plans ranges of offsets and reads them as DataFrames. Reading a range again gives the same
rows.

A sink takes an epoch's rows in two steps. `stage` makes them durable and invisible, under names of
their own. `commit` makes them visible and may be called again, by anyone, for the same (job,
epoch): what was committed first stays. `discard` and `sweep` remove what was staged and will never
be committed. `retract` takes back what a rollback has declared dead.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Protocol

from pydantic import BaseModel, ConfigDict
from pyspark.sql import DataFrame, SparkSession

from resurgence.errors import BadRecord
from resurgence.ids import Epoch, Generation, JobIdentity
from resurgence.state.records import InputRange, Offset

BAD_POSITION = "__bad_position"
"""A source that can meet bad records marks them here, with their position; good rows have null."""


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


class StagedFile(BaseModel):
    """A durable, invisible piece of an epoch's output."""

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


def merged_output(parts: Iterable[StagedOutput]) -> StagedOutput:
    """What several operators staged for one table, as one."""
    listed = tuple(parts)
    return StagedOutput(
        rows=sum(each.rows for each in listed),
        files=tuple(file for each in listed for file in each.files),
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

    def commit(self, job: JobIdentity, epoch: Epoch, staged: StagedOutput) -> None:
        """Make them visible, once, however often this is called."""
        ...

    def discard(self, staged: StagedOutput) -> None:
        """Remove what will never be committed."""
        ...

    def sweep(self, job: JobIdentity, epoch: Epoch) -> None:
        """Remove what the job staged for epochs up to this one, which are all committed."""
        ...

    def retract(self, job: JobIdentity, after: Epoch, up_to: Epoch) -> None:
        """Take back what was committed for the epochs after one up to another, also if this was
        begun before. Later epochs go on after them.
        """
        ...
