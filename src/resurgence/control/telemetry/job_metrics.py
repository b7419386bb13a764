"""The metrics of one job, computed from its events alone.

Pure: instants are those of the events, `now` is an argument. So events count the same whether they
arrive live or are read from the database after a restart of the controller. Memory does not grow
with the age of the job. The API shows the metrics as `progress`; `prometheus` exposes them.
"""

from __future__ import annotations

import statistics
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from pydantic import JsonValue

from resurgence.clock import instant_text, seconds
from resurgence.control.jobs.transitions import StateName
from resurgence.control.telemetry.events import Event
from resurgence.control.workers.worker_pool import Origin
from resurgence.engine.epochs.lag import LagSummary
from resurgence.graph.watermarks import END_OF_TIME
from resurgence.ids import NO_EPOCH, Epoch

RECENT_RECOVERIES = 5
_1970 = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class LastCheckpoint:
    """The newest checkpoint: when it was sealed, and the cost of its epoch."""

    sealed_at: datetime
    duration: timedelta
    rows: int
    bytes_written: int
    state_bytes: int


@dataclass(frozen=True)
class IfItDiesNow:
    """The cost of losing the worker now."""

    rows_to_replay: int
    expected_seconds: float | None
    """From detection to the first epoch committed after it. None: not known yet."""
    rows_behind: int | None = None
    """Rows that are unread already, and that would follow the replay. None: not known."""
    seconds_behind: float | None = None
    """How old the newest row is that was read, where others are unread. None: not known."""

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "rows_to_replay": self.rows_to_replay,
            "expected_seconds": self.expected_seconds,
            "rows_behind": self.rows_behind,
            "seconds_behind": self.seconds_behind,
        }


def if_it_dies_now(
    unsealed_rows: Iterable[int],
    past_recoveries: Sequence[timedelta],
    last_start: timedelta | None,
    last_epoch: timedelta | None,
) -> IfItDiesNow:
    """Estimate the cost of losing the worker now.

    Rows to replay are those of epochs that were started and are not sealed. A sealed epoch is never
    replayed: if its commit is pending, the restore completes it.

    The expected time is the median of the last five recoveries of this job, oldest first in
    `past_recoveries`. They include everything that a formula would omit: tear-down, backoff, this
    machine, this pipeline's state. The median, because one recovery in a series of failures with
    long backoff does not predict the next; the last five, because state and input change.

    For a job that never failed, the estimate is the sum of the last start of a worker, until state
    was restored, and the last epoch, because the first epoch after the restore closes the incident.
    That omits the first backoff and the plan, about a second. One of the two alone is no estimate.

    Detection is not included, as it is not in an incident: an exit is detected at once, a silent
    worker after `pipeline.heartbeat_timeout`.
    """
    rows = sum(unsealed_rows)
    recent = past_recoveries[-RECENT_RECOVERIES:]
    if recent:
        median = statistics.median(each.total_seconds() for each in recent)
        return IfItDiesNow(rows, round(median, 3))
    if last_start is not None and last_epoch is not None:
        return IfItDiesNow(rows, seconds(last_start + last_epoch))
    return IfItDiesNow(rows, None)


