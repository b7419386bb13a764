"""The counters of a job, and the forecast of its recovery."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

from resurgence.clock import instant_text
from resurgence.control.detection.failure import FailureKind
from resurgence.control.jobs.transitions import StateName
from resurgence.control.telemetry.events import Event
from resurgence.control.telemetry.job_metrics import IfItDiesNow, JobMetrics, if_it_dies_now
from resurgence.errors import ErrorDomain, RetryHint
from resurgence.graph.watermarks import END_OF_TIME

if TYPE_CHECKING:
    from tests.unit.control.conftest import ScriptedWorker, Supervised

START = datetime(2030, 1, 1, tzinfo=UTC)
START_MICROS = int(START.timestamp()) * 1_000_000


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def spans(*seconds: float) -> list[timedelta]:
    return [timedelta(seconds=each) for each in seconds]


def event(name: str, at: float = 0, **facts: JsonValue) -> Event:
    return {"event": name, "at": instant_text(after(at)), **facts}


def checkpoint(epoch: int, at: float = 0, watermark: int | None = None) -> Event:
    return event(
        "checkpoint",
        at,
        epoch=epoch,
        rows=100,
        bytes=2_000,
        duration=1.5,
        watermark=watermark,
        state_bytes=30_000,
        cache_hits=9,
        cache_misses=1,
        late=3,
        partly_late=4,
        bad=2,
        skipped=6,
        rows_out=40,
    )


def incident(detected: float, resumed: float | None, replayed_rows: int = 0) -> Event:
    return event(
        "incident",
        detected_at=instant_text(after(detected)),
        resumed_at=None if resumed is None else instant_text(after(resumed)),
        replayed_rows=replayed_rows,
    )


def noted(*events: Event) -> JobMetrics:
    metrics = JobMetrics()
    for each in events:
        metrics.note(each)
    return metrics


def test_dead_rows_are_summed_also_over_events_of_older_releases_without_them() -> None:
    old = checkpoint(1, at=1)
    assert "dead" not in old
    assert noted(old, old | {"dead": 3}, old | {"dead": 4}).dead_rows == 7


def test_rows_and_epochs_are_summed_and_the_last_checkpoint_is_remembered() -> None:
    metrics = noted(
        checkpoint(1, at=1),
        event("committed", epoch=1),
        checkpoint(2, at=5, watermark=START_MICROS),
    )
    assert (metrics.sealed_epoch, metrics.committed_epoch) == (2, 1)
    assert (metrics.epochs_sealed, metrics.epochs_committed) == (2, 1)
    assert (metrics.rows_in, metrics.rows_out) == (200, 80)
    assert (metrics.late_rows, metrics.partly_late_rows, metrics.bad_rows) == (6, 8, 4)
    assert metrics.checkpoint_age(after(12)) == timedelta(seconds=7)
    assert metrics.last_checkpoint is not None
    assert metrics.last_checkpoint.duration == timedelta(seconds=1.5)
    assert metrics.last_checkpoint.bytes_written == 2_000
    assert metrics.last_checkpoint.state_bytes == 30_000


@pytest.mark.parametrize(
    ("watermark", "lag", "text", "ended"),
    [
        (None, None, None, False),
        (START_MICROS - 2_500_000, 12.5, "2029-12-31T23:59:57.500+00:00", False),
        (START_MICROS + 30_000_000, -20.0, "2030-01-01T00:00:30.000+00:00", False),
        (0, START.timestamp() + 10, "1970-01-01T00:00:00.000+00:00", False),
        (-(2**62), START.timestamp() + 10 + 2**62 / 1e6, None, False),
        (END_OF_TIME, None, None, True),
    ],
)
def test_the_watermark_lags_behind_now_unless_there_is_none_or_the_input_has_ended(
    watermark: int | None, lag: float | None, text: str | None, ended: bool
) -> None:
    metrics = noted(checkpoint(1, watermark=watermark))
    progress = metrics.progress(after(10))
    assert metrics.watermark_lag(after(10)) == (None if lag is None else pytest.approx(lag))
    assert (progress["watermark"], progress["input_has_ended"]) == (text, ended)


def test_failures_are_counted_by_domain_and_by_kind() -> None:
    metrics = noted(
        event("failure", kind=FailureKind.TASK_FAILED, domain=ErrorDomain.USER),
        event("failure", kind=FailureKind.TASK_FAILED, domain=ErrorDomain.EXTERNAL),
        event("failure", kind=FailureKind.WORKER_EXITED, domain=ErrorDomain.EXTERNAL),
        event("fallback", epoch=4, reasons=["gone"]),
        event("checkpoint_damaged", epoch=5, reasons=["torn"]),
        event("checkpoint_damaged", epoch=6, reasons=["torn"]),
    )
    assert metrics.failures_by_domain == {"user": 1, "external": 2}
    assert metrics.failures_by_kind == {"task_failed": 2, "worker_exited": 1}
    assert (metrics.fallbacks, metrics.damaged_checkpoints) == (1, 2)


def test_an_incident_is_a_recovery_only_if_the_job_recovered() -> None:
    metrics = noted(incident(0, 4, replayed_rows=70), incident(10, None, replayed_rows=5))
    assert (metrics.recoveries, metrics.replayed_rows) == (1, 70)
    assert metrics.recovery_time == timedelta(seconds=4)
    assert [*metrics.past_recoveries] == spans(4)


def test_only_the_last_five_recoveries_are_remembered_but_all_are_counted() -> None:
    metrics = noted(*(incident(100 * each, 100 * each + each) for each in range(1, 9)))
    assert [*metrics.past_recoveries] == spans(4, 5, 6, 7, 8)
    assert (metrics.recoveries, metrics.recovery_time) == (8, timedelta(seconds=36))


def test_a_start_lasts_from_the_worker_process_until_the_job_runs() -> None:
    metrics = noted(
        event("worker_started", at=1),
        event("worker_started", at=20),
        event("state", at=23.5, to=StateName.RUNNING),
    )
    assert metrics.last_start == timedelta(seconds=3.5)
    metrics.note(event("state", at=90, to=StateName.RESTARTING))
    assert metrics.state is StateName.RESTARTING
    metrics.note(event("state", at=95, to=StateName.RUNNING))
    assert metrics.last_start == timedelta(seconds=3.5)


@pytest.mark.parametrize(
    ("origin", "last_start"), [("started", 2), ("standby", 2), ("in_place", 9), ("adopted", 9)]
)
def test_a_standby_does_not_count_for_the_duration_of_a_start(
    origin: str, last_start: float
) -> None:
    metrics = noted(
        event("worker_started", at=0, origin="started"),
        event("state", at=9, to=StateName.RUNNING),
        event("worker_started", at=20, origin=origin),
        event("state", at=22, to=StateName.RUNNING),
    )
    assert metrics.last_start == timedelta(seconds=last_start)


def test_a_reset_leaves_no_checkpoint_but_what_was_counted_stays() -> None:
    metrics = noted(checkpoint(3, watermark=START_MICROS), event("committed", epoch=3))
    metrics.note(event("reset", run=2))
    assert (metrics.sealed_epoch, metrics.committed_epoch) == (0, 0)
    assert (metrics.watermark, metrics.last_checkpoint) == (None, None)
    assert (metrics.epochs_sealed, metrics.rows_in) == (1, 100)


@pytest.mark.parametrize(
    ("past", "last_start", "last_epoch", "expected"),
    [
        ([], None, None, None),
        ([], 3.0, None, None),
        ([], None, 1.5, None),
        ([], 3.0, 1.5, 4.5),
        ([9.0], 3.0, 1.5, 9.0),
        ([9.0], None, None, 9.0),
        ([4.0, 6.0], 3.0, 1.5, 5.0),
        ([1.0, 100.0, 2.0], 3.0, 1.5, 2.0),
        ([99.0, 99.0, 99.0, 1.0, 2.0, 3.0, 4.0, 5.0], 3.0, 1.5, 3.0),
    ],
)
def test_the_expected_time_is_the_median_of_the_last_recoveries_or_else_start_and_epoch(
    past: list[float], last_start: float | None, last_epoch: float | None, expected: float | None
) -> None:
    cost = if_it_dies_now(
        {7: 30, 8: 12}.values(),
        spans(*past),
        None if last_start is None else timedelta(seconds=last_start),
        None if last_epoch is None else timedelta(seconds=last_epoch),
    )
    assert cost == IfItDiesNow(rows_to_replay=42, expected_seconds=expected)


def test_a_job_without_unsealed_rows_has_nothing_to_replay() -> None:
    assert JobMetrics().if_it_dies_now([]) == IfItDiesNow(0, None)


def test_the_cost_of_a_recovery_is_derived_from_the_events() -> None:
    metrics = noted(
        event("worker_started", at=0),
        event("state", at=3, to=StateName.RUNNING),
        checkpoint(1, at=5),
    )
    assert metrics.if_it_dies_now([8]) == IfItDiesNow(8, 4.5)
    metrics.note(incident(10, 17))
    assert metrics.if_it_dies_now([8]) == IfItDiesNow(8, 7.0)


def test_progress_is_plain_json_from_the_first_moment_on() -> None:
    empty = JobMetrics().progress(START)
    assert json.loads(json.dumps(empty)) == empty
    assert (empty["state"], empty["epoch"], empty["last_checkpoint"]) == ("Created", 0, None)
    full = noted(
        event("worker_started", at=0),
        event("state", at=2, to=StateName.RUNNING),
        checkpoint(3, at=4, watermark=START_MICROS),
        event("committed", epoch=3),
        event("failure", kind=FailureKind.WORKER_EXITED, domain=ErrorDomain.INTERNAL),
        incident(5, 6.25, replayed_rows=9),
    ).progress(after(10))
    assert json.loads(json.dumps(full)) == full
    assert full == {
        "state": "Running",
        "epoch": 3,
        "committed_epoch": 3,
        "epochs_sealed": 1,
        "epochs_committed": 1,
        "rows_in": 100,
        "rows_out": 40,
        "late_rows": 3,
        "partly_late_rows": 4,
        "bad_rows": 2,
        "dead_rows": 0,
        "skipped_rows": 6,
        "cache_hits": 9,
        "cache_misses": 1,
        "lag": None,
        "watermark": "2030-01-01T00:00:00.000+00:00",
        "watermark_lag_seconds": 10.0,
        "input_has_ended": False,
        "last_checkpoint": {
            "at": "2030-01-01T00:00:04.000+00:00",
            "age_seconds": 6.0,
            "duration_seconds": 1.5,
            "rows": 100,
            "bytes": 2_000,
            "state_bytes": 30_000,
        },
        "last_start_seconds": 2.0,
        "failures_by_domain": {"internal": 1},
        "failures_by_kind": {"worker_exited": 1},
        "recoveries": 1,
        "past_recoveries_seconds": [1.25],
        "replayed_rows": 9,
        "fallbacks": 0,
        "damaged_checkpoints": 0,
        "executors_lost": 0,
    }


def test_lag_is_that_of_the_newest_committed_epoch_and_part_of_the_forecast() -> None:
    partition: JsonValue = {
        "table": "rides",
        "partition": "rides/0",
        "rows": 7,
        "seconds": 2.5,
    }
    lag: JsonValue = {"rows": 7, "seconds": 2.5, "partitions": [partition]}
    metrics = noted(checkpoint(1), event("committed", epoch=1, lag=lag))
    assert metrics.progress(after(1))["lag"] == lag
    forecast = metrics.if_it_dies_now([3])
    assert (forecast.rows_to_replay, forecast.rows_behind, forecast.seconds_behind) == (3, 7, 2.5)
    metrics.note(event("rollback", to_epoch=0))
    assert metrics.lag is None
    assert metrics.if_it_dies_now([3]).rows_behind is None


def test_checkpoints_of_a_release_without_some_counts_are_counted() -> None:
    newer = ("skipped", "cache_hits", "cache_misses")
    older = {name: value for name, value in checkpoint(1).items() if name not in newer}
    found = noted(older, checkpoint(2))
    assert (found.skipped_rows, found.cache_hits, found.cache_misses) == (6, 9, 1)


def test_the_events_of_a_job_that_fails_and_recovers_are_counted(
    job: Supervised,
) -> None:
    async def dies(worker: ScriptedWorker) -> int:
        await worker.restore()
        await worker.run_epoch(worker.first_epoch, rows=10)
        return await worker.fail("away", RetryHint.WITH_BACKOFF, ErrorDomain.EXTERNAL)

    async def finishes(worker: ScriptedWorker) -> int:
        await worker.restore()
        return await worker.finish()

    metrics = noted(*job.run(dies, finishes).events)
    assert metrics.state is StateName.FINISHED
    assert (metrics.epochs_sealed, metrics.epochs_committed) == (2, 2)
    assert metrics.rows_in == 20
    assert metrics.failures_by_domain == {"external": 1}
    assert metrics.recoveries == 1
    assert metrics.last_start is not None
    assert timedelta(0) < metrics.past_recoveries[0] < timedelta(seconds=10)
