"""The incidents of a job: opened by a failure, closed by the first commit after it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from resurgence.clock import Clock
from resurgence.control.detection.failure import Failure
from resurgence.control.telemetry.events import EventLog
from resurgence.control.telemetry.incident import Incident
from resurgence.ids import Epoch, Generation
from resurgence.state.load_plan import LoadPlan


class JobIncidents:
    """The open incident, if any, and the files that failures have shown to be damaged."""

    def __init__(self, events: EventLog, clock: Clock) -> None:
        self._events = events
        self._clock = clock
        self.open: Incident | None = None
        self.damaged: frozenset[str] = frozenset()

    def note_failure(
        self, failure: Failure, generation: Generation | None, started_rows: Mapping[Epoch, int]
    ) -> None:
        """Report a failure; open an incident, or add it to the open one."""
        self._events.emit(
            "failure",
            kind=failure.kind,
            operator_id=failure.operator,
            subtask=failure.subtask,
            domain=failure.domain,
            retry_hint=failure.retry_hint,
            error=failure.reason,
            epoch=failure.epoch,
            hint=failure.hint,
            position=failure.position,
            traceback=failure.traceback,
            generation=generation,
        )
        if failure.damaged_path:
            self.damaged |= {failure.damaged_path}
        if self.open is None:
            self.open = Incident(self._clock.now(), failure)
        else:
            self.open.attempts += 1
        self.open.started_rows.update(started_rows)
        if generation is not None:
            self.open.generations.append(generation)

    def planned(self, plan: LoadPlan) -> None:
        """Note the load plan from which the job recovers."""
        if self.open is not None:
            self.open.restored_epoch = plan.epoch
            self.open.fallbacks = plan.fallbacks
            self.open.count_replayed(plan)

    def phase_done(self, name: str) -> None:
        if self.open is not None:
            self.open.phase_done(name, self._clock.now())

    def close(self, resumed_at: datetime | None) -> None:
        """Close the incident: the first epoch after the failure is committed, or the job has ended.
        `resumed_at` None: the job ended without having recovered.
        """
        if self.open is not None:
            self.open.resumed_at = resumed_at
            if resumed_at is not None:
                self.open.phase_done("resume", resumed_at)
            self._events.emit("incident", **self.open.facts())
            self.open = None
