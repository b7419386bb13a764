"""What the driver works on during an epoch, from one moment to the next.

The spans of a timeline follow one another without gaps, so their durations add up to that of the
epoch. Work may be nested: then a span belongs to the inner one. It costs a few microseconds an
epoch and is always recorded; `profile` makes a table of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from resurgence.ids import OperatorId

_Key = TypeVar("_Key")


class Work(StrEnum):
    """What the driver works on."""

    PLANNING = "planning"
    """What the sources read in this epoch."""
    OPERATOR = "operator"
    """One operator: builds its plan, runs its Spark jobs, reads their results."""
    STATE = "state"
    """A Spark job of an operator that only writes state: it is not the job that reads the input."""
    COMPACTION = "compaction"
    """Waits for compaction, and starts it. It runs in the background."""
    STORAGE = "storage"
    """The requests that publish the checkpoint and record the commit."""
    SINKS = "sinks"
    """The commits of the sinks."""
    MESSAGES = "messages"
    """Messages to the controller."""
    OTHER = "other"


CHECKPOINT_WORK = frozenset({Work.STATE, Work.COMPACTION, Work.STORAGE, Work.SINKS})
"""What an epoch does beyond computing its rows, so that it is durable and visible exactly once."""


@dataclass(frozen=True)
class Span:
    """From one moment to another one, in seconds since 1970."""

    work: Work
    operator: OperatorId | None
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class Timeline:
    """The timeline of one epoch. It begins when it is created, and is used by one thread."""

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        since_1970: Callable[[], float] = time.time,
    ) -> None:
        """`clock` measures durations. The other one is read once: it may be set meanwhile."""
        self._clock = clock
        self._since = clock()
        self._offset = since_1970() - self._since
        self._current: tuple[Work, OperatorId | None] = (Work.OTHER, None)
        self.spans: list[Span] = []

    @contextmanager
    def within(self, work: Work, operator: OperatorId | None = None) -> Iterator[None]:
        """Work on something, also if it fails."""
        outer = self._current
        self._switch(work, operator)
        try:
            yield
        finally:
            self._switch(*outer)

    def end(self) -> None:
        """Complete the last span."""
        self._switch(*self._current)

    def _switch(self, work: Work, operator: OperatorId | None) -> None:
        now = self._clock()
        if now > self._since:
            began, ended = self._since + self._offset, now + self._offset
            self.spans.append(Span(*self._current, began, ended))
        self._current, self._since = (work, operator), now

    def seconds(self, *kinds: Work) -> float:
        """Return how long the driver worked on something of these kinds; without any, on
        everything.
        """
        return sum(each.seconds for each in self.spans if not kinds or each.work in kinds)

    def by_work(self) -> dict[str, float]:
        """Return the seconds of each kind of work."""
        return _summed((each.work.value, each.seconds) for each in self.spans)

    def by_operator(self) -> dict[OperatorId, float]:
        """Return the seconds that the driver worked on each operator."""
        return _summed(
            (each.operator, each.seconds) for each in self.spans if each.operator is not None
        )

    def checkpoint_share(self) -> float:
        """Return the share of the epoch that its checkpoint takes, in what `CHECKPOINT_WORK`
        names.
        """
        total = self.seconds()
        return self.seconds(*CHECKPOINT_WORK) / total if total else 0.0


def _summed(pairs: Iterable[tuple[_Key, float]]) -> dict[_Key, float]:
    sums: dict[_Key, float] = {}
    for key, seconds in pairs:
        sums[key] = sums.get(key, 0.0) + seconds
    return sums
