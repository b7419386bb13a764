"""Finds the records that an epoch fails on, so that it can be run without them.

The input is bisected: a part that fails is split, until a part is a single record. A record is
poison only if it fails alone, twice, because a failure that comes and goes is not a property of the
record. Whether the rest passes without it, the caller finds out by running the epoch.

If an epoch fails only on many rows together, or on rows of earlier epochs in its state, no record
fails alone, and nothing is found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Generic, TypeVar

from resurgence.engine.epochs.pipeline import Pipeline
from resurgence.engine.epochs.probes import Deadline, ProbeFailure, Probes
from resurgence.engine.operators.dead_letters import PoisonRow
from resurgence.errors import TooManyDeadLetters
from resurgence.ids import OperatorId
from resurgence.state.records import InputRange, RecordPosition

P = TypeVar("P")

Poison = dict[OperatorId, dict[RecordPosition, PoisonRow]]
"""The records of each source that an epoch fails on, and why."""


@dataclass
class Bisection(Generic[P]):
    """A search for all parts that fail alone. Pure but for its functions."""

    failure_of: Callable[[P], ProbeFailure | None]
    """Returns how a part fails on its data; None if it passes, or the probe proves nothing."""
    halves: Callable[[P], tuple[P, P] | None]
    """Splits a part in two; None if it is a single record."""
    has_time: Callable[[], bool]
    most: int
    """Stop when more than so many were found."""
    found: list[tuple[P, ProbeFailure]] = field(default_factory=list)

    def run(self, whole: P) -> bool:
        """Search a part; return False if time ran out before all of it was searched."""
        waiting = [whole]
        while waiting and len(self.found) <= self.most:
            if not self.has_time():
                return False
            part = waiting.pop()
            if self.failure_of(part) is None:
                continue
            halves = self.halves(part)
            if halves is not None:
                waiting.extend(reversed(halves))
            elif (again := self.failure_of(part)) is not None:
                self.found.append((part, again))
        # The last probes may have been interrupted.
        return self.has_time()


@dataclass(frozen=True)
class PoisonSearch:
    """The search for the records that an epoch fails on."""

    pipeline: Pipeline
    inputs: Mapping[OperatorId, InputRange]
    time: int
    """When the epoch was planned, in microseconds."""
    most: int
    """The maximum number of dead letters of an epoch."""

    @cached_property
    def _probes(self) -> Probes:
        return Probes(self.pipeline, self.time)

    def run(self, patience: timedelta) -> Poison:
        """Return the records that fail alone. Empty if there are none, or if they were not found in
        time. Raise TooManyDeadLetters if there are more than allowed.
        """
        poison: Poison = {}
        with self._probes.within(patience) as deadline:
            for source in self.pipeline.graph.sources():
                for part in self._parts(self.inputs[source.id]):
                    found = self._search(source.id, part, deadline)
                    if found is None:
                        return {}
                    poison.setdefault(source.id, {}).update(found)
                    self._require_few(poison)
        return {source: rows for source, rows in poison.items() if rows}

    def _parts(self, whole: InputRange) -> list[InputRange]:
        """Return the range and its replay as separate parts."""
        ranged = whole.model_copy(update={"replay": None})
        again = whole.model_copy(update={"rows": 0, "end": whole.start})
        return [each for each in (ranged, again) if each.all_rows]

    def _search(
        self, source: OperatorId, part: InputRange, deadline: Deadline
    ) -> dict[RecordPosition, PoisonRow] | None:
        """Return the records of a part that fail alone; None if time ran out."""
        replayed = self._positions(source, part) if part.replay else []
        bisection = Bisection(
            failure_of=lambda each: self._failure_of(source, each, deadline),
            halves=lambda each: (
                _replay_halves(each, replayed) if each.replay else self._probes.halves(source, each)
            ),
            has_time=deadline.has_time,
            most=self.most,
        )
        is_complete = bisection.run(part)
        if len(bisection.found) > self.most:
            first, failure = bisection.found[0]
            place = self._in_words(source, first)
            raise too_many(
                len(bisection.found), self.most, place, f"{place}: {failure.error.message}"
            )
        rows: dict[RecordPosition, PoisonRow] = {}
        for each, failure in bisection.found:
            if not (is_complete and deadline.has_time()):
                return None
            positions = self._positions(source, each)
            # A part that cannot be split may hold several records.
            if len(positions) == 1:
                rows[positions[0]] = PoisonRow(failure.operator, failure.error.message)
        return rows if is_complete else None

    def _in_words(self, source: OperatorId, part: InputRange) -> str:
        if part.replay is not None:
            return f"{source}, replay {part.replay.number}"
        return f"{source}, {self.pipeline.sources[source].in_words(part)}"

    def _failure_of(
        self, source: OperatorId, part: InputRange, deadline: Deadline
    ) -> ProbeFailure | None:
        failure = self._probes.failure_of(source, part, deadline)
        return failure if failure is not None and failure.error.depends_on_data else None

    def _positions(self, source: OperatorId, part: InputRange) -> list[RecordPosition]:
        """Return the positions of the records of a part, which are few."""
        records = self.pipeline.source_operators[source].records(part)
        rows = records.select("position.partition", "position.offset").collect()
        return [RecordPosition(**each.asDict()) for each in rows]

    def _require_few(self, poison: Poison) -> None:
        count = sum(map(len, poison.values()))
        if count > self.most:
            position, row = next(iter(next(rows for rows in poison.values() if rows).items()))
            raise too_many(count, self.most, str(position), f"{position}: {row.error}")


def _replay_halves(
    part: InputRange, positions: list[RecordPosition]
) -> tuple[InputRange, InputRange] | None:
    """Split the records of a replay in two, by excluding the others."""
    left = [each for each in positions if each not in part.excluded]
    middle = len(left) // 2
    if not middle:
        return None
    first, second = (
        part.model_copy(update={"excluded": (*part.excluded, *others)})
        for others in (left[middle:], left[:middle])
    )
    return first, second


def excluding(
    inputs: Mapping[OperatorId, InputRange], poison: Poison
) -> dict[OperatorId, InputRange]:
    """Return the input of an epoch without poison records."""
    return {
        source: each.model_copy(
            update={"excluded": (*each.excluded, *sorted(poison.get(source, {}), key=_order))}
        )
        for source, each in inputs.items()
    }


def _order(position: RecordPosition) -> tuple[str, int]:
    return position.partition, position.offset


def too_many(count: int, most: int, position: str, first: str) -> TooManyDeadLetters:
    """Return the error for an epoch with more dead letters than allowed. `position` is of the
    first, which `first` describes.
    """
    return TooManyDeadLetters(
        f"the epoch has more than {most:,} dead letters, the value of pipeline.max_dead_letters:"
        f" at least {count:,} dead letters, the first is {first}",
        position=position,
        hint="Check whether the input has another format, or the pipeline a defect. Raise"
        " pipeline.max_dead_letters to accept as many.",
    )
