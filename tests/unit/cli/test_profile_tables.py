"""The tables of a profile."""

from __future__ import annotations

from resurgence.cli.output.profile_tables import profile_lines
from resurgence.engine.epochs.profile import EpochProfile, JobSeconds, WorkSeconds
from resurgence.engine.epochs.timeline import Work
from resurgence.ids import Epoch, OperatorId

WINDOW = OperatorId("window-1")
JOB = JobSeconds(
    job=4,
    work=Work.OPERATOR,
    operator=WINDOW,
    seconds=0.05,
    scheduling=0.01,
    in_tasks=0.04,
    tasks=2,
    task_seconds=0.08,
    overhead=0.01,
    cpu=0.03,
    python=0.02,
    shuffle_wait=0.015,
    waits=0.005,
    shuffle_write=0.001,
    garbage_collection=0.0,
    input_rows=1000,
    input_bytes=0,
    output_bytes=0,
    shuffle_bytes_read=2500,
    shuffle_bytes_written=2500,
    python_bytes=12_000,
)


def profile(epoch: int, driver: float) -> EpochProfile:
    work = (
        WorkSeconds(work=Work.STORAGE, driver=0.01),
        WorkSeconds(
            work=Work.OPERATOR, operator=WINDOW, driver=driver, scheduling=0.01, tasks=0.04
        ),
        WorkSeconds(work=Work.STATE, operator=WINDOW, driver=0.02),
    )
    return EpochProfile(
        epoch=Epoch(epoch), seconds=sum(each.total for each in work), work=work, jobs=(JOB,)
    )


def test_the_tables_show_means_of_the_later_half_of_the_epochs() -> None:
    lines = profile_lines([profile(1, 9.0), profile(2, 0.01), profile(3, 0.03)])
    assert [line.rstrip() for line in lines] == [
        "time of 2 epochs, ms per epoch (the first 1 not counted)",
        "",
        "work                  ms  driver  submission  scheduling  tasks  share, %",
        "window-1            70.0    20.0         0.0        10.0   40.0      70.0",
        "state of window-1   20.0    20.0         0.0         0.0    0.0      20.0",
        "storage             10.0    10.0         0.0         0.0    0.0      10.0",
        "epoch              100.0    50.0         0.0        10.0   40.0     100.0",
        "",
        "checkpoint share of the time: 30.0%",
        "",
        "jobs of   jobs    ms  scheduling  in tasks  overhead   JVM  Python  shuffle  waits  tasks"
        "  shuffled, KB  Python, KB",
        "window-1   1.0  50.0        10.0      40.0       5.0  15.0    10.0      7.5    2.5    2.0"
        "           2.5        12.0",
    ]


def test_without_epochs_there_is_nothing_to_show() -> None:
    assert [*profile_lines([])] == []
