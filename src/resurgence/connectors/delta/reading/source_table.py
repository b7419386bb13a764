"""A Delta table as a source sees it: which versions its log has, and the files of one of them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from resurgence.connectors.delta.columns import unreadable_reason
from resurgence.connectors.delta.file_details import partition_text
from resurgence.connectors.delta.files import live_files
from resurgence.connectors.delta.log import LOG_FOLDER, LoggedFile, read_version, version_path
from resurgence.connectors.delta.table import brief, require_package, storage_options
from resurgence.errors import SourceError, SourceRangeGone, UserError, did_you_mean
from resurgence.storage.object_store import is_missing_folder, shared_store

if TYPE_CHECKING:
    from deltalake import DeltaTable


_REFRESH_INTERVAL = timedelta(milliseconds=500)
"""How often the log is listed for new versions."""


@dataclass(frozen=True)
class _Looked:
    """The newest version of the log when it was listed."""

    at: datetime
    newest: int


class SourceTable:
    """The table of a source."""

    def __init__(self, table: str, url: str) -> None:
        self._table = table
        self._url = url
        self._looked = _Looked(datetime.min.replace(tzinfo=UTC), -1)

    def check(self, columns: Sequence[str]) -> None:
        """Raise UserError if the table can never be read, or lacks a column."""
        require_package(self._table)
        delta = self._opened()
        names = [each.name for each in delta.schema().fields]
        for each in columns:
            if each.lower() not in map(str.lower, names):
                raise UserError(
                    f"table '{self._table}': {self._url} has no column '{each}'",
                    hint=did_you_mean(each, names) or "Declare the columns that it has.",
                )
        reason = unreadable_reason(
            delta.metadata().configuration, delta.protocol().reader_features or ()
        )
        if reason is not None:
            raise self._unreadable(reason)

    @functools.cache  # noqa: B019  # a source lives as long as its job
    def is_partitioned(self) -> bool:
        """Return whether it has partition columns, which never change."""
        return bool(self._opened().metadata().partition_columns)

    def require_change_feed(self) -> None:
        """Raise UserError if the table does not record its changes."""
        configuration = self._opened().metadata().configuration
        if configuration.get("delta.enableChangeDataFeed", "false").lower() != "true":
            raise UserError(
                f"table '{self._table}': {self._url} has no change data feed",
                hint="Set delta.enableChangeDataFeed = true on the table, or remove the format.",
            )

    def require_readable(
        self, metadata: Mapping[str, Any] | None, protocol: Mapping[str, Any] | None
    ) -> None:
        """Raise UserError if a change of the table's metadata makes it unreadable."""
        configuration = (metadata or {}).get("configuration") or {}
        features = (protocol or {}).get("readerFeatures") or ()
        if reason := unreadable_reason(configuration, features):
            raise self._unreadable(reason)

    def newest_version(self) -> int:
        return int(self._opened().version())

    def newest_after(self, version: int, now: datetime) -> int:
        """Return the newest version, as it is or was a moment ago; a given version if there is none
        after it. The log is listed from there. Raise SourceRangeGone if the next version is not in
        it any more.
        """
        looked = self._looked
        is_recent = timedelta(0) <= now - looked.at < _REFRESH_INTERVAL
        if not is_recent or looked.newest < version:
            looked = self._looked = _Looked(now, self._newest_listed(version))
        return looked.newest

    def _newest_listed(self, version: int) -> int:
        found = self._listed(version)
        if found and found[0] != version + 1:
            raise SourceRangeGone(
                f"version {version + 1} of the Delta table {self._url} is not in its log any more;"
                f" the oldest one is {found[0]}",
                hint="Start another job with 'source.offset', and raise delta.logRetentionDuration"
                " of the table.",
            )
        return found[-1] if found else version

    def held_version(self, version: int) -> int:
        """Return a version to begin with. Raise UserError if the log does not have it."""
        found = self._listed(-1)
        if version not in (*found, found[-1] + 1):
            raise UserError(
                f"'source.offset' is version {version}, but the log of {self._url} has versions"
                f" {found[0]} to {found[-1]}",
                hint="Use a version that the log has, or earliest.",
            )
        return version

    def version_at(self, millis: int) -> int:
        """Return the first version that was committed at or after an instant; the next one if there
        is none. Raise UserError if older versions may be, which the log does not have.
        """
        found = self._listed(-1)
        low, high = 0, len(found)
        while low < high:
            middle = (low + high) // 2
            version = read_version(shared_store(self._url), found[middle])
            if version is not None and version.millis >= millis:
                high = middle
            else:
                low = middle + 1
        if low == 0 and found[0] > 0:
            raise UserError(
                f"the log of {self._url} does not reach back to 'source.offset': its oldest version"
                f" is {found[0]}",
                hint="Use a later instant, or earliest.",
            )
        return found[low] if low < len(found) else found[-1] + 1

    def files_at(self, version: int) -> tuple[LoggedFile, ...]:
        """Return the files of a version, in the order of their names."""
        with self._translated(version):
            delta = self._delta(version)
            actions = pa.table(delta.get_add_actions(flatten=True)).to_pylist()
            has_vectors = bool(pa.table(delta.deletion_vectors()).num_rows)
        if has_vectors:
            raise UserError(
                f"version {version} of the Delta table {self._url} has deletion vectors, and cannot"
                f" be read as an append-only stream from its beginning",
                hint="Run REORG TABLE ... APPLY (PURGE), or begin with a version or latest.",
            )
        return tuple(
            LoggedFile(
                each.path,
                each.bytes,
                each.rows,
                {name: partition_text(value) for name, value in each.partition.items()},
            )
            for each in sorted(live_files(actions), key=lambda file: file.path)
        )

    def _listed(self, after: int) -> list[int]:
        """Return the versions in the log after one. A checkpoint is no version."""
        offset = version_path(after) if after >= 0 else None
        names = (
            each.path.rsplit("/", 1)[1].split(".")
            for each in shared_store(self._url).list(LOG_FOLDER, after=offset)
        )
        return [int(each[0]) for each in names if each[1:] == ["json"] and each[0].isdecimal()]

    def _opened(self) -> DeltaTable:
        from deltalake.exceptions import TableNotFoundError

        try:
            if not is_missing_folder(self._url):
                with self._translated(None):
                    return self._delta(None)
        except TableNotFoundError:
            pass
        raise UserError(
            f"table '{self._table}': there is no Delta table at {self._url}",
            hint="Check the option 'path'.",
        )

    def _delta(self, version: int | None) -> DeltaTable:
        from deltalake import DeltaTable

        options = storage_options(self._url)
        return DeltaTable(self._url, version=version, storage_options=options)

    def _unreadable(self, reason: str) -> UserError:
        return UserError(
            f"table '{self._table}': {self._url} {reason}",
            hint="Rewrite it as a table without that feature.",
        )

    @contextmanager
    def _translated(self, version: int | None) -> Iterator[None]:
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            yield
        except TableNotFoundError as error:
            if version is None:
                raise
            raise SourceRangeGone(
                f"version {version} of the Delta table {self._url} is not in its log any more",
                hint="Start another job with 'source.offset'.",
            ) from error
        except (DeltaError, OSError) as error:
            raise SourceError(
                f"the Delta table {self._url} cannot be read: {brief(error)}",
                hint="Check that it can be reached. The job will retry.",
            ) from error
