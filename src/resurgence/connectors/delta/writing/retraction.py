"""Takes back the epochs of a sink that a rollback has declared dead, as one commit of the table.

That commit names the last of the dead epochs as committed, so that no zombie commits one of them any
more; and it names it as retracted, so that it is not made twice.
"""

from __future__ import annotations

from resurgence.connectors.delta.log import read_version
from resurgence.connectors.delta.table import SinkTable, input_id
from resurgence.connectors.delta.writing.rollback import (
    Refusal,
    RemoveFiles,
    RestoreVersion,
    plan_retraction,
    version_before,
)
from resurgence.connectors.delta.writing.transactions import Attempts
from resurgence.connectors.lakehouse.staged_files import missing_files
from resurgence.errors import SinkConflict
from resurgence.ids import Epoch
from resurgence.storage.object_store import shared_store


def retract_epochs(
    table: SinkTable, attempts: Attempts, application: str, after: Epoch, up_to: Epoch
) -> None:
    """Take back the epochs after one up to another. Raise SinkConflict if that is not possible."""
    retracted = f"{application}-retracted"
    transactions = {application: int(up_to), input_id(application): 0, retracted: int(up_to)}

    def attempt() -> None:
        if table.newest_epoch(application) <= after:
            table.commit(transactions, (), (), {})
            return
        before = version_before(
            table.version, after, lambda version: table.newest_epoch_at(version, application)
        )
        if before is None:
            raise _impossible(table.url, after, "its log does not reach back that far", None)
        store = shared_store(table.url)
        since = [read_version(store, each) for each in range(before + 1, table.version + 1)]
        found = [each for each in since if each is not None]
        if len(found) < len(since):
            raise _impossible(table.url, after, "versions of its log are missing", before)
        live = {each.path: each for each in table.live_files()}
        live_before = table.paths_at(before)
        match plan_retraction(before, found, application, live_before, live):
            case RemoveFiles(paths):
                removed = [each for path, each in live.items() if path in paths]
                table.commit(transactions, (), removed, {"retracted": [after + 1, up_to]})
            case RestoreVersion(version):
                gone = live_before - live.keys()
                if deleted := missing_files(gone, lambda each: store.size(each) is not None):
                    reason = f"{deleted[0]}, which it had then, was vacuumed"
                    raise _impossible(table.url, after, reason, None)
                table.restore(version, transactions)
            case Refusal(reason):
                raise _impossible(table.url, after, reason, before)

    attempts.commit(table, retracted, up_to, attempt)


def _impossible(url: str, after: Epoch, reason: str, before: int | None) -> SinkConflict:
    by_hand = (
        f"Restore the table to version {before} by hand and start the job again, which takes back"
        " what others wrote since, too; or choose"
        if before is not None
        else "Choose"
    )
    return SinkConflict(
        f"{url} cannot be rolled back to epoch {after}: {reason}",
        hint=f"{by_hand} another --name and another path for the sink.",
    )
