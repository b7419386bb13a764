"""A Delta table as a sink sees it: opened, created, and committed to by the package `deltalake`.

`deltalake` reads and writes the log, and nothing else here: Spark's tasks write the files.

A handle has a version. It is not advanced by others' commits, nor by its own. All commits here are
made with `max_commit_retries=0`: then a commit succeeds only if it is the next version after that of
its handle. Retries inside the library would rebase a commit on versions that nobody has looked at.
"""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import JsonValue
from pyspark.sql.types import StructType

from resurgence.connectors.delta.columns import TableShape, table_schema
from resurgence.connectors.delta.file_details import partition_text
from resurgence.connectors.delta.files import AddedFile, LiveFile, file_name, live_files
from resurgence.errors import ConfigError, SinkError, UserError
from resurgence.ids import JobIdentity
from resurgence.storage.access import store_access
from resurgence.storage.object_store import is_missing_folder

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

_DECORATION = re.compile(r"\x1b\[\d+m|↳")
_LONGEST = 300
INFO = "resurgence"
"""The key of our part of a commit's information, which is for people: no decision depends on it."""


def application_id(job: JobIdentity, table: str) -> str:
    """Return the name under which the table has the newest epoch of a sink."""
    return f"resurgence-{job}-{table}"


def input_id(application: str) -> str:
    """Return the name under which the table has the number of the input that the newest epoch of a
    sink covers.
    """
    return f"{application}-input"


def require_package(table: str) -> None:
    """Raise ConfigError if `deltalake` is not installed."""
    if importlib.util.find_spec("deltalake") is None:
        raise ConfigError(
            f"table '{table}' requires the package deltalake",
            hint="Install it with `pip install 'resurgence[delta]'`.",
        )


