"""The metrics of all jobs in the Prometheus text format.

The values come from `JobMetrics`. Label cardinality is bounded by the number of jobs: no metric is
per operator, subtask, epoch or error text. Only lag is per partition, of the 32 that are furthest
behind. An unknown value is absent, not zero. Counters start at
zero, so that a rate includes the first increment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from resurgence.control.jobs.transitions import TERMINAL, StateName
from resurgence.control.telemetry.job_metrics import IfItDiesNow, JobMetrics
from resurgence.engine.epochs.lag import LagSummary, PartitionLag
from resurgence.engine.spark.executors import Executor, ExecutorState
from resurgence.errors import ErrorDomain
from resurgence.ids import JobName

CONTENT_TYPE = CONTENT_TYPE_LATEST
_INACTIVE = frozenset({StateName.STOPPED, StateName.FINISHED})
"""Lag and age of such a job would only raise false alarms."""


@dataclass(frozen=True)
class JobSample:
    """The values of one job at one instant."""

    name: JobName
    state: StateName
    metrics: JobMetrics
    restarts_left: int
    if_it_dies_now: IfItDiesNow | None
    """None: the job has no worker."""
    executors: tuple[Executor, ...] = ()
    """Of its worker, on a cluster."""


def exposition(jobs: Sequence[JobSample], now: datetime) -> bytes:
    """Return the metrics of all jobs, to be served as `CONTENT_TYPE`."""
    registry = CollectorRegistry()
    registry.register(_JobsCollector(jobs, now))
    return generate_latest(registry)


@dataclass(frozen=True)
class _PerJob:
    """A metric with one value per job. Names of counters end in `_total`."""

    name: str
    meaning: str
    value: Callable[[JobSample, datetime], float | None]


_PER_JOB = (
    _PerJob(
        "resurgence_epochs_sealed_total",
        "Epochs whose checkpoint was sealed.",
        lambda job, _now: job.metrics.epochs_sealed,
    ),
    _PerJob(
        "resurgence_epochs_committed_total",
        "Epochs that all sinks have committed.",
        lambda job, _now: job.metrics.epochs_committed,
    ),
    _PerJob(
        "resurgence_rows_in_total",
        "Rows read by sealed epochs.",
        lambda job, _now: job.metrics.rows_in,
    ),
    _PerJob(
        "resurgence_rows_out_total",
        "Rows staged in sinks by sealed epochs.",
        lambda job, _now: job.metrics.rows_out,
    ),
    _PerJob(
        "resurgence_late_rows_total",
        "Late rows: dropped because their window had closed.",
        lambda job, _now: job.metrics.late_rows,
    ),
    _PerJob(
        "resurgence_partly_late_rows_total",
        "Partly late rows: dropped for some of their windows, and added to the open ones.",
        lambda job, _now: job.metrics.partly_late_rows,
    ),
    _PerJob(
        "resurgence_bad_rows_total",
        "Bad records: dropped because they could not be parsed.",
        lambda job, _now: job.metrics.bad_rows,
    ),
    _PerJob(
        "resurgence_dead_rows_total",
        "Dead letters: records that could not be processed, and were stored aside.",
        lambda job, _now: job.metrics.dead_rows,
    ),
    _PerJob(
        "resurgence_skipped_rows_total",
        "Rows that a source no longer held when they were due, and that were skipped.",
        lambda job, _now: job.metrics.skipped_rows,
    ),
    _PerJob(
        "resurgence_lag_rows",
        "Unread rows of all partitions, at most.",
        lambda job, _now: lag.rows if (lag := _lag(job)) else None,
    ),
    _PerJob(
        "resurgence_lag_seconds",
        "Age of the newest row that was read, of the partition furthest behind.",
        lambda job, _now: lag.seconds if (lag := _lag(job)) else None,
    ),
    _PerJob(
        "resurgence_watermark_lag_seconds",
        "How far the watermark is behind the clock.",
        lambda job, now: None if job.state in _INACTIVE else job.metrics.watermark_lag(now),
    ),
    _PerJob(
        "resurgence_checkpoint_age_seconds",
        "Time since the last checkpoint was sealed.",
        lambda job, now: (
            None if job.state in _INACTIVE else _seconds(job.metrics.checkpoint_age(now))
        ),
    ),
    _PerJob(
        "resurgence_checkpoint_duration_seconds",
        "Time from the start of the last checkpoint's epoch to its seal.",
        lambda job, _now: (
            last.duration.total_seconds() if (last := job.metrics.last_checkpoint) else None
        ),
    ),
    _PerJob(
        "resurgence_checkpoint_bytes",
        "Bytes of state that the epoch of the last checkpoint wrote.",
        lambda job, _now: last.bytes_written if (last := job.metrics.last_checkpoint) else None,
    ),
    _PerJob(
        "resurgence_checkpoint_state_bytes",
        "Bytes of state that the last checkpoint holds.",
        lambda job, _now: last.state_bytes if (last := job.metrics.last_checkpoint) else None,
    ),
    _PerJob(
        "resurgence_state_cache_hits_total",
        "Reads of state files by key from the local disk of an executor.",
        lambda job, _now: job.metrics.cache_hits,
    ),
    _PerJob(
        "resurgence_state_cache_misses_total",
        "Reads of state files by key from the object store.",
        lambda job, _now: job.metrics.cache_misses,
    ),
    _PerJob(
        "resurgence_recoveries_total",
        "Incidents from which the job recovered.",
        lambda job, _now: job.metrics.recoveries,
    ),
    _PerJob(
        "resurgence_replayed_rows_total",
        "Rows that were replayed in recoveries.",
        lambda job, _now: job.metrics.replayed_rows,
    ),
    _PerJob(
        "resurgence_fallbacks_total",
        "Checkpoints that a restore skipped because they were not valid.",
        lambda job, _now: job.metrics.fallbacks,
    ),
    _PerJob(
        "resurgence_damaged_checkpoints_total",
        "Damaged checkpoints found by the verification in running jobs.",
        lambda job, _now: job.metrics.damaged_checkpoints,
    ),
    _PerJob(
        "resurgence_executors_lost_total",
        "Spark executors that were lost; Spark re-ran their tasks.",
        lambda job, _now: job.metrics.executors_lost,
    ),
    _PerJob(
        "resurgence_restarts_left",
        "Remaining recoveries before the job fails.",
        lambda job, _now: None if job.state in TERMINAL else job.restarts_left,
    ),
    _PerJob(
        "resurgence_if_it_dies_now_rows",
        "Rows to replay if the worker died now.",
        lambda job, _now: job.if_it_dies_now.rows_to_replay if job.if_it_dies_now else None,
    ),
    _PerJob(
        "resurgence_if_it_dies_now_seconds",
        "Expected recovery time if the worker died now.",
        lambda job, _now: job.if_it_dies_now.expected_seconds if job.if_it_dies_now else None,
    ),
)


class _JobsCollector(Collector):
    """Provides the metrics to `prometheus_client`."""

    def __init__(self, jobs: Sequence[JobSample], now: datetime) -> None:
        self._jobs = jobs
        self._now = now

    def collect(self) -> Iterator[Metric]:
        yield self._states()
        for each in _PER_JOB:
            is_counter = each.name.endswith("_total")
            family = CounterMetricFamily if is_counter else GaugeMetricFamily
            metric = family(each.name, each.meaning, labels=["job"])
            for job in self._jobs:
                value = each.value(job, self._now)
                if value is not None:
                    metric.add_metric([job.name], value)
            yield metric
        yield self._failures()
        yield self._recovery_times()
        yield self._executors()
        yield self._partition_lag(
            "resurgence_partition_lag_rows", "Unread rows by partition.", lambda lag: lag.rows
        )
        yield self._partition_lag(
            "resurgence_partition_lag_seconds",
            "Age of the newest row that was read, by partition with unread rows; else 0.",
            lambda lag: lag.seconds,
        )

    def _states(self) -> Metric:
        found = Counter(job.state for job in self._jobs)
        metric = GaugeMetricFamily("resurgence_jobs", "Jobs by state.", labels=["state"])
        for state in StateName:
            metric.add_metric([state], found[state])
        return metric

    def _failures(self) -> Metric:
        metric = CounterMetricFamily(
            "resurgence_failures_total", "Failures by domain.", labels=["job", "domain"]
        )
        for job in self._jobs:
            for domain in ErrorDomain:
                metric.add_metric([job.name, domain], job.metrics.failures_by_domain[domain])
        return metric

    def _recovery_times(self) -> Metric:
        metric = SummaryMetricFamily(
            "resurgence_recovery_seconds",
            "From the detection of a failure to the first epoch committed after it.",
            labels=["job"],
        )
        for job in self._jobs:
            total = job.metrics.recovery_time.total_seconds()
            metric.add_metric([job.name], job.metrics.recoveries, total)
        return metric

    def _partition_lag(
        self, name: str, meaning: str, value: Callable[[PartitionLag], float | None]
    ) -> Metric:
        metric = GaugeMetricFamily(name, meaning, labels=["job", "table", "partition"])
        for job in self._jobs:
            lag = _lag(job)
            for each in lag.partitions if lag else ():
                found = value(each)
                if found is not None:
                    metric.add_metric([job.name, each.table, each.partition], found)
        return metric

    def _executors(self) -> Metric:
        metric = GaugeMetricFamily(
            "resurgence_executors", "Spark executors by state.", labels=["job", "state"]
        )
        for job in (each for each in self._jobs if each.executors):
            found = Counter(each.state for each in job.executors)
            for state in ExecutorState:
                metric.add_metric([job.name, state], found[state])
        return metric


def _lag(job: JobSample) -> LagSummary | None:
    return None if job.state in _INACTIVE else job.metrics.lag


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()
