"""Commits the offsets of a consumer group, so that tools that monitor groups see the lag of a job.

The job does not read them: its position is in its checkpoints. So a commit that fails is logged, and
neither delays nor fails an epoch. There is at most one request at a time. While it is under way,
newer offsets replace those that wait.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from resurgence.connectors.kafka.reading.cluster import Cluster
from resurgence.connectors.kafka.reading.offsets import Partition

log = logging.getLogger(__name__)


class GroupOffsets:
    """The offsets of one group."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._changed = threading.Condition()
        self._waiting: dict[Partition, int] | None = None
        self._is_busy = False
        self._last_error = ""

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Commit offsets in the background."""
        with self._changed:
            self._waiting = dict(offsets)
            if self._is_busy:
                return
            self._is_busy = True
        self._send()

    def wait(self, seconds: float) -> None:
        """Wait until nothing is under way, but not longer than this."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_busy, seconds)

    def _send(self) -> None:
        with self._changed:
            offsets, self._waiting = self._waiting, None
            if not offsets:
                self._is_busy = False
                self._changed.notify_all()
                return
        try:
            self._cluster.commit_group(self._group, offsets, self._sent)
        except Exception as error:
            self._sent(error)

    def _sent(self, error: Exception | None) -> None:
        """Log an error, unless it is the same as the last one, and send what waits."""
        text = "" if error is None else str(error)
        if text and text != self._last_error:
            log.warning("cannot commit the offsets of group '%s': %s", self._group, text)
        self._last_error = text
        self._send()
