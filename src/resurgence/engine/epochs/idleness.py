"""Which sources and partitions have had no rows for their idle timeout.

The answer is part of an epoch's recorded input, so that a replay comes to the same watermarks. After
a restart, time is counted anew: nothing is idle before its timeout has passed in this process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from resurgence.connectors.contract import PartitionSpan
from resurgence.graph.specs.source import SourceSpec
from resurgence.ids import OperatorId


class Idleness:
    """When each source and partition had rows, as far as this process knows."""

    def __init__(self, sources: Iterable[SourceSpec]) -> None:
        self._patience = {
            each.id: timedelta(microseconds=each.idle_micros)
            for each in sources
            if each.idle_micros is not None
        }
        self._had_rows_at: dict[tuple[OperatorId, str | None], datetime] = {}
        """Without a partition: of the source. If there were none yet, of the first check."""

    def note_rows(self, source: OperatorId, now: datetime) -> None:
        """Take note that an epoch reads rows of a source."""
        self._had_rows_at[source, None] = now

    def is_idle(self, source: OperatorId, now: datetime) -> bool:
        """Return whether a source had no rows for at least its idle timeout."""
        return self._has_waited(source, None, now)

    def idle_partitions(
        self,
        source: OperatorId,
        partitions: Iterable[PartitionSpan],
        unread: Mapping[str, int],
        now: datetime,
    ) -> tuple[str, ...]:
        """Return the partitions without rows for at least the idle timeout. A partition with unread
        rows is not idle, even if an epoch does not read any of them.
        """
        if source not in self._patience:
            return ()
        idle = []
        for each in partitions:
            if each.rows or unread.get(each.name):
                self._had_rows_at[source, each.name] = now
            elif self._has_waited(source, each.name, now):
                idle.append(each.name)
        return tuple(idle)

    def _has_waited(self, source: OperatorId, partition: str | None, now: datetime) -> bool:
        had_rows_at = self._had_rows_at.setdefault((source, partition), now)
        return source in self._patience and now - had_rows_at >= self._patience[source]
