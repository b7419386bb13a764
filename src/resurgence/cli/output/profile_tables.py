"""Where the time of epochs goes, as two tables: by work, and by the Spark jobs in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from resurgence.cli.output.plain_table import table_lines
from resurgence.engine.epochs.profile import EpochProfile, JobSeconds, WorkSeconds
from resurgence.engine.epochs.timeline import Work
from resurgence.ids import OperatorId

_Place = tuple[Work, OperatorId | None]
_WORK = ("work", "ms", "driver", "submission", "scheduling", "tasks", "share, %")
_JOBS = (
    "jobs of",
    "jobs",
    "ms",
    "scheduling",
    *("in tasks", "overhead", "JVM", "Python", "shuffle", "waits"),
    *("tasks", "shuffled, KB", "Python, KB"),
)


def profile_lines(profiles: Sequence[EpochProfile]) -> Iterator[str]:
    """Yield both tables, with means: these add up, as medians would not. The first half of the
    epochs is left out, because the JVM warms up in it.
    """
    if not profiles:
        return
    warm = list(profiles)[len(profiles) // 2 :]
    mean = sum(each.seconds for each in warm) / len(warm)
    of = f"{len(warm)} epochs" if len(warm) > 1 else f"epoch {warm[0].epoch}"
    yield f"time of {of}, ms per epoch (the first {len(profiles) - len(warm)} not counted)"
    yield ""
    yield from table_lines(_WORK, [*_work_rows(warm, mean)])
    yield ""
    share = sum(each.checkpoint_share * each.seconds for each in warm) / (mean * len(warm))
    yield f"checkpoint share of the time: {share:.1%}"
    rows = [*_job_rows(warm)]
    if rows:
        yield ""
        yield from table_lines(_JOBS, rows)


def _work_rows(profiles: Sequence[EpochProfile], mean: float) -> Iterator[list[object]]:
    """Yield a row for each kind of work and operator, and one with the sums."""
    cells: dict[_Place, list[WorkSeconds]] = {}
    for each in (work for profile in profiles for work in profile.work):
        cells.setdefault((each.work, each.operator), []).append(each)
    everything = [each for own in cells.values() for each in own]
    for place, own in sorted(cells.items(), key=lambda item: list(Work).index(item[0][0])):
        yield _work_row(_name(place), own, len(profiles), mean)
    yield _work_row("epoch", everything, len(profiles), mean)


def _work_row(name: str, own: Sequence[WorkSeconds], epochs: int, mean: float) -> list[object]:
    total = sum(each.total for each in own) / epochs
    return [
        name,
        _millis(total),
        *(
            _millis(sum(seconds) / epochs)
            for seconds in (
                [each.driver for each in own],
                [each.submission for each in own],
                [each.scheduling for each in own],
                [each.tasks for each in own],
            )
        ),
        round(100 * total / mean, 1) if mean else 0.0,
    ]


def _job_rows(profiles: Sequence[EpochProfile]) -> Iterator[list[object]]:
    """Yield a row for the jobs of each operator. What its tasks did is scaled to the time in which
    at least one of them was running, so that it adds up to that.
    """
    found: dict[_Place, list[JobSeconds]] = {}
    for each in (job for profile in profiles for job in profile.jobs):
        found.setdefault((each.work, each.operator), []).append(each)
    for place, own in found.items():
        in_tasks = sum(each.in_tasks for each in own)
        scale = in_tasks / (sum(each.task_seconds for each in own) or 1.0) / len(profiles)
        yield [
            _name(place),
            _per_epoch((1 for _ in own), profiles),
            _millis(sum(each.seconds for each in own) / len(profiles)),
            _millis(sum(each.scheduling for each in own) / len(profiles)),
            _millis(in_tasks / len(profiles)),
            _millis(scale * sum(each.overhead for each in own)),
            _millis(scale * sum(each.cpu for each in own)),
            _millis(scale * sum(each.python for each in own)),
            _millis(scale * sum(each.shuffle_wait for each in own)),
            _millis(scale * sum(each.waits for each in own)),
            _per_epoch((each.tasks for each in own), profiles),
            _per_epoch((each.shuffle_bytes_written / 1000 for each in own), profiles),
            _per_epoch((each.python_bytes / 1000 for each in own), profiles),
        ]


def _name(place: _Place) -> str:
    work, operator = place
    if operator is None:
        return work.value
    return str(operator) if work is Work.OPERATOR else f"{work} of {operator}"


def _per_epoch(values: Iterable[float], profiles: Sequence[EpochProfile]) -> float:
    return round(sum(values) / len(profiles), 1)


def _millis(seconds: float) -> float:
    return round(1000 * seconds, 1)
