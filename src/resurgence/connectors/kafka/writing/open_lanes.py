"""The lanes of a sink in the process of the driver, for commits of few bytes.

A Spark job, a new producer and a look at the markers take longer than the transactions of a small
epoch. Here the producers stay open between epochs, so a commit is the transactions alone. The rows
pass through librdkafka as they do in a task: Python sees staged objects, not rows.
"""

from __future__ import annotations

import weakref
from functools import partial

from resurgence.connectors.kafka.writing.lanes import LaneCommit, OpenLane
from resurgence.connectors.kafka.writing.markers import MarkerView, merged
from resurgence.storage.access import StoreAccess
from resurgence.storage.parallel import in_parallel

MOST_BYTES = 4 * 1024 * 1024
"""An epoch with more staged bytes is committed by Spark tasks."""
MOST_LANES = 16
"""An epoch with more lanes is, too: each has a producer with threads of its own."""


class OpenLanes:
    """The open lanes of one sink. They are closed with it, at the latest."""

    def __init__(self) -> None:
        self._lanes: dict[int, OpenLane] = {}
        weakref.finalize(self, _close, self._lanes)

    def commit(self, commit: LaneCommit, access: StoreAccess) -> MarkerView:
        """Commit all lanes. Return the markers that were read and produced. Raises SinkConflict."""
        lanes = {number: self._lane(commit, number) for number in range(len(commit.lanes))}
        try:
            in_parallel([partial(each.commit, commit, access) for each in lanes.values()])
            for conflict in filter(None, (commit.conflict(each.view) for each in lanes.values())):
                raise conflict
        except BaseException:
            self.close()
            raise
        view = merged(each.view for each in lanes.values())
        for number, each in lanes.items():
            if number in each.view.lanes:
                view = view.with_marker(number, each.view.lanes[number])
        return view

    def close(self) -> None:
        """Close all producers. The next commit opens them again."""
        _close(self._lanes)

    def _lane(self, commit: LaneCommit, number: int) -> OpenLane:
        if number not in self._lanes:
            self._lanes[number] = OpenLane(commit, number)
        return self._lanes[number]


def _close(lanes: dict[int, OpenLane]) -> None:
    while lanes:
        _, lane = lanes.popitem()
        lane.close()
