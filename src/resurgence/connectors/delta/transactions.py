"""One epoch as one transaction of a table, whoever else commits.

The table names the newest epoch of each sink (Delta's action `txn`), in the same commit as the files
of that epoch. A commit succeeds only as the next version after the one that was looked at. So:

1. Look at the newest version. If it names this epoch or a later one, the epoch is committed.
2. Decide which files are added and removed, by that version.
3. Commit. If somebody else was first, or the answer is lost, begin again.

An epoch cannot be committed twice: of two attempts, the second finds the next version taken, and then
the epoch named. The name is part of the table's state, which checkpoints of the log keep; no history
is searched, so compaction, vacuum and log cleanup change nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from resurgence.connectors.delta.table import brief
from resurgence.errors import SinkError

COMMIT_DEADLINE = timedelta(minutes=10)
_FIRST_PAUSE = timedelta(milliseconds=20)
_LONGEST_PAUSE = timedelta(seconds=2)


class Table(Protocol):
    """A table that other writers commit to as well."""

    def refresh(self) -> None:
        """Look at the newest version."""
        ...

    def newest_epoch(self, application: str) -> int:
        """Return the newest epoch of a sink in the version that was looked at."""
        ...


@dataclass(frozen=True)
class Attempts:
    """Repeats the attempt of a commit, until the epoch is committed."""

    monotonic: Callable[[], float]
    pause: Callable[[float], None]
    is_conflict: Callable[[BaseException], bool]
    """Whether an error can mean that another commit came first."""
    is_unknown: Callable[[BaseException], bool]
    """Whether the commit may have succeeded in spite of an error."""
    deadline: timedelta = COMMIT_DEADLINE

    def commit(
        self, table: Table, application: str, epoch: int, attempt: Callable[[], None]
    ) -> None:
        """Commit by `attempt`, as the version after the one that the table has been looked at. It
        is not called if the epoch has been committed before.
        """
        ends_at = self.monotonic() + self.deadline.total_seconds()
        wait = _FIRST_PAUSE
        while table.newest_epoch(application) < epoch:
            try:
                attempt()
                return
            except Exception as error:
                table.refresh()
                if table.newest_epoch(application) >= epoch:
                    return
                if not self.is_conflict(error) and not self.is_unknown(error):
                    raise
                if not self.is_conflict(error) or self.monotonic() > ends_at:
                    raise SinkError(
                        f"epoch {epoch} could not be committed: {brief(error)}",
                        hint="Check whether other writers commit to the table all the time, or its"
                        " storage fails. The job will retry.",
                    ) from error
                self.pause(wait.total_seconds())
                wait = min(wait * 2, _LONGEST_PAUSE)


def attempts() -> Attempts:
    """Return the attempts of commits by `deltalake`."""
    from deltalake.exceptions import CommitFailedError, DeltaError

    return Attempts(
        time.monotonic,
        time.sleep,
        is_conflict=lambda error: isinstance(error, CommitFailedError),
        is_unknown=lambda error: isinstance(error, DeltaError | OSError),
    )
