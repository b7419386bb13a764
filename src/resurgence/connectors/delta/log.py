"""The log of a Delta table, version by version: `_delta_log/{version}.json`.

`deltalake` returns the state of a table, not what a version changed. So versions are read here, by
the driver; they are metadata. Parsing is pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

from resurgence.connectors.delta.table import INFO
from resurgence.errors import ObjectMissing, SourceError
from resurgence.storage.object_store import ObjectStore

LOG_FOLDER = "_delta_log"


@dataclass(frozen=True)
class LoggedFile:
    """A data file in an action."""

    path: str
    bytes: int = 0
    rows: int | None = None
    """None if the log has no statistics of it."""
    partition: Mapping[str, str | None] = field(default_factory=dict)
    changes_data: bool = True
    """False for actions that only move rows, such as those of a compaction."""
    has_deletion_vector: bool = False
    change: int | None = 1
    """What its rows are in a changelog: 1 for inserted, -1 for deleted ones. None for files of the
    change data feed, whose rows say so themselves.
    """


@dataclass(frozen=True)
class Version:
    """What one commit changed."""

    number: int
    millis: int = 0
    """When it was committed, since 1970, as its writer says."""
    operation: str = ""
    is_ours: bool = False
    """It was committed by a sink of this project."""
    added: tuple[LoggedFile, ...] = ()
    removed: tuple[LoggedFile, ...] = ()
    change_files: tuple[LoggedFile, ...] = ()
    """Of the change data feed."""
    metadata: Mapping[str, Any] | None = None
    protocol: Mapping[str, Any] | None = None
    transactions: Mapping[str, int] = field(default_factory=dict)

    @property
    def changed_rows(self) -> tuple[LoggedFile, ...]:
        """The changelog of the version: its change data feed, or else whole files."""
        if self.change_files:
            return tuple(replace(each, change=None) for each in self.change_files)
        return (*(replace(each, change=-1) for each in self.removed_rows), *self.added_rows)

    @property
    def moves_rows(self) -> bool:
        """It has rewritten files without changing rows."""
        return any(not each.changes_data for each in (*self.added, *self.removed))

    @property
    def added_rows(self) -> tuple[LoggedFile, ...]:
        return tuple(each for each in self.added if each.changes_data)

    @property
    def removed_rows(self) -> tuple[LoggedFile, ...]:
        return tuple(each for each in self.removed if each.changes_data)


def version_path(number: int) -> str:
    return f"{LOG_FOLDER}/{number:020}.json"


def parse_version(number: int, data: bytes) -> Version:
    """Return what a version changed. Raise ValueError if it is damaged."""
    actions: dict[str, list[dict[str, Any]]] = {}
    for line in data.decode().splitlines():
        if line.strip():
            ((name, content),) = json.loads(line).items()
            actions.setdefault(name, []).append(content)
    (info,) = actions.get("commitInfo", [{}])[:1] or [{}]
    millis = info.get("inCommitTimestamp", info.get("timestamp", 0))
    return Version(
        number,
        millis=int(millis) if isinstance(millis, int) else 0,
        operation=str(info.get("operation", "")),
        is_ours=INFO in info,
        added=_files(actions.get("add", ())),
        removed=_files(actions.get("remove", ())),
        change_files=_files(actions.get("cdc", ())),
        metadata=actions["metaData"][-1] if "metaData" in actions else None,
        protocol=actions["protocol"][-1] if "protocol" in actions else None,
        transactions={each["appId"]: int(each["version"]) for each in actions.get("txn", ())},
    )


def _files(actions: Sequence[Mapping[str, Any]]) -> tuple[LoggedFile, ...]:
    return tuple(
        LoggedFile(
            unquote(each["path"]),
            bytes=int(each.get("size") or 0),
            rows=_rows(each.get("stats")),
            partition=each.get("partitionValues") or {},
            changes_data=bool(each.get("dataChange", True)),
            has_deletion_vector=bool(each.get("deletionVector")),
        )
        for each in actions
    )


def _rows(statistics: str | None) -> int | None:
    rows = json.loads(statistics).get("numRecords") if statistics else None
    return int(rows) if rows is not None else None


def read_version(store: ObjectStore, number: int) -> Version | None:
    """Return a version; None if the log does not have it, not yet or not any more."""
    path = version_path(number)
    try:
        return parse_version(number, store.read(path))
    except ObjectMissing:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(
            f"version {number} of the Delta table {store.url} is damaged",
            hint=f"Restore {path} from a backup.",
        ) from error
