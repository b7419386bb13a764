"""How a rollback takes back what a job wrote to a Delta table. Pure.

If nobody else has changed rows since the first dead epoch, the version before it is restored, as a
new version. Compactions since then, which change no rows, are undone by that, too. If others have
changed rows, it would take back these. Then the files of the dead epochs are removed, provided that
they were only appended and are all still there. Otherwise their rows are mixed with rows of others,
as by a compaction, and the rollback is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from resurgence.connectors.delta.log import Version


@dataclass(frozen=True)
class RemoveFiles:
    """Remove these files; none if the table has nothing to take back."""

    paths: frozenset[str] = frozenset()


@dataclass(frozen=True)
class RestoreVersion:
    """Commit the content of a version again."""

    version: int


@dataclass(frozen=True)
class Refusal:
    """It cannot be retracted."""

    reason: str


Retraction = RemoveFiles | RestoreVersion | Refusal


def version_before(newest: int, after: int, epoch_at: Callable[[int], int | None]) -> int | None:
    """Return the newest version that has no epoch after `after`; None if the log does not reach
    back that far. `epoch_at` returns the newest epoch of the sink in a version, or None if that
    version is not in the log any more. Epochs only grow from version to version.
    """
    low, high = 0, newest
    found: int | None = None
    while low <= high:
        middle = (low + high) // 2
        epoch = epoch_at(middle)
        if epoch is not None and epoch > after:
            high = middle - 1
        else:
            # A version that is gone is older than all that are left.
            found = middle if epoch is not None else found
            low = middle + 1
    return found


def plan_retraction(
    before: int,
    since: Sequence[Version],
    application: str,
    live_before: Collection[str],
    live: Collection[str],
) -> Retraction:
    """Decide how to take back all versions of a sink after `before`. `since` are these versions with
    those of others; `live` are the files of the table, then and now.
    """
    if {*live} == {*live_before}:
        return RemoveFiles()
    foreign = [each for each in since if _is_foreign(each, application)]
    if not foreign:
        return RestoreVersion(before)
    first = foreign[0]
    reason = (
        f"somebody else has written to the table since: version {first.number}"
        f" ({first.operation or 'unknown operation'})"
    )
    own = [each for each in since if application in each.transactions]
    added = frozenset(file.path for each in own for file in each.added_rows)
    if any(each.removed_rows for each in own):
        return Refusal(reason)
    if not added <= {*live}:
        mixed = next((each.number for each in since if each.moves_rows), None)
        compacted = f", and version {mixed} has merged files" if mixed is not None else ""
        return Refusal(f"{reason}{compacted}")
    return RemoveFiles(added)


def _is_foreign(version: Version, application: str) -> bool:
    """Return whether somebody else has changed rows or columns."""
    is_own = application in version.transactions
    is_our_column = version.is_ours and not version.added and not version.removed
    changes = version.added_rows or version.removed_rows or version.metadata is not None
    return not is_own and not is_our_column and bool(changes)
