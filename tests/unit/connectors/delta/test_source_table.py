"""When a Delta source looks for new versions, and with which access a lookup opens its table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import TableNotFoundError

from resurgence.connectors.delta.reading.lookup import DeltaLookup, DeltaLookupOptions
from resurgence.connectors.delta.reading.source_table import SourceTable
from resurgence.errors import UserError
from resurgence.graph.values import Column
from resurgence.storage.object_store import ObjectStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_the_log_is_listed_twice_a_second_however_often_a_source_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []
    listing = ObjectStore.list

    def counted(self: ObjectStore, *arguments: Any, **named: Any) -> Any:
        listed.append(self.url)
        return listing(self, *arguments, **named)

    def append() -> None:
        write_deltalake(tmp_path / "table", pa.table({"id": [1]}), mode="append")

    monkeypatch.setattr(ObjectStore, "list", counted)
    append()
    table = SourceTable("t", f"file://{tmp_path}/table")
    at = [NOW + timedelta(milliseconds=50 * each) for each in range(20)]
    assert table.newest_after(-1, at[0]) == 0
    append()
    assert [table.newest_after(0, each) for each in at] == [0] * 10 + [1] * 10
    assert len(listed) == 2
    # Nor does a clock that was set back make it wait.
    append()
    assert table.newest_after(1, NOW - timedelta(hours=1)) == 2


def test_a_lookup_table_is_opened_with_the_settings_of_its_storage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: dict[str, str] = {}

    def table(_url: str, storage_options: dict[str, str]) -> None:
        opened.update(storage_options)
        raise TableNotFoundError("none")

    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(deltalake, "DeltaTable", table)
    columns = [Column(name="id", type="BIGINT")]
    lookup = DeltaLookup("t", DeltaLookupOptions.read({"path": "s3://b/t"}), columns)
    with pytest.raises(UserError, match="there is no Delta table"):
        lookup._opened()
    assert opened["AWS_ENDPOINT"] == "http://127.0.0.1:9"
    assert opened["timeout"] == "60s"
