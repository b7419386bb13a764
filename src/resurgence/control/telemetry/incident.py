"""An incident: one failure from its detection to the first epoch committed after it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from pydantic import JsonValue

from resurgence.clock import instant_text, seconds
from resurgence.control.detection.failure import Failure
from resurgence.ids import Epoch
from resurgence.state.load_plan import LoadPlan
from resurgence.state.protocol.decisions import Fallback

_MOST_GENERATIONS = 20


@dataclass
class Incident:
    """A failure, and how long each phase of the recovery took. Further failures during the recovery
    belong to the same incident.
    """

    detected_at: datetime
    failure: Failure
    attempts: int = 1
    restored_epoch: Epoch | None = None
    replayed_rows: int = 0
    fallbacks: tuple[Fallback, ...] = ()
    resumed_at: datetime | None = None
    phases: dict[str, float] = field(default_factory=dict)
    generations: list[int] = field(default_factory=list)
    """Those that failed."""
    started_rows: dict[Epoch, int] = field(default_factory=dict)
    """Rows of the epochs that had been started at the time of a failure."""
    _phase_began_at: datetime | None = None

    def count_replayed(self, plan: LoadPlan) -> None:
        """Count the rows to replay: those of all started epochs after the restored one."""
        rows = {
            epoch: sum(each.rows for each in recorded.inputs.values())
            for epoch, recorded in plan.recorded.items()
        }
        started = {**self.started_rows, **rows}
        self.replayed_rows = sum(count for epoch, count in started.items() if epoch > plan.epoch)

    def phase_done(self, name: str, now: datetime) -> None:
        """Add the time since the end of the last phase to this phase."""
        began_at = self._phase_began_at or self.detected_at
        self.phases[name] = round(self.phases.get(name, 0.0) + seconds(now - began_at), 3)
        self._phase_began_at = now

    def facts(self) -> dict[str, JsonValue]:
        """Return the incident as it is written to events and the database."""
        return {
            "kind": self.failure.kind,
            "reason": self.failure.reason,
            "domain": self.failure.domain,
            "hint": self.failure.hint,
            "operator_id": self.failure.operator,
            "epoch": self.failure.epoch,
            "generations": list(self.generations[-_MOST_GENERATIONS:]),
            "detected_at": instant_text(self.detected_at),
            "restored_epoch": self.restored_epoch,
            "resumed_at": instant_text(self.resumed_at) if self.resumed_at else None,
            "replayed_rows": self.replayed_rows,
            "attempts": self.attempts,
            "fallbacks": [
                {"epoch": each.epoch, "reasons": list(each.reasons)} for each in self.fallbacks
            ],
            "phases": dict(self.phases),
        }
