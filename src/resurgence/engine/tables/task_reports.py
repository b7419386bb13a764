"""What tasks report beside the rows that they return: by an accumulator of Spark, which counts the
tasks that succeeded, and not those that failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyspark import Accumulator, AccumulatorParam
from pyspark.sql import SparkSession

_Report: TypeAlias = tuple[int, int, list[dict[str, Any]]]
"""The number of the job, the subtask, and what it reports."""


class TaskReports:
    """The accumulator of one operator. Spark keeps it as long as the application runs, so there is
    one for all epochs.
    """

    def __init__(self, spark: SparkSession, tasks: int) -> None:
        """`tasks` of each job report."""
        self.tasks = tasks
        self._accumulator = spark.sparkContext.accumulator([], _Appended())
        self._job = 0

    def begin(self) -> Reports:
        """Return the reports of a job that is about to be planned, and forget earlier ones."""
        self._job += 1
        self._accumulator.value = []
        return Reports(self._accumulator, self._job, self.tasks)


@dataclass(frozen=True)
class Reports:
    """The reports of one job. Tasks of an earlier attempt may still be running."""

    _accumulator: Accumulator[list[_Report]]
    _job: int
    _tasks: int

    def add(self, subtask: int, rows: list[dict[str, Any]]) -> None:
        """Report, at the end of a task."""
        self._accumulator.add([(self._job, subtask, rows)])

    def are_complete(self) -> bool:
        """Return whether all tasks have reported."""
        return len(self._own()) >= self._tasks

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield what was reported, once per subtask."""
        first: dict[int, list[dict[str, Any]]] = {}
        for subtask, rows in self._own():
            if rows:
                first.setdefault(subtask, rows)
        for rows in first.values():
            yield from rows

    def _own(self) -> list[tuple[int, list[dict[str, Any]]]]:
        reports = self._accumulator.value
        return [(subtask, rows) for job, subtask, rows in reports if job == self._job]


class _Appended(AccumulatorParam[list[_Report]]):
    def zero(self, value: list[_Report]) -> list[_Report]:
        return []

    def addInPlace(self, value1: list[_Report], value2: list[_Report]) -> list[_Report]:  # noqa: N802
        return [*value1, *value2]
