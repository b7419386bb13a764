"""`countdown`: a source of the numbers from `first` down to 1.

Its offset is how many numbers are left. Reading a range again returns the same rows, because a row
depends only on its place in the range.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field
from pyspark.sql import DataFrame, SparkSession

from resurgence.connectors.connector import Connector, SourceRole
from resurgence.connectors.formats.options import SourceOptions
from resurgence.connectors.generator import NUMBER, Generator
from resurgence.graph.table_options import option
from resurgence.graph.values import Column
from resurgence.state.records import InputRange, Offset

COLUMNS = (Column(name="number", type="BIGINT", nullable=False),)


class CountdownOptions(SourceOptions):
    """The options of a table, in WITH (...)."""

    first: Annotated[int, Field(ge=1)] = option(
        "the number to begin with", hint="Use a whole number of at least 1."
    )


class CountdownSource(Generator):
    """The numbers from `first` down to 1."""

    name = "countdown"

    def __init__(self, options: CountdownOptions) -> None:
        super().__init__(COLUMNS, options.bad_data)
        self._first = options.first

    def check(self) -> None:
        """Nothing to check: a generator is always available."""

    def first_offset(self, now: datetime, parallelism: int) -> Offset:
        return {"left": self._first}

    def plan(self, offset: Offset, most_rows: int, now: datetime) -> InputRange:
        left = _left(offset)
        return _range(left, max(0, left - most_rows))

    def numbered(self, spark: SparkSession, input_range: InputRange, parallelism: int) -> DataFrame:
        left = _left(input_range.start)
        numbers = spark.range(0, input_range.rows, 1, 1).selectExpr(f"{left} - id AS number")
        return numbers.selectExpr("number", f"{self._first} - number AS {NUMBER}")

    def halved(self, input_range: InputRange) -> tuple[InputRange, InputRange] | None:
        start, end = _left(input_range.start), _left(input_range.end)
        middle = (start + end) // 2
        return (_range(start, middle), _range(middle, end)) if start - end > 1 else None

    def in_words(self, input_range: InputRange) -> str:
        return f"from {_left(input_range.start)} down to {_left(input_range.end) + 1}"


def _range(start: int, end: int) -> InputRange:
    return InputRange(start={"left": start}, end={"left": end}, rows=start - end, final=end == 0)


def _left(offset: Offset) -> int:
    left = offset["left"]
    assert isinstance(left, int)
    return left


COUNTDOWN = Connector(
    "countdown",
    source=SourceRole(
        make=lambda options, table: CountdownSource(options),
        options=CountdownOptions,
        fixed_columns=COLUMNS,
    ),
)
