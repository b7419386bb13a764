"""`resurgence run` from Delta and Iceberg tables, killed at every fault point of a sink."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from tests.killed_run import run_killed

COMMITS, ROWS = 4, 1000


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_run_that_is_killed_at_every_point_reads_each_row_once(tmp_path: Path) -> None:
    uri, warehouse = f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/wh"
    catalog = SqlCatalog("default", uri=uri, warehouse=warehouse)
    catalog.create_namespace("db")
    numbers = catalog.create_table("db.numbers", pa.schema({"n": pa.int64()}))
    for commit in range(COMMITS):
        rows = pa.table({"n": range(commit * ROWS, (commit + 1) * ROWS)})
        write_deltalake(tmp_path / "numbers", rows, mode="append")
        numbers.append(rows)

    bounded = "'source.offset' = 'earliest', 'source.stop_at' = 'latest'"
    run_killed(
        tmp_path,
        f"""
        CREATE TABLE from_delta (n BIGINT) WITH (
          connector = 'delta', type = 'source', path = 'numbers', {bounded});
        CREATE TABLE from_iceberg (n BIGINT) WITH (
          connector = 'iceberg', type = 'source', 'catalog.type' = 'sql',
          'catalog.sql.uri' = '{uri}', 'catalog.warehouse' = '{warehouse}',
          namespace = 'db', table_name = 'numbers', {bounded});
        CREATE TABLE copied WITH (connector = 'delta', type = 'sink', path = 'copied');
        INSERT INTO copied SELECT 'delta' AS source, n FROM from_delta
          UNION ALL SELECT 'iceberg' AS source, n FROM from_iceberg;
        """,
    )
    copied = DeltaTable(tmp_path / "copied").to_pyarrow_table().to_pylist()
    expected = [(source, n) for source in ("delta", "iceberg") for n in range(COMMITS * ROWS)]
    assert sorted((each["source"], each["n"]) for each in copied) == expected
