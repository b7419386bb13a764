"""Several INSERTs into one sink: one commit per epoch, and no row lost."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from resurgence.config import settings_from
from resurgence.connectors.checks import check_connectors
from resurgence.connectors.iceberg.catalogs.catalog import IcebergCatalog
from resurgence.connectors.registry import CONNECTORS
from resurgence.engine.epochs.in_process import open_engine
from resurgence.errors import SqlError, UserError
from resurgence.ids import JobName
from resurgence.sql import compile_pipeline
from resurgence.storage.object_store import ObjectStore
from tests.iceberg_tables import catalog_options, opened_catalog

SOURCE = """
    CREATE TABLE n WITH (connector = 'impulse', message_count = '50', start_time = '2024-01-01T00:00:00');
"""


def sink_options(connector: str, folder: Path) -> str:
    """The options of a sink that writes under a folder."""
    options = {"connector": connector, "type": "sink", "path": f"{folder}/out"}
    if connector == "iceberg":
        del options["path"]
        options |= catalog_options(folder)
    if connector == "filesystem":
        options["format"] = "json"
    return ", ".join(f"'{name}' = '{each}'" for name, each in options.items())


def read_files(folder: Path) -> list[int]:
    """The numbers that a sink of files has written."""
    out = folder / "out"
    files: Sequence[Path] = [out] if out.is_file() else sorted(out.glob("*.json"))
    return [json.loads(line)["x"] for file in files for line in file.read_text().splitlines()]


def read_delta(folder: Path) -> list[int]:
    if not DeltaTable.is_deltatable(f"{folder}/out"):
        return []
    return list(DeltaTable(folder / "out").to_pyarrow_table()["x"].to_pylist())


def read_iceberg(catalog: IcebergCatalog) -> list[int]:
    table = catalog.find()
    return [] if table is None else list(table.scan().to_arrow()["x"].to_pylist())


@contextmanager
def polled(read: Callable[[], list[int]]) -> Iterator[list[list[int]]]:
    """Read in another thread, again and again; what was found each time."""
    found: list[list[int]] = []
    is_over = threading.Event()

    def poll() -> None:
        while not is_over.wait(0.01):
            found.append(sorted(read()))

    with ThreadPoolExecutor(1) as threads:
        polling = threads.submit(poll)
        try:
            yield found
        finally:
            is_over.set()
        polling.result()


@pytest.mark.parametrize("connector", ["single_file", "filesystem", "delta", "iceberg"])
def test_two_inserts_into_one_sink_are_committed_together(
    spark: SparkSession, tmp_path: Path, connector: str
) -> None:
    sql = SOURCE + (
        f"CREATE TABLE numbers (x BIGINT) WITH ({sink_options(connector, tmp_path)});"
        "INSERT INTO numbers SELECT counter FROM n WHERE counter % 2 = 0;"
        "INSERT INTO numbers SELECT counter FROM n WHERE counter % 2 = 1;"
    )
    settings = settings_from({"pipeline.epoch_rows": "20"})
    graph = compile_pipeline(sql, CONNECTORS)
    store = ObjectStore(f"{tmp_path}/state")
    catalog = opened_catalog(tmp_path)
    assert catalog.find() is None
    tables: dict[str, Callable[[], list[int]]] = {
        "delta": partial(read_delta, tmp_path),
        "iceberg": partial(read_iceberg, catalog),
    }
    read = tables.get(connector, partial(read_files, tmp_path))
    # Several files cannot appear at once.
    with polled(tables.get(connector, list[int])) as found:
        open_engine(spark, graph, store, JobName("j"), settings).run_epoch()
        engine = open_engine(spark, graph, store, JobName("j"), settings)
        while not engine.finished:
            engine.run_epoch()
    assert all(each in ([], *map(list, map(range, (20, 40, 50)))) for each in found)
    assert sorted(read()) == list(range(50))


@pytest.mark.parametrize("connector", ["delta", "iceberg"])
@pytest.mark.parametrize("is_changelog_first", [True, False])
def test_an_append_only_insert_and_a_changelog_into_one_lakehouse_table_are_refused(
    tmp_path: Path, connector: str, is_changelog_first: bool
) -> None:
    columns = "x BIGINT, n BIGINT, PRIMARY KEY (x)"
    queries = [
        "INSERT INTO totals SELECT counter % 10, count(*) FROM n GROUP BY counter % 10;",
        "INSERT INTO totals SELECT counter, counter FROM n;",
    ]
    sql = SOURCE + f"CREATE TABLE totals ({columns}) WITH ({sink_options(connector, tmp_path)});\n"
    sql += "\n".join(queries if is_changelog_first else queries[::-1])
    with pytest.raises(SqlError, match="by both append-only queries and changelogs") as caught:
        compile_pipeline(sql, CONNECTORS)
    assert (caught.value.line, caught.value.column) == (5, 20)
    assert "UNION ALL" in caught.value.hint
    same_kind = SOURCE + sql.split("\n")[2] + queries[0] + queries[0].replace("10", "20")
    assert len(compile_pipeline(same_kind, CONNECTORS).sinks()) == 2


def test_two_tables_that_write_to_one_path_are_refused(tmp_path: Path) -> None:
    sql = SOURCE + "".join(
        f"CREATE TABLE {name} (x BIGINT) WITH (connector = 'filesystem', path = '{tmp_path}/out');"
        f"INSERT INTO {name} SELECT counter FROM n;"
        for name in ("a", "b")
    )
    graph = compile_pipeline(sql, CONNECTORS)
    with pytest.raises(UserError, match="both write to"):
        check_connectors(graph, f"file://{tmp_path}/state", JobName("j"))
