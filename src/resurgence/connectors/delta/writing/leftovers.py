"""What attempts that were not committed have left in the folder of a Delta table."""

from __future__ import annotations

import itertools

from resurgence.connectors.commit_log import CommitLog
from resurgence.connectors.delta.table import SinkTable, application_id
from resurgence.connectors.delta.writing.commit_record import are_changes, fixed_files
from resurgence.connectors.lakehouse.data_files import epoch_of
from resurgence.ids import Epoch, JobIdentity
from resurgence.storage.object_store import shared_store

FOLDER = "resurgence"
"""Where data files are in the table. Vacuum skips folders whose names begin with `_` or `.`."""
_SWEPT_EPOCHS = 20
"""How far back the first sweep of a process looks for files of attempts that were not committed."""


class Leftovers:
    """Deletes the files of a sink that will never be part of the table. It runs beside commits, in
    another thread, so it has its own handle of the table.
    """

    def __init__(self, url: str, table: str, log: CommitLog) -> None:
        self._store = shared_store(url)
        self._delta = SinkTable(url)
        self._table = table
        self._log = log
        self._swept_up_to: Epoch | None = None

    def sweep(self, job: JobIdentity, epoch: Epoch) -> None:
        """Delete what was staged for epochs up to this one, which are all committed."""
        if not self._delta.exists():
            return
        newest = self._delta.newest_epoch(application_id(job, self._table))
        self._log.sweep(job, epoch, lambda each, _content, _number: each <= newest)
        first = max(0, epoch - _SWEPT_EPOCHS) if self._swept_up_to is None else self._swept_up_to
        folder = f"{FOLDER}/{job}"
        listed = self._store.list(folder, after=f"{folder}/{first:010}")
        past = [(of, each.path) for each in listed if (of := epoch_of(each.path)) is not None]
        unused: set[str] = set()
        for of, group in itertools.groupby(sorted(past), lambda each: each[0]):
            fixed = self._log.fixed(job, of) if of <= epoch else None
            files = fixed_files(fixed, of) if fixed is not None else ()
            # The record tells which appended files are the output of an epoch; without it, or after
            # an upsert, others may be, too.
            if files and not are_changes(files):
                output = {each.path for each in files}
                unused.update(path for _, path in group if path not in output)
        if unused:
            # Another copy of this state dir may have committed other files.
            self._store.delete(unused - self._delta.paths())
        self._swept_up_to = epoch
