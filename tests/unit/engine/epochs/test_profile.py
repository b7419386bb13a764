"""The time of an epoch, split into parts that add up to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resurgence.engine.epochs.profile import profile_of
from resurgence.engine.epochs.timeline import Span, Work
from resurgence.engine.spark.job_figures import SparkJob, SparkQuery, SparkTask, SparkWork
from resurgence.ids import Epoch, OperatorId

WINDOW, SINK = OperatorId("window-1"), OperatorId("sink-1")


def task(began: float, ended: float, **known: float) -> SparkTask:
    figures: dict[str, float] = {
        "run": ended - began,
        "cpu": 0.0,
        "shuffle_wait": 0.0,
        "shuffle_write": 0.0,
        "garbage_collection": 0.0,
    } | known
    return SparkTask(
        began,
        ended,
        **figures,
        input_rows=0,
        input_bytes=0,
        output_bytes=0,
        shuffle_bytes_read=0,
        shuffle_bytes_written=0,
    )


SPANS = [
    Span(Work.PLANNING, None, 0, 1),
    Span(Work.OPERATOR, WINDOW, 1, 10),
    Span(Work.OPERATOR, SINK, 10, 15),
    Span(Work.STORAGE, None, 15, 16),
]


def test_a_moment_belongs_to_the_innermost_thing_that_ran() -> None:
    found = profile_of(
        Epoch(3),
        SPANS,
        SparkWork(
            jobs=(SparkJob(1, 7, 4, 9, (task(5, 7), task(6, 8))), SparkJob(2, None, 11, 12, ())),
            queries=(SparkQuery(7, 3, 9.5),),
        ),
    )
    assert [each.work for each in found.work] == [each.work for each in SPANS]
    _, window, sink, _ = found.work
    assert (window.driver, window.submission, window.scheduling, window.tasks) == (2.5, 1.5, 2, 3)
    assert (sink.driver, sink.submission, sink.scheduling, sink.tasks) == (4, 0, 1, 0)
    assert found.seconds == 16
    assert found.checkpoint_share == 1 / 16
    assert [(each.operator, each.seconds, each.scheduling) for each in found.jobs] == [
        (WINDOW, 5, 2),
        (SINK, 1, 1),
    ]


def test_the_waits_of_tasks_are_for_python_workers_as_long_as_these_ran() -> None:
    ran = (task(0, 10, run=9, cpu=3, shuffle_wait=1),)
    query = SparkQuery(7, 0, 10, python=2.0, python_bytes=300)
    (job,) = profile_of(Epoch(1), SPANS, SparkWork((SparkJob(1, 7, 0, 10, ran),), (query,))).jobs
    assert (job.overhead, job.cpu, job.python, job.shuffle_wait, job.waits) == (1, 3, 2, 1, 3)
    assert job.python_bytes == 300


def test_python_workers_that_ran_beside_the_jvm_take_no_more_than_its_waits() -> None:
    ran = (task(0, 10, cpu=6),)
    query = SparkQuery(7, 0, 10, python=9.0)
    (job,) = profile_of(Epoch(1), SPANS, SparkWork((SparkJob(1, 7, 0, 10, ran),), (query,))).jobs
    assert (job.cpu, job.python, job.waits) == (6, 4, 0)


INSTANTS = st.floats(0, 20)
INTERVALS = st.tuples(INSTANTS, INSTANTS).map(sorted)
TASKS = st.builds(
    lambda interval, run, cpu, wait: task(
        interval[0], interval[1], run=run, cpu=cpu, shuffle_wait=wait
    ),
    INTERVALS,
    *[st.floats(0, 25)] * 3,
)
JOBS = st.builds(
    lambda number, query, interval, tasks: SparkJob(
        number, query, interval[0], interval[1], tuple(tasks)
    ),
    st.integers(1, 9),
    st.none() | st.integers(1, 3),
    INTERVALS,
    st.lists(TASKS, max_size=4),
)
QUERIES = st.builds(
    lambda interval, number, python: SparkQuery(number, interval[0], interval[1], python=python),
    INTERVALS,
    st.integers(1, 3),
    st.floats(0, 50),
)


@given(
    jobs=st.lists(JOBS, max_size=4),
    queries=st.lists(QUERIES, max_size=3, unique_by=lambda query: query.id),
)
def test_the_parts_add_up_whatever_spark_reports(
    jobs: list[SparkJob], queries: list[SparkQuery]
) -> None:
    found = profile_of(Epoch(1), SPANS, SparkWork(tuple(jobs), tuple(queries)))
    assert sum(each.total for each in found.work) == pytest.approx(16)
    for work in found.work:
        assert min(work.driver, work.submission, work.scheduling, work.tasks) > -1e-9
    for job in found.jobs:
        assert job.scheduling + job.in_tasks == pytest.approx(job.seconds)
        parts = (job.overhead, job.cpu, job.python, job.shuffle_wait, job.waits)
        assert sum(parts) == pytest.approx(job.task_seconds)
        assert min(parts) > -1e-9
