"""The recent epochs of a job, as its charts show them: read once, then followed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from pydantic import JsonValue

from resurgence.control.controller import Controller
from resurgence.control.store.metadata import StoredEvent
from resurgence.ids import JobName

MOST_EPOCHS = 300
_AT_ONCE = 1000


@dataclass(frozen=True)
class EpochPoint:
    """One epoch."""

    epoch: int
    at: float
    """When it was sealed, in milliseconds since 1970."""
    rows: int
    rows_out: int
    late: int
    duration: float
    state_bytes: int
    phases: tuple[tuple[str, float], ...] = ()
    """Seconds by kind of work."""
    operators: tuple[tuple[str, float], ...] = ()
    """Seconds by operator."""
    lag_rows: float | None = None
    lag_seconds: float | None = None


@dataclass(frozen=True)
class JobHistory:
    """The newest epochs, oldest first."""

    last_id: int = 0
    points: tuple[EpochPoint, ...] = ()

    @classmethod
    async def after(
        cls, before: JobHistory | None, controller: Controller, job: JobName
    ) -> JobHistory:
        """Return the history with the events since `before`."""
        if before is None:
            newest = await controller.newest_events(job, before=0, limit=2 * MOST_EPOCHS)
            return cls().plus([each for _, each in reversed(newest)])
        history = before
        while True:
            found = await controller.events(job, history.last_id, _AT_ONCE)
            history = history.plus(found)
            if len(found) < _AT_ONCE:
                return history

    def plus(self, events: Sequence[StoredEvent]) -> JobHistory:
        """Return the history with more events."""
        if not events:
            return self
        points = {each.epoch: each for each in self.points}
        for stored in events:
            event = stored.event
            match event["event"]:
                case "checkpoint":
                    # An epoch that is sealed again after a fallback is the newest one again.
                    point = _sealed(event)
                    points.pop(point.epoch, None)
                    points[point.epoch] = point
                case "committed":
                    epoch = _whole(event.get("epoch"))
                    if epoch in points:
                        points[epoch] = _committed(points[epoch], event)
                case "profile":
                    epoch = _whole(event.get("epoch"))
                    if epoch in points:
                        points[epoch] = _profiled(points[epoch], event)
                case "rollback" | "reset":
                    to_epoch = _whole(event.get("to_epoch"))
                    points = {key: each for key, each in points.items() if key <= to_epoch}
        return JobHistory(events[-1].id, tuple([*points.values()][-MOST_EPOCHS:]))


def _sealed(event: dict[str, JsonValue]) -> EpochPoint:
    return EpochPoint(
        epoch=_whole(event.get("epoch")),
        at=datetime.fromisoformat(str(event["at"])).timestamp() * 1000,
        rows=_whole(event.get("rows")),
        rows_out=_whole(event.get("rows_out")),
        late=_whole(event.get("late")),
        duration=_number(event.get("duration")) or 0.0,
        state_bytes=_whole(event.get("state_bytes")),
    )


def _committed(point: EpochPoint, event: dict[str, JsonValue]) -> EpochPoint:
    lag = event.get("lag")
    if isinstance(lag, dict):
        point = replace(
            point, lag_rows=_number(lag.get("rows")), lag_seconds=_number(lag.get("seconds"))
        )
    return replace(
        point,
        phases=tuple(_shares(event.get("phases"))) or point.phases,
        operators=tuple(_shares(event.get("operators"))) or point.operators,
    )


def _profiled(point: EpochPoint, event: dict[str, JsonValue]) -> EpochPoint:
    """Return an epoch with the time of its work, which a job reports if it is profiled."""
    by_work: dict[str, float] = {}
    by_operator: dict[str, float] = {}
    work = event.get("work")
    for each in work if isinstance(work, list) else ():
        if not isinstance(each, dict):
            continue
        parts = (each.get(part) for part in ("driver", "submission", "scheduling", "tasks"))
        spent = sum(_number(part) or 0.0 for part in parts)
        for key, sums in ((each.get("work"), by_work), (each.get("operator"), by_operator)):
            if key:
                sums[str(key)] = sums.get(str(key), 0.0) + spent
    return replace(point, phases=tuple(by_work.items()), operators=tuple(by_operator.items()))


def _shares(value: JsonValue) -> Iterable[tuple[str, float]]:
    if isinstance(value, dict):
        for key, each in value.items():
            seconds = _number(each)
            if seconds is not None:
                yield key, seconds


def _number(value: JsonValue) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _whole(value: JsonValue) -> int:
    return int(value) if isinstance(value, int | float) else 0
