"""The metrics as a scraper reads them, and as the docs list them."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families
from pydantic import JsonValue

from resurgence.clock import instant_text
from resurgence.control.jobs.transitions import TERMINAL, StateName
from resurgence.control.telemetry.events import Event
from resurgence.control.telemetry.job_metrics import IfItDiesNow, JobMetrics
from resurgence.control.telemetry.prometheus import CONTENT_TYPE, JobSample, exposition
from resurgence.engine.spark.executors import Executor, ExecutorState
from resurgence.graph.watermarks import END_OF_TIME
from resurgence.ids import JobName

DOCS = Path(__file__).parents[4] / "docs"
NOW = datetime(2030, 1, 1, 12, 0, 20, tzinfo=UTC)
ROW = re.compile(r"^\| `(resurgence_\w+)` \| (\w+) \| (.+?) \| .+ \|$", re.MULTILINE)

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def checkpoint(watermark: int | None = int(NOW.timestamp() - 7) * 1_000_000) -> Event:
    return {
        "event": "checkpoint",
        "at": instant_text(NOW - timedelta(seconds=4)),
        "epoch": 3,
        "rows": 100,
        "bytes": 2_000,
        "duration": 1.5,
        "watermark": watermark,
        "state_bytes": 30_000,
        "cache_hits": 9,
        "cache_misses": 1,
        "late": 3,
        "partly_late": 4,
        "bad": 2,
        "dead": 5,
        "skipped": 6,
        "rows_out": 40,
    }


LAG: JsonValue = {
    "rows": 12,
    "seconds": 3.5,
    "partitions": [
        {"table": "rides", "partition": "rides/1", "rows": 12, "seconds": 3.5},
        {"table": "rides", "partition": "rides/0", "rows": 0, "seconds": 0.0},
        {"table": "rides", "partition": "rides/2", "rows": 0, "seconds": None},
    ],
}
EVENTS: tuple[Event, ...] = (
    checkpoint(),
    {"event": "committed", "at": instant_text(NOW), "epoch": 3, "lag": LAG},
    {"event": "failure", "at": instant_text(NOW), "kind": "task_failed", "domain": "external"},
    {"event": "fallback", "at": instant_text(NOW), "epoch": 4, "reasons": []},
    {"event": "checkpoint_damaged", "at": instant_text(NOW), "epoch": 4, "reasons": []},
    {"event": "executor_lost", "at": instant_text(NOW), "epoch": 4, "executor": "1"},
    {
        "event": "incident",
        "at": instant_text(NOW),
        "detected_at": instant_text(NOW - timedelta(seconds=6.5)),
        "resumed_at": instant_text(NOW),
        "replayed_rows": 70,
    },
)


def sample(
    *events: Event,
    name: str = "rides",
    state: StateName = StateName.RUNNING,
    restarts_left: int = 17,
    if_it_dies_now: IfItDiesNow | None = None,
) -> JobSample:
    metrics = JobMetrics()
    for each in events:
        metrics.note(each)
    return JobSample(JobName(name), state, metrics, restarts_left, if_it_dies_now)


def executor(state: ExecutorState) -> Executor:
    return Executor(
        id="1",
        host="10.0.0.7",
        cores=4,
        state=state,
        active_tasks=0,
        completed_tasks=5,
        failed_tasks=0,
        added_at=NOW,
    )


def values(*jobs: JobSample) -> Values:
    """Every sample, by name and labels, read back by the library's own parser."""
    families = text_string_to_metric_families(exposition(jobs, NOW).decode())
    return {
        (each.name, tuple(sorted(each.labels.items()))): each.value
        for family in families
        for each in family.samples
    }