@dataclass
class JobMetrics:
    """The metrics of one job. An epoch that is sealed again after a fallback counts again, because
    it is work done.
    """

    state: StateName = StateName.CREATED
    sealed_epoch: Epoch = NO_EPOCH
    committed_epoch: Epoch = NO_EPOCH
    epochs_sealed: int = 0
    epochs_committed: int = 0
    rows_in: int = 0
    rows_out: int = 0
    late_rows: int = 0
    partly_late_rows: int = 0
    bad_rows: int = 0
    dead_rows: int = 0
    skipped_rows: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    """Rows that a source no longer held when they were due."""
    lag: LagSummary | None = None
    """Of the newest committed epoch. None: no source has partitions."""
    watermark: int | None = None
    """In microseconds since 1970."""
    last_checkpoint: LastCheckpoint | None = None
    last_start: timedelta | None = None
    """From the acquisition of the last new worker until the job was running. A reused worker is no
    measure of how long its successor would take.
    """
    failures_by_domain: Counter[str] = field(default_factory=Counter)
    failures_by_kind: Counter[str] = field(default_factory=Counter)
    recoveries: int = 0
    """Incidents that the job recovered from."""
    recovery_time: timedelta = timedelta(0)
    """The total of all recoveries."""
    past_recoveries: deque[timedelta] = field(
        default_factory=lambda: deque(maxlen=RECENT_RECOVERIES)
    )
    """The durations of the last recoveries, oldest first."""
    replayed_rows: int = 0
    fallbacks: int = 0
    damaged_checkpoints: int = 0
    """Found when a running job verified its own newest checkpoint."""
    executors_lost: int = 0
    _worker_started_at: datetime | None = None

    # ---------------------------------------------------------------- facts

    def note(self, event: Event) -> None:
        """Count an event. Events must arrive in order; unknown ones are ignored."""
        match event["event"]:
            case "state":
                self.state = StateName(str(event["to"]))
                if self.state is StateName.RUNNING and self._worker_started_at is not None:
                    self.last_start = _instant(event["at"]) - self._worker_started_at
                    self._worker_started_at = None
            case "worker_started":
                was_reused = event.get("origin") in (Origin.IN_PLACE, Origin.ADOPTED)
                self._worker_started_at = None if was_reused else _instant(event["at"])
            case "checkpoint":
                self._note_checkpoint(event)
            case "committed":
                self.committed_epoch = Epoch(_count(event, "epoch"))
                self.epochs_committed += 1
                self.lag = LagSummary.model_validate(event["lag"]) if event.get("lag") else None
            case "failure":
                self.failures_by_domain[str(event["domain"])] += 1
                self.failures_by_kind[str(event["kind"])] += 1
            case "fallback":
                self.fallbacks += 1
            case "reset" | "rollback":
                self.sealed_epoch = self.committed_epoch = Epoch(
                    _count(event, "to_epoch") if "to_epoch" in event else NO_EPOCH
                )
                self.watermark = self.last_checkpoint = self.lag = None
            case "checkpoint_damaged":
                self.damaged_checkpoints += 1
            case "executor_lost":
                self.executors_lost += 1
            case "incident" if event["resumed_at"] is not None:
                took = _instant(event["resumed_at"]) - _instant(event["detected_at"])
                self.recoveries += 1
                self.recovery_time += took
                self.past_recoveries.append(took)
                self.replayed_rows += _count(event, "replayed_rows")

    def _note_checkpoint(self, event: Event) -> None:
        watermark = event["watermark"]
        self.sealed_epoch = Epoch(_count(event, "epoch"))
        self.epochs_sealed += 1
        self.rows_in += _count(event, "rows")
        self.rows_out += _count(event, "rows_out")
        self.late_rows += _count(event, "late")
        self.partly_late_rows += _count(event, "partly_late")
        self.bad_rows += _count(event, "bad")
        # An event that an older release has stored lacks it.
        self.dead_rows += _count(event, "dead") if "dead" in event else 0
        # Events of an older release do not have it.
        self.skipped_rows += _count(event, "skipped") if "skipped" in event else 0
        self.cache_hits += _count(event, "cache_hits") if "cache_hits" in event else 0
        self.cache_misses += _count(event, "cache_misses") if "cache_misses" in event else 0
        self.watermark = watermark if isinstance(watermark, int) else None
        self.last_checkpoint = LastCheckpoint(
            sealed_at=_instant(event["at"]),
            duration=timedelta(seconds=_number(event, "duration")),
            rows=_count(event, "rows"),
            bytes_written=_count(event, "bytes"),
            state_bytes=_count(event, "state_bytes"),
        )

    # ---------------------------------------------------------------- queries

    @property
    def input_has_ended(self) -> bool:
        """Whether the watermark is at the end of time, so that no more input can follow."""
        return self.watermark == END_OF_TIME

    def watermark_lag(self, now: datetime) -> float | None:
        """Return the seconds that the watermark is behind `now`, negative if it is ahead. None
        without a watermark, and at the end of input. A number, because a watermark may exceed a
        timedelta.
        """
        if self.watermark is None or self.input_has_ended:
            return None
        return round(((now - _1970) // _MICROSECOND - self.watermark) / 1_000_000, 3)

    def checkpoint_age(self, now: datetime) -> timedelta | None:
        """Return the time since the last checkpoint was sealed; None if there is none."""
        return now - self.last_checkpoint.sealed_at if self.last_checkpoint else None

    def if_it_dies_now(self, unsealed_rows: Iterable[int]) -> IfItDiesNow:
        """Estimate the cost of losing the worker; the rows are `RunningJobModel.started_rows`."""
        last_epoch = self.last_checkpoint.duration if self.last_checkpoint else None
        cost = if_it_dies_now(unsealed_rows, [*self.past_recoveries], self.last_start, last_epoch)
        if self.lag is None:
            return cost
        return replace(cost, rows_behind=self.lag.rows, seconds_behind=self.lag.seconds)

    def progress(self, now: datetime) -> dict[str, JsonValue]:
        """Return the metrics as the API shows them: JSON, instants as ISO text, durations in
        seconds.
        """
        return {
            "state": self.state.value,
            "epoch": self.sealed_epoch,
            "committed_epoch": self.committed_epoch,
            "epochs_sealed": self.epochs_sealed,
            "epochs_committed": self.epochs_committed,
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "late_rows": self.late_rows,
            "partly_late_rows": self.partly_late_rows,
            "bad_rows": self.bad_rows,
            "dead_rows": self.dead_rows,
            "skipped_rows": self.skipped_rows,
            "cache_hits": self.cache_hits,
            "cache_misses": self.cache_misses,
            "lag": self.lag.model_dump(mode="json") if self.lag else None,
            "watermark": self._watermark_text(),
            "watermark_lag_seconds": self.watermark_lag(now),
            "input_has_ended": self.input_has_ended,
            "last_checkpoint": self._checkpoint_facts(now),
            "last_start_seconds": seconds(self.last_start) if self.last_start else None,
            "failures_by_domain": dict(self.failures_by_domain),
            "failures_by_kind": dict(self.failures_by_kind),
            "recoveries": self.recoveries,
            "past_recoveries_seconds": [seconds(each) for each in self.past_recoveries],
            "replayed_rows": self.replayed_rows,
            "fallbacks": self.fallbacks,
            "damaged_checkpoints": self.damaged_checkpoints,
            "executors_lost": self.executors_lost,
        }

    def _checkpoint_facts(self, now: datetime) -> dict[str, JsonValue] | None:
        last = self.last_checkpoint
        if last is None:
            return None
        return {
            "at": instant_text(last.sealed_at),
            "age_seconds": seconds(now - last.sealed_at),
            "duration_seconds": seconds(last.duration),
            "rows": last.rows,
            "bytes": last.bytes_written,
            "state_bytes": last.state_bytes,
        }

    def _watermark_text(self) -> str | None:
        """None also for a watermark outside the calendar: end of input, or a wrong event time."""
        if self.watermark is None or self.input_has_ended:
            return None
        try:
            return instant_text(_1970 + self.watermark * _MICROSECOND)
        except OverflowError:
            return None


def _number(event: Event, name: str) -> float:
    value = event[name]
    return float(value) if isinstance(value, int | float) else 0.0


def _count(event: Event, name: str) -> int:
    return int(_number(event, name))


def _instant(text: JsonValue) -> datetime:
    return datetime.fromisoformat(str(text))
