"""Where the time of an epoch goes: its timeline, together with what Spark knows of its jobs. Pure.

Every moment of an epoch is counted once. It belongs to the work that the driver was at, and within
that to one of four kinds:

    tasks        a task of a watched Spark job was running
    scheduling   a job was running, but none of its tasks
    submission   a query was running, but no job: Spark generates code, submits, collects
    driver       none of these: plans are built and analysed, results and requests are processed

So the cells of a profile add up to the epoch. The figures of jobs describe the same time in more
detail: theirs are sums over tasks, which may run at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict

from resurgence.engine.epochs.timeline import CHECKPOINT_WORK, Span, Work
from resurgence.engine.spark.job_figures import SparkJob, SparkTask, SparkWork
from resurgence.ids import Epoch, OperatorId

_Interval = tuple[float, float]


class WorkSeconds(BaseModel):
    """The seconds of one kind of work, or of one operator."""

    model_config = ConfigDict(frozen=True)

    work: Work
    operator: OperatorId | None = None
    driver: float = 0.0
    submission: float = 0.0
    scheduling: float = 0.0
    tasks: float = 0.0

    @property
    def total(self) -> float:
        return self.driver + self.submission + self.scheduling + self.tasks


class JobSeconds(BaseModel):
    """One Spark job. What is said of tasks is a sum over them, except for `in_tasks`."""

    model_config = ConfigDict(frozen=True)

    job: int
    work: Work
    operator: OperatorId | None = None
    """The one whose rows it computes, and all rows above it that are not in state."""
    seconds: float
    """From its submission to its end; scheduling and `in_tasks` together."""
    scheduling: float
    """While none of its tasks was running."""
    in_tasks: float
    """While at least one of its tasks was running."""
    tasks: int
    task_seconds: float
    """Overhead, CPU, Python, shuffle wait and other waits together."""
    overhead: float
    """Of its tasks: to be sent, deserialised, and to return their results."""
    cpu: float
    """Of the JVM's threads."""
    python: float
    """The JVM's threads waited while Python workers ran: what a task sends to its Python worker is
    computed in its own thread, so while that waits, it is for the worker, or for a core.
    """
    shuffle_wait: float
    waits: float
    """Everything else that a task waited for: storage, garbage collection, a core."""
    shuffle_write: float
    """Part of CPU and waits."""
    garbage_collection: float
    """Of the JVM, while the tasks ran."""
    input_rows: int
    input_bytes: int
    output_bytes: int
    shuffle_bytes_read: int
    shuffle_bytes_written: int
    python_bytes: int
    """To Python workers and back."""


class EpochProfile(BaseModel):
    """The time of one epoch, from its planning until the next one may be planned."""

    model_config = ConfigDict(frozen=True)

    epoch: Epoch
    seconds: float
    work: tuple[WorkSeconds, ...]
    """In the order in which they began. The sum of all cells is `seconds`."""
    jobs: tuple[JobSeconds, ...] = ()

    @property
    def checkpoint_share(self) -> float:
        """The share of the time that the checkpoint takes, in what `CHECKPOINT_WORK` names."""
        spent = sum(each.total for each in self.work if each.work in CHECKPOINT_WORK)
        return spent / self.seconds if self.seconds else 0.0