def of(found: Values, name: str, **labels: str) -> float | None:
    return found.get((name, tuple(sorted(labels.items()))))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("resurgence_epochs_sealed_total", 1),
        ("resurgence_epochs_committed_total", 1),
        ("resurgence_rows_in_total", 100),
        ("resurgence_rows_out_total", 40),
        ("resurgence_late_rows_total", 3),
        ("resurgence_partly_late_rows_total", 4),
        ("resurgence_bad_rows_total", 2),
        ("resurgence_dead_rows_total", 5),
        ("resurgence_skipped_rows_total", 6),
        ("resurgence_lag_rows", 12),
        ("resurgence_lag_seconds", 3.5),
        ("resurgence_watermark_lag_seconds", 7),
        ("resurgence_checkpoint_age_seconds", 4),
        ("resurgence_checkpoint_duration_seconds", 1.5),
        ("resurgence_checkpoint_bytes", 2_000),
        ("resurgence_checkpoint_state_bytes", 30_000),
        ("resurgence_state_cache_hits_total", 9),
        ("resurgence_state_cache_misses_total", 1),
        ("resurgence_recoveries_total", 1),
        ("resurgence_recovery_seconds_count", 1),
        ("resurgence_recovery_seconds_sum", 6.5),
        ("resurgence_replayed_rows_total", 70),
        ("resurgence_fallbacks_total", 1),
        ("resurgence_damaged_checkpoints_total", 1),
        ("resurgence_executors_lost_total", 1),
        ("resurgence_restarts_left", 17),
        ("resurgence_if_it_dies_now_rows", 42),
        ("resurgence_if_it_dies_now_seconds", 4.5),
    ],
)
def test_each_metric_has_its_value_for_each_job(name: str, value: float) -> None:
    cost = IfItDiesNow(42, 4.5)
    found = values(sample(*EVENTS, if_it_dies_now=cost), sample(name="other", restarts_left=0))
    assert of(found, name, job="rides") == value
    assert of(found, name, job="other") in (0, None)


def test_every_state_and_every_domain_is_there_from_the_beginning() -> None:
    found = values(
        sample(*EVENTS),
        sample(name="b"),
        sample(name="c", state=StateName.FAILED),
    )
    states = {state: of(found, "resurgence_jobs", state=state) for state in StateName}
    assert states == {**dict.fromkeys(StateName, 0), StateName.RUNNING: 2, StateName.FAILED: 1}
    assert [
        of(found, "resurgence_failures_total", job="rides", domain=domain)
        for domain in ("user", "external", "internal")
    ] == [0, 1, 0]
    assert of(values(), "resurgence_jobs", state="Running") == 0


def test_unknown_values_are_absent_and_counters_start_at_zero() -> None:
    named = {name for name, labels in values(sample()) if ("job", "rides") in labels}
    assert named == {
        "resurgence_epochs_sealed_total",
        "resurgence_epochs_committed_total",
        "resurgence_rows_in_total",
        "resurgence_rows_out_total",
        "resurgence_late_rows_total",
        "resurgence_partly_late_rows_total",
        "resurgence_bad_rows_total",
        "resurgence_dead_rows_total",
        "resurgence_skipped_rows_total",
        "resurgence_failures_total",
        "resurgence_state_cache_hits_total",
        "resurgence_state_cache_misses_total",
        "resurgence_recoveries_total",
        "resurgence_recovery_seconds_count",
        "resurgence_recovery_seconds_sum",
        "resurgence_replayed_rows_total",
        "resurgence_fallbacks_total",
        "resurgence_damaged_checkpoints_total",
        "resurgence_executors_lost_total",
        "resurgence_restarts_left",
    }


def test_lag_is_by_partition_and_absent_for_a_job_that_has_ended() -> None:
    found = values(sample(*EVENTS), sample(*EVENTS, name="ended", state=StateName.STOPPED))
    place = {"job": "rides", "table": "rides"}
    rows = [
        of(found, "resurgence_partition_lag_rows", **place, partition=f"rides/{number}")
        for number in range(3)
    ]
    assert rows == [0, 12, 0]
    name = "resurgence_partition_lag_seconds"
    assert of(found, name, **place, partition="rides/1") == 3.5
    assert of(found, name, **place, partition="rides/2") is None
    assert of(found, "resurgence_lag_rows", job="ended") is None