class SinkTable:
    """The table of a sink. Its handle is reused as long as the access to its store is the same. It
    must not be shared between threads: a commit follows the version that its thread has looked at.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._delta: DeltaTable | None = None
        self._options: dict[str, str] = {}

    def exists(self) -> bool:
        """Open the table at its newest version, if there is one."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        if is_missing_folder(self.url):
            return False
        options = storage_options(self.url)
        if self._delta is not None and options == self._options:
            try:
                self._delta.update_incremental()
                return True
            except (DeltaError, OSError):
                # A handle cannot advance over versions that a log cleanup has removed.
                self._delta = None
        with translated(self.url):
            try:
                self._delta, self._options = DeltaTable(self.url, storage_options=options), options
            except TableNotFoundError:
                return False
        return True

    def refresh(self) -> None:
        """Advance to the newest version. Raise SinkError if the table is gone."""
        if not self.exists():
            raise SinkError(
                f"there is no Delta table at {self.url} any more",
                hint="Restore it. The output of this job was removed.",
            )

    @property
    def delta(self) -> DeltaTable:
        """The table at the version that was opened last."""
        if self._delta is None:
            self.refresh()
        assert self._delta is not None
        return self._delta

    @property
    def version(self) -> int:
        return int(self.delta.version())

    def create(self, columns: StructType, partitioned_by: Sequence[str]) -> None:
        """Create the table, unless somebody else does."""
        from deltalake import DeltaTable, Schema
        from deltalake.exceptions import DeltaError

        try:
            schema = Schema.from_json(columns.json())
        except (DeltaError, ValueError, TypeError) as error:
            raise UserError(
                f"a Delta table cannot have these columns: {brief(error)}",
                hint="Cast them in the query.",
            ) from error
        self._options = storage_options(self.url)
        with translated(self.url):
            self._delta = DeltaTable.create(
                self.url,
                schema,
                mode="ignore",
                partition_by=[*partitioned_by],
                storage_options=self._options,
            )

    def add_columns(self, columns: StructType) -> None:
        """Add columns in a commit of their own. Fails if another commit comes first."""
        from deltalake import Schema

        with translated(self.url):
            fields = Schema.from_json(columns.json()).fields
            self.delta.alter.add_columns(fields, commit_properties=_properties({}, {}))
        self.refresh()

    def shape(self) -> TableShape:
        """Return what its log says of it."""
        metadata, protocol = self.delta.metadata(), self.delta.protocol()
        return TableShape(
            self.url,
            table_schema(self.delta.schema().to_json()),
            tuple(metadata.partition_columns),
            metadata.configuration,
            tuple(protocol.writer_features or ()),
        )

    def newest_epoch(self, application: str) -> int:
        """Return the newest epoch that a sink has committed; 0 if it has none."""
        return int(self.delta.transaction_version(application) or 0)

    def covered_input(self, application: str) -> int:
        """Return the number of the input that the newest epoch of a sink covers; 0 if the table does
        not have it, as after a rollback.
        """
        return int(self.delta.transaction_version(input_id(application)) or 0)

    def names_with_deletion_vectors(self) -> frozenset[str]:
        """Return the names of the files that have one, without their folders."""
        if "deletionVectors" not in (self.delta.protocol().writer_features or ()):
            return frozenset()
        found = pa.table(self.delta.deletion_vectors()).column("filepath")
        return frozenset(map(file_name, found.to_pylist()))

    def live_files(self, below: int | None = None) -> list[LiveFile]:
        """Return the files of the opened version: all, or those with fewer bytes."""
        actions = pa.table(self.delta.get_add_actions(flatten=True))
        if below is not None:
            actions = actions.filter(pc.less(actions.column("size_bytes"), below))
        return [*live_files(actions.to_pylist())]

    def paths(self) -> frozenset[str]:
        """Return the paths of the files of the opened version."""
        return _paths(self.delta)

    def commit(
        self,
        transactions: Mapping[str, int],
        added: Sequence[AddedFile],
        removed: Sequence[LiveFile],
        info: Mapping[str, JsonValue],
        *,
        changes_rows: bool = True,
    ) -> None:
        """Commit as the version after the opened one. Raises DeltaError if that exists, and OSError
        if the answer is lost: then the table may have it. `changes_rows` is false if the added
        files have the rows of the removed ones.
        """
        from deltalake.transaction import AddAction, RemoveAction

        now = time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [
            AddAction(
                *(each.path, each.bytes, {**each.partition}, now, changes_rows, each.statistics)
            )
            for each in added
        ]
        for each in removed:
            texts = {name: partition_text(value) for name, value in each.partition.items()}
            actions.append(RemoveAction(each.path, changes_rows, now, each.bytes, texts))
        self.delta.create_write_transaction(
            actions,
            "append",
            self.delta.schema(),
            [*self.delta.metadata().partition_columns],
            commit_properties=_properties(info, transactions),
        )

    def restore(self, version: int, transactions: Mapping[str, int]) -> None:
        """Commit the content of an older version as the version after the opened one."""
        properties = _properties({"restored": version}, transactions)
        self.delta.restore(version, commit_properties=properties)

    def paths_at(self, version: int) -> frozenset[str]:
        """Return the files of an older version."""
        with translated(self.url):
            return _paths(self._at(version))

    def _at(self, version: int) -> DeltaTable:
        from deltalake import DeltaTable

        return DeltaTable(self.url, version=version, storage_options=storage_options(self.url))

    def newest_epoch_at(self, version: int, application: str) -> int | None:
        """Return the newest epoch of a sink in an older version; None if the log does not reach
        back that far.
        """
        from deltalake.exceptions import DeltaError

        try:
            older = self._at(version)
        except DeltaError:
            return None
        return int(older.transaction_version(application) or 0)


def _paths(table: DeltaTable) -> frozenset[str]:
    actions = pa.table(table.get_add_actions(flatten=True))
    return frozenset(unquote(each) for each in actions.column("path").to_pylist())


def _properties(info: Mapping[str, JsonValue], transactions: Mapping[str, int]) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    custom: dict[str, Any] = {INFO: {**info}}
    # Without a time of its last update, a transaction never expires.
    named = [Transaction(name, version) for name, version in transactions.items()]
    return CommitProperties(
        custom_metadata=custom, app_transactions=named or None, max_commit_retries=0
    )


def storage_options(url: str) -> dict[str, str]:
    """Return the access to a table's store, with the deadlines of all requests here."""
    access = store_access(url)
    if not access.options:
        return {}
    return {
        **dict(access.options),
        "timeout": f"{access.deadlines.request.total_seconds():.0f}s",
        "retry_timeout": f"{access.deadlines.retries.total_seconds():.0f}s",
    }


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Raise SinkError for errors of the library."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError) as error:
        raise SinkError(
            f"the Delta table {url} cannot be accessed: {brief(error)}",
            hint="Check that it can be reached, and that its log is complete. The job will retry.",
        ) from error


def brief(error: BaseException) -> str:
    """Return an error of the library in one line: it writes several, in colours."""
    return " ".join(_DECORATION.sub(" ", str(error)).split())[:_LONGEST]
