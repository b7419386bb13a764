"""One epoch as one transaction of a table, whoever else commits.

The table names the newest epoch of each sink (Delta's action `txn`), in the same commit as the files
of that epoch. A commit succeeds only as the next version after the one that was looked at. So:

1. Look at the newest version. If it names this epoch or a later one, the epoch is committed.
2. Decide which files are added and removed, by that version.
3. Commit. If somebody else was first, or the answer is lost, begin again.

An epoch cannot be committed twice: of two attempts, the second finds the next version taken, and then
the epoch named. The name is part of the table's state, which checkpoints of the log keep; no history
is searched, so compaction, vacuum and log cleanup change nothing.

A number alone does not identify an epoch: two copies of a state dir that run at the same time number
other input alike. So the commit names the input of its epoch, too, by a second `txn`, and whoever
finds the epoch committed compares both with its own records.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from resurgence.connectors.contract import CoveredInput
from resurgence.connectors.delta.table import brief, input_id
from resurgence.errors import SinkError
from resurgence.ids import Epoch

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
    ) -> bool:
        """Commit by `attempt`, as the version after the one that the table has been looked at. It
        is not called if the epoch has been committed before. Return whether this call has committed
        it, as far as is known.
        """
        ends_at = self.monotonic() + self.deadline.total_seconds()
        wait = _FIRST_PAUSE
        while table.newest_epoch(application) < epoch:
            try:
                attempt()
                return True
            except Exception as error:
                table.refresh()
                if table.newest_epoch(application) >= epoch:
                    return False
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
        return False


def transactions_of(application: str, epoch: Epoch, covered: CoveredInput) -> dict[str, int]:
    """Return what a commit names: its epoch, and the input that the epoch covers."""
    return {application: int(epoch), input_id(application): input_number(covered)}


def input_number(covered: CoveredInput) -> int:
    """Return a number that identifies an input, as a table stores it: positive, of 63 bits."""
    spans = {operator: [each.start, each.end] for operator, each in covered.sources.items()}
    text = json.dumps(spans, sort_keys=True)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1 or 1


def attempts() -> Attempts:
    """Return the attempts of commits by `deltalake`."""
    from deltalake.exceptions import CommitFailedError, DeltaError

    return Attempts(
        time.monotonic,
        time.sleep,
        is_conflict=lambda error: isinstance(error, CommitFailedError),
        is_unknown=lambda error: isinstance(error, DeltaError | OSError),
    )