def test_executors_are_counted_by_state_and_absent_without_a_cluster() -> None:
    states = (ExecutorState.RUNNING, ExecutorState.RUNNING, ExecutorState.LOST)
    executors = tuple(map(executor, states))
    found = values(replace(sample(), executors=executors), sample(name="local"))
    counts = {
        state: of(found, "resurgence_executors", job="rides", state=state)
        for state in ExecutorState
    }
    assert counts == {"running": 2, "released": 0, "lost": 1}
    assert of(found, "resurgence_executors", job="local", state="running") is None


def test_an_unknown_recovery_time_is_absent_while_the_rows_are_exposed() -> None:
    found = values(sample(if_it_dies_now=IfItDiesNow(0, None)))
    assert of(found, "resurgence_if_it_dies_now_rows", job="rides") == 0
    assert of(found, "resurgence_if_it_dies_now_seconds", job="rides") is None


@pytest.mark.parametrize(
    ("watermark", "state", "has_lag", "has_age"),
    [
        (1, StateName.RUNNING, True, True),
        (1, StateName.FAILED, True, True),
        (1, StateName.STOPPED, False, False),
        (1, StateName.FINISHED, False, False),
        (None, StateName.RUNNING, False, True),
        (END_OF_TIME, StateName.RUNNING, False, True),
    ],
)
def test_only_a_job_that_is_desired_to_run_has_a_lag(
    watermark: int | None, state: StateName, has_lag: bool, has_age: bool
) -> None:
    found = values(sample(checkpoint(watermark), state=state))
    assert (of(found, "resurgence_watermark_lag_seconds", job="rides") is not None) == has_lag
    assert (of(found, "resurgence_checkpoint_age_seconds", job="rides") is not None) == has_age


@pytest.mark.parametrize("state", StateName)
def test_a_terminal_job_has_no_restart_budget(state: StateName) -> None:
    found = values(sample(state=state, restarts_left=0))
    has_restarts = of(found, "resurgence_restarts_left", job="rides") is not None
    assert has_restarts == (state not in TERMINAL)


def test_the_table_in_the_docs_has_exactly_the_metrics_that_are_exposed() -> None:
    job = sample(*EVENTS, if_it_dies_now=IfItDiesNow(42, 4.5))
    job = replace(job, executors=(executor(ExecutorState.RUNNING),))
    text = exposition([job], NOW).decode()
    exposed = {
        family.name + ("_total" if family.type == "counter" else ""): (
            family.type,
            {label for each in family.samples for label in each.labels},
        )
        for family in text_string_to_metric_families(text)
    }
    documented = {
        name: (kind, set(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in ROW.findall((DOCS / "metrics.md").read_text())
    }
    assert documented == exposed


def test_the_alerts_in_the_docs_name_metrics_that_exist() -> None:
    page = (DOCS / "metrics.md").read_text()
    alerts = "".join(re.findall(r"```yaml\n(.*?)```", page, re.DOTALL))
    named = set(re.findall(r"resurgence_\w+", alerts))
    assert named
    assert named <= {name for name, _, _ in ROW.findall(page)}


def test_a_label_with_quotes_and_line_breaks_is_read_back_as_it_was() -> None:
    name = 'a"b\\c\nd'
    assert of(values(sample(name=name)), "resurgence_restarts_left", job=name) == 17


def test_nothing_is_registered_in_the_global_registry_of_the_library() -> None:
    before = {metric.name for metric in REGISTRY.collect()}
    exposition([sample(*EVENTS)], NOW)
    assert {metric.name for metric in REGISTRY.collect()} == before


def test_the_series_depend_on_the_number_of_jobs_alone() -> None:
    one = len(values(sample(*EVENTS)))
    assert len(values(sample(*EVENTS * 50))) == one
    assert CONTENT_TYPE.startswith("text/plain")
