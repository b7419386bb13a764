"""Finds unread files, with as few requests as the order of files allows.

With the order `name` a listing begins after the last name that was read, so its cost depends on the
new files, not on all. With the order `modified` all files are listed, a part of them with each plan, at
intervals that grow with the time that this takes.

No order can exclude that a file appears where it is not looked for: with a name before the last one,
or with a modified time older than that of all recent files. Such a file would never be read. So all
files up to the position are counted: in every listing by modified time; with the order `name` in
an audit, a part of which is done with each listing. If there is one that was not read, the job fails.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator
from datetime import datetime, timedelta

from resurgence.connectors.directory.files import identity
from resurgence.connectors.directory.options import FileOrder
from resurgence.connectors.directory.planning import (
    YOUNG_MICROS,
    Search,
    Unread,
    still_unread,
)
from resurgence.connectors.directory.positions import Key, Ledger, Position, key_of, ledger
from resurgence.connectors.directory.selection import Selection
from resurgence.errors import ConfigError, SourceRangeGone
from resurgence.storage.local_files import StoredFile
from resurgence.storage.object_store import ObjectStore

log = logging.getLogger(__name__)

MOST_FILES = 5_000
"""How many unread files are held in memory."""
_MOST_NAMES = 20_000
"""How many names a plan passes at most, in a listing or an audit: it delays an epoch."""
_AUDIT_INTERVAL = timedelta(minutes=10)
_REST = 10
"""A listing of everything is made after so many times the time that the last one took."""


class Listing:
    """The unread files of one source."""

    def __init__(
        self, table: str, store: ObjectStore, selection: Selection, interval: timedelta, young: int
    ) -> None:
        """`young`: how many young files a listing takes at most."""
        self._table = table
        self._store = store
        self._selection = selection
        self._matches = selection.matcher()
        self._interval = interval
        self._young = young
        self._unread = Unread(is_complete=False)
        self._examined = ""
        """The last name that a listing by name has examined."""
        self._listed_at: datetime | None = None
        self._took = timedelta()
        self._search: tuple[Search, Iterator[StoredFile]] | None = None
        """A listing by modified time that is not finished, and the files it has not examined."""
        self._missing = Ledger()
        """The files that the position has passed and that are gone, such as by retention."""
        self._audit: Iterator[None] | None = None
        self._audited_at: datetime | None = None

    def last(self, order: FileOrder) -> Key | None:
        """Return the key of the last file that exists now; None if there is none."""
        files = (each for each in self._all() if self._matches(each.path))
        return max((key_of(order, each) for each in files), default=None)

    def unread(self, position: Position, now: datetime) -> Unread:
        """Return unread files, from the last listing if it has some, else from a new one if one is
        due.
        """
        self._unread = still_unread(self._unread, position)
        if self._unread.files or not self._is_due(position, now):
            return self._unread
        started, before = time.monotonic(), self._took if self._search else timedelta()
        if position.order is FileOrder.NAME:
            self._list_by_name(position)
            self._continue_audit(position, now)
        else:
            self._list_by_modified(position, now)
        self._took = before + timedelta(seconds=time.monotonic() - started)
        self._listed_at = now
        return self._unread

    def forget(self) -> None:
        """Drop what was listed: a file has changed since."""
        self._unread, self._listed_at, self._examined = Unread(is_complete=False), None, ""
        self._search = None

    def _is_due(self, position: Position, now: datetime) -> bool:
        if self._listed_at is None or not self._unread.is_complete:
            return True
        if position.stop is not None:
            return False
        wait = self._interval
        if position.order is FileOrder.MODIFIED:
            wait = max(wait, _REST * self._took)
        return now - self._listed_at >= wait

    def _all(self) -> Iterator[StoredFile]:
        """Yield all files that may match, and others, in any order."""
        return self._store.files(self._selection.before)

    def _names(self, after: str) -> Iterator[StoredFile]:
        """Yield files after a name that may match. Raise ConfigError if the store does not list them
        in the order of names.
        """
        previous = after
        for each in self._store.files(max(after, self._selection.before)):
            if each.path <= previous:
                raise self._unsorted(previous, each.path)
            if self._selection.is_beyond(each.path):
                return
            previous = each.path
            yield each

    # ---------------------------------------------------------------- by modified time

    def _list_by_modified(self, position: Position, now: datetime) -> None:
        """Do a part of a listing of everything. Nothing is known to be unread before its end."""
        begun, self._search = self._search, None
        if begun is None or begun[0].position != position:
            begun = self._begun(position, now), self._all()
        search, files = begun
        part = [*itertools.islice(files, _MOST_NAMES)]
        search.add(each for each in part if self._matches(each.path))
        if len(part) == _MOST_NAMES:
            # It is dropped if it fails: only this continues it.
            self._search, self._unread = begun, Unread(is_complete=False)
            return
        found = search.unread()
        if position.stop is not None:
            self._unread = found
            return
        self._compare(position, found.passed)
        # Young files beyond those that are taken wait for the next listing, which is not at once.
        self._unread = Unread(found.files, len(found.files) < MOST_FILES)

    def _begun(self, position: Position, now: datetime) -> Search:
        young_from = int(now.timestamp() * 1_000_000) - YOUNG_MICROS
        # Files that appear after the stop of a source are not part of its input.
        most_young = self._young if position.stop is None else MOST_FILES
        return Search(position, MOST_FILES, young_from, most_young)

    # ---------------------------------------------------------------- by name

    def _list_by_name(self, position: Position) -> None:
        after = max(position.passed_name, self._examined)
        stop = position.stop_key
        found: list[StoredFile] = []
        previous, is_complete = after, True
        for number, each in enumerate(self._names(after)):
            if stop is not None and each.path > stop.path:
                break
            if len(found) >= MOST_FILES or number >= _MOST_NAMES:
                is_complete = False
                break
            previous = each.path
            if self._matches(each.path):
                found.append(each)
        self._examined = previous if not is_complete else ""
        self._unread = Unread(tuple(found), is_complete)

    def _unsorted(self, previous: str, path: str) -> ConfigError:
        return ConfigError(
            f"table '{self._table}': {self._selection.shown} is not listed in the order of names:"
            f" {path} follows {previous}",
            hint="Set 'source.order' = 'modified' in a new job with another --name.",
        )

    def _continue_audit(self, position: Position, now: datetime) -> None:
        """Do a part of the audit, or begin one if it is time."""
        if position.stop is not None:
            return
        if self._audit is None:
            is_due = self._audited_at is None or now - self._audited_at >= _AUDIT_INTERVAL
            if not is_due or not position.passed_files:
                return
            self._audit = self._audited(position)
            self._audited_at = now
        if next(self._audit, _ENDED) is _ENDED:
            self._audit = None

    def _audited(self, position: Position) -> Iterator[None]:
        """Count all files up to a position, some at a time."""
        files = digest = 0
        names = self._names("")
        while batch := [*itertools.islice(names, _MOST_NAMES)]:
            passed = [each for each in batch if each.path <= position.passed_name]
            for each in filter(lambda file: self._matches(file.path), passed):
                files, digest = files + 1, digest + identity(each)
            if len(passed) < len(batch) or len(batch) < _MOST_NAMES:
                break
            yield
        self._compare(position, ledger(files, digest))

    # ---------------------------------------------------------------- both

    def _compare(self, position: Position, listed: Ledger) -> None:
        """Raise SourceRangeGone if there is a file that the position has passed without reading it.
        Fewer files are no failure: those that were read may be removed.
        """
        if position.selection != selection_id(self._selection):
            return
        expected = position.ledger - self._missing
        if listed.has_more_than(expected):
            more = listed.files - expected.files
            number = f"{more:,} files" if more > 1 else "a file"
            order = (
                f"a name before {position.passed_name}"
                if position.order is FileOrder.NAME
                else "a modified time before that of files read long ago"
            )
            raise SourceRangeGone(
                f"table '{self._table}': {number} appeared or changed in {self._selection.shown}"
                f" with {order}, and would never be read",
                hint=_LATE_HINTS[position.order],
            )
        if listed.files < expected.files:
            self._missing = position.ledger - listed
            log.info(
                "table '%s': %d files that were read are gone",
                self._table,
                expected.files - listed.files,
            )


_ENDED = object()
_LATE_HINTS = {
    FileOrder.NAME: "Remove the file, or give it a greater name. Set 'source.order' = 'modified' in a"
    " new job with another --name if files can have any names.",
    FileOrder.MODIFIED: "Remove the file, or copy it to a new name, so that it is new. Raise"
    " 'source.remembered_files' if files appear long after their modified time.",
}


def selection_id(selection: Selection) -> str:
    """Return a text that identifies the patterns of a selection."""
    digest = identity(StoredFile(selection.pattern, 0, 0, repr(selection.regex)))
    return f"{digest:016x}"
