"""The watermark of an operator, as pure functions.

It is the lowest watermark of the sources upstream of the operator, or of operators that it is
combined with, minus its lag. A processing-time window follows the planning time of the epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from resurgence.graph.model import Graph
from resurgence.ids import OperatorId

END_OF_TIME = 2**63 - 1
"""The watermark after bounded input has been read to its end."""

Marks = Mapping[OperatorId, int | None]


def operator_watermark(
    graph: Graph, operator_id: OperatorId, marks: Marks, time: int | None
) -> int | None:
    """Return an operator's watermark from those of the sources. `time` is the planning time."""
    lowest = followed_watermark(graph, operator_id, marks, time)
    if lowest is None or lowest == END_OF_TIME:
        return lowest
    return lowest - graph.lag_micros(operator_id)


def followed_watermark(
    graph: Graph, operator_id: OperatorId, marks: Marks, time: int | None
) -> int | None:
    """Return the lowest of the watermarks that an operator follows, including the planning time if
    it follows that.
    """
    followed = [marks.get(each) for each in graph.event_time_sources_of(operator_id)]
    if graph.follows_planning_time(operator_id):
        sources = (marks.get(each) for each in graph.sources_of(operator_id))
        followed.append(END_OF_TIME if all(each == END_OF_TIME for each in sources) else time)
    return lowest(followed)


def partitioned_watermark(
    before: int | None, marks: Mapping[str, int | None], idle: Collection[str]
) -> int | None:
    """Return the watermark of a source with partitions: the lowest of those that are not idle, but
    never lower than `before`, its watermark so far.

    A partition without a watermark has had no rows. Unless it is idle, it holds the watermark where
    it is: its first row may be as old as any. If all partitions are idle, none of them holds the
    watermark back, and it is the highest.
    """
    active = [mark for name, mark in marks.items() if name not in idle]
    if active:
        mark = lowest(active)
    else:
        mark = max((each for each in marks.values() if each is not None), default=None)
    known = [each for each in (before, mark) if each is not None]
    return max(known, default=None)


def merged_marks(
    before: Mapping[str, int], seen: Mapping[str, int], partitions: Iterable[str]
) -> dict[str, int]:
    """Return the watermark of each partition of a source that has had rows. A watermark never goes
    backwards; one of a partition that no longer exists is dropped.
    """
    return {
        name: max(each[name] for each in (before, seen) if name in each)
        for name in partitions
        if name in before or name in seen
    }


def idle_watermark(mark: int | None, others: Iterable[int | None]) -> int | None:
    """Return the watermark of an idle source: at least the lowest of the others, as of the start of
    the epoch.
    """
    marks = list(others)
    if not marks:
        return mark
    known = [each for each in (mark, lowest(marks)) if each is not None]
    return max(known, default=None)


def lowest(watermarks: Iterable[int | None]) -> int | None:
    """Return the lowest watermark, or None if one of them is None."""
    marks = list(watermarks)
    known = [each for each in marks if each is not None]
    return min(known) if len(known) == len(marks) else None