def profile_of(epoch: Epoch, spans: Sequence[Span], spark: SparkWork) -> EpochProfile:
    """Return the profile of an epoch with this timeline and these Spark jobs."""
    tasks = _union((task.began, task.ended) for job in spark.jobs for task in job.tasks)
    jobs = _union([*tasks, *((each.began, each.ended) for each in spark.jobs)])
    queries = _union([*jobs, *((each.began, each.ended) for each in spark.queries)])
    cells: dict[tuple[Work, OperatorId | None], list[float]] = {}
    for span in spans:
        in_tasks, in_jobs, in_queries = (_within(span, each) for each in (tasks, jobs, queries))
        cell = cells.setdefault((span.work, span.operator), [0.0] * 4)
        for place, seconds in enumerate(
            (span.seconds - in_queries, in_queries - in_jobs, in_jobs - in_tasks, in_tasks)
        ):
            cell[place] += seconds
    return EpochProfile(
        epoch=epoch,
        seconds=sum(each.seconds for each in spans),
        work=tuple(
            WorkSeconds(
                work=work,
                operator=operator,
                driver=driver,
                submission=submission,
                scheduling=scheduling,
                tasks=in_tasks,
            )
            for (work, operator), (driver, submission, scheduling, in_tasks) in cells.items()
        ),
        jobs=tuple(_job_seconds(each, spans, spark) for each in spark.jobs),
    )


def _job_seconds(job: SparkJob, spans: Sequence[Span], spark: SparkWork) -> JobSeconds:
    # Spark's instants are whole milliseconds: the middle of a job is safely within its span.
    middle = (job.began + job.ended) / 2
    owner = next((each for each in spans if each.began <= middle < each.ended), None)
    in_tasks = sum(
        min(end, job.ended) - max(begin, job.began)
        for begin, end in _union((each.began, each.ended) for each in job.tasks)
        if begin < job.ended and end > job.began
    )
    seconds, task_seconds = job.ended - job.began, sum(_length(each) for each in job.tasks)
    overhead = sum(_length(each) - each.run for each in job.tasks)
    cpu = sum(min(each.cpu, each.run) for each in job.tasks)
    shuffle_wait = sum(_shuffle_wait(each) for each in job.tasks)
    query = next((each for each in spark.queries if each.id == job.query), None)
    waited = _waited(job)
    of_query = sum(_waited(each) for each in spark.jobs if each.query == job.query)
    share = waited / of_query if of_query and query else 0.0
    python = min(waited, share * query.python) if query else 0.0
    return JobSeconds(
        job=job.id,
        work=owner.work if owner else Work.OTHER,
        operator=owner.operator if owner else None,
        seconds=seconds,
        scheduling=seconds - in_tasks,
        in_tasks=in_tasks,
        tasks=len(job.tasks),
        task_seconds=task_seconds,
        overhead=overhead,
        cpu=cpu,
        python=python,
        shuffle_wait=shuffle_wait,
        waits=waited - python,
        shuffle_write=sum(each.shuffle_write for each in job.tasks),
        garbage_collection=sum(each.garbage_collection for each in job.tasks),
        input_rows=sum(each.input_rows for each in job.tasks),
        input_bytes=sum(each.input_bytes for each in job.tasks),
        output_bytes=sum(each.output_bytes for each in job.tasks),
        shuffle_bytes_read=sum(each.shuffle_bytes_read for each in job.tasks),
        shuffle_bytes_written=sum(each.shuffle_bytes_written for each in job.tasks),
        python_bytes=int(share * query.python_bytes) if query else 0,
    )


def _waited(job: SparkJob) -> float:
    """Return how long the tasks of a job executed without using a CPU or waiting for blocks."""
    return sum(each.run - min(each.cpu, each.run) - _shuffle_wait(each) for each in job.tasks)


def _shuffle_wait(task: SparkTask) -> float:
    return max(0.0, min(task.shuffle_wait, task.run - min(task.cpu, task.run)))


def _length(task: SparkTask) -> float:
    return max(task.ended - task.began, task.run)


def _union(intervals: Iterable[_Interval]) -> list[_Interval]:
    """Return disjoint intervals that cover the same time, in their order."""
    merged: list[_Interval] = []
    for began, ended in sorted(intervals):
        if merged and began <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], ended))
        else:
            merged.append((began, ended))
    return merged


def _within(span: Span, intervals: Iterable[_Interval]) -> float:
    """Return how much of a span is covered by disjoint intervals."""
    return sum(
        min(ended, span.ended) - max(began, span.began)
        for began, ended in intervals
        if began < span.ended and ended > span.began
    )
