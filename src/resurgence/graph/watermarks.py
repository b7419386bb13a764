"""The watermark of an operator, as pure functions.

It is the lowest watermark of the sources upstream of the operator, or of operators that it is
combined with, minus its lag. A processing-time window follows the planning time of the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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


def idle_watermark(mark: int | None, others: Iterable[int | None]) -> int | None:
    """Return the watermark of an idle source: at least the lowest of the others, as of the start of
    the epoch.
    """
    marks = list(others)
    known = [each for each in (mark, lowest(marks)) if each is not None]
    return max(known, default=None) if marks else mark


def lowest(watermarks: Iterable[int | None]) -> int | None:
    """Return the lowest watermark, or None if one of them is None."""
    marks = list(watermarks)
    known = [each for each in marks if each is not None]
    return min(known) if len(known) == len(marks) else None
