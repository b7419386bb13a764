"""What can be counted and measured of one job, from its events alone.

Pure: instants are those of the events, `now` is handed in. So it does not matter whether events come
as they happen or are read from the database after the controller was started anew. What is kept does
not grow with the job's age. Who shows it: the API as `progress`, `prometheus` as metrics.
"""

from __future__ import annotations

import statistics
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pydantic import JsonValue

from resurgence.clock import instant_text, seconds
from resurgence.control.jobs.transitions import StateName
from resurgence.control.telemetry.events import Event
from resurgence.control.workers.worker_pool import Origin
from resurgence.graph.watermarks import END_OF_TIME
from resurgence.ids import NO_EPOCH, Epoch

REMEMBERED_RECOVERIES = 5
_1970 = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class LastCheckpoint:
    """The newest checkpoint: when it was sealed, and what its epoch took."""

    sealed_at: datetime
    duration: timedelta
    rows: int
    bytes_written: int
    state_bytes: int


@dataclass(frozen=True)
class IfItDiesNow:
    """What the death of the worker at this moment would cost."""

    rows_to_replay: int
    expected_seconds: float | None
    """From the detection to the first epoch committed after it. None: nothing is known yet."""

    def as_json(self) -> dict[str, JsonValue]:
        return {"rows_to_replay": self.rows_to_replay, "expected_seconds": self.expected_seconds}


def if_it_dies_now(
    unsealed_rows: Iterable[int],
    past_recoveries: Sequence[timedelta],
    last_start: timedelta | None,
    last_epoch: timedelta | None,
) -> IfItDiesNow:
    """The cost of a death of the worker at this moment.

    Rows to replay are those of epochs that were started and are not sealed. What is sealed is never
    read again: if its commit is pending, the restore finishes that.

    The expected time is the median of the last five recoveries of this job, oldest first in
    `past_recoveries`. They hold everything that a formula would leave out: clearing up, backoff,
    this machine, this pipeline's state. The median, because one recovery in a row of failures with
    long waits says little about the next; the last five, because state and input change.

    A job that never failed has only its parts: the last start of a worker, until state was restored,
    and the last epoch, for the one that comes after the restore closes the incident. That leaves out
    the first backoff and the plan, about a second. Half of the parts is no estimate.

    Detection is not in it, as it is not in an incident: a process that ends is seen at once, one that
    only falls silent after `pipeline.heartbeat_timeout`.
    """
    rows = sum(unsealed_rows)
    recent = past_recoveries[-REMEMBERED_RECOVERIES:]
    if recent:
        median = statistics.median(each.total_seconds() for each in recent)
        return IfItDiesNow(rows, round(median, 3))
    if last_start is not None and last_epoch is not None:
        return IfItDiesNow(rows, seconds(last_start + last_epoch))
    return IfItDiesNow(rows, None)


@dataclass
class JobMetrics:
    """One job, as far as its events tell. An epoch that is sealed again after a fallback counts
    again: it is work done.
    """

    state: StateName = StateName.CREATED
    sealed_epoch: Epoch = NO_EPOCH
    committed_epoch: Epoch = NO_EPOCH
    epochs_sealed: int = 0
    epochs_committed: int = 0
    rows_in: int = 0
    rows_out: int = 0
    late_rows: int = 0
    bad_rows: int = 0
    watermark: int | None = None
    """In microseconds since 1970."""
    last_checkpoint: LastCheckpoint | None = None
    last_start: timedelta | None = None
    """From the moment when the job got its last new worker until it was running. One that was at
    hand already says nothing about how long its successor would need.
    """
    failures_by_domain: Counter[str] = field(default_factory=Counter)
    failures_by_kind: Counter[str] = field(default_factory=Counter)
    recoveries: int = 0
    """Incidents that the job came back from."""
    recovery_time: timedelta = timedelta(0)
    """Of all of them together."""
    past_recoveries: deque[timedelta] = field(
        default_factory=lambda: deque(maxlen=REMEMBERED_RECOVERIES)
    )
    """How long each of the last ones took, oldest first."""
    replayed_rows: int = 0
    fallbacks: int = 0
    damaged_checkpoints: int = 0
    """Found by a running job in its own newest checkpoint."""
    _worker_started_at: datetime | None = None

    # ---------------------------------------------------------------- facts

    def note(self, event: Event) -> None:
        """Something happened. Events come in order; unknown ones are passed over."""
        match event["event"]:
            case "state":
                self.state = StateName(str(event["to"]))
                if self.state is StateName.RUNNING and self._worker_started_at is not None:
                    self.last_start = _instant(event["at"]) - self._worker_started_at
                    self._worker_started_at = None
            case "worker_started":
                was_at_hand = event.get("origin") in (Origin.IN_PLACE, Origin.ADOPTED)
                self._worker_started_at = None if was_at_hand else _instant(event["at"])
            case "checkpoint":
                self._note_checkpoint(event)
            case "committed":
                self.committed_epoch = Epoch(_count(event, "epoch"))
                self.epochs_committed += 1
            case "failure":
                self.failures_by_domain[str(event["domain"])] += 1
                self.failures_by_kind[str(event["kind"])] += 1
            case "fallback":
                self.fallbacks += 1
            case "reset" | "rollback":
                self.sealed_epoch = self.committed_epoch = Epoch(
                    _count(event, "to_epoch") if "to_epoch" in event else NO_EPOCH
                )
                self.watermark = self.last_checkpoint = None
            case "checkpoint_damaged":
                self.damaged_checkpoints += 1
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
        self.bad_rows += _count(event, "bad")
        self.watermark = watermark if isinstance(watermark, int) else None
        self.last_checkpoint = LastCheckpoint(
            sealed_at=_instant(event["at"]),
            duration=timedelta(seconds=_number(event, "duration")),
            rows=_count(event, "rows"),
            bytes_written=_count(event, "bytes"),
            state_bytes=_count(event, "state_bytes"),
        )

    # ---------------------------------------------------------------- questions

    @property
    def input_has_ended(self) -> bool:
        """The watermark is at the end of time: nothing can come after it."""
        return self.watermark == END_OF_TIME

    def watermark_lag(self, now: datetime) -> float | None:
        """Seconds that the watermark is behind `now`, less than zero if it is ahead. None without
        one, and at the end of input. A number, since a watermark need not fit a timedelta.
        """
        if self.watermark is None or self.input_has_ended:
            return None
        return round(((now - _1970) // _MICROSECOND - self.watermark) / 1_000_000, 3)

    def checkpoint_age(self, now: datetime) -> timedelta | None:
        """How long ago the last checkpoint was sealed; None if there is none."""
        return now - self.last_checkpoint.sealed_at if self.last_checkpoint else None

    def if_it_dies_now(self, unsealed_rows: Iterable[int]) -> IfItDiesNow:
        """What the death of the worker would cost; the rows are `RunningJobModel.started_rows`."""
        last_epoch = self.last_checkpoint.duration if self.last_checkpoint else None
        return if_it_dies_now(unsealed_rows, [*self.past_recoveries], self.last_start, last_epoch)

    def progress(self, now: datetime) -> dict[str, JsonValue]:
        """As the API shows it: plain JSON, instants as ISO text, spans in seconds."""
        return {
            "state": self.state.value,
            "epoch": self.sealed_epoch,
            "committed_epoch": self.committed_epoch,
            "epochs_sealed": self.epochs_sealed,
            "epochs_committed": self.epochs_committed,
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "late_rows": self.late_rows,
            "bad_rows": self.bad_rows,
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
        """None, too, for one that no calendar has: the end of input, or far off by mistake."""
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
