"""Several INSERTs into one sink: one commit per epoch, and no row lost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from resurgence.config import settings_from
from resurgence.connectors.checks import check_connectors
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


def written(connector: str, folder: Path) -> list[int]:
    """The numbers that such a sink has written."""
    if connector == "delta":
        return list(DeltaTable(folder / "out").to_pyarrow_table()["x"].to_pylist())
    if connector == "iceberg":
        return list(opened_catalog(folder).load().scan().to_arrow()["x"].to_pylist())
    out = folder / "out"
    files: Sequence[Path] = [out] if out.is_file() else sorted(out.glob("*.json"))
    return [json.loads(line)["x"] for file in files for line in file.read_text().splitlines()]


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
    open_engine(spark, graph, store, JobName("j"), settings).run_epoch()
    engine = open_engine(spark, graph, store, JobName("j"), settings)
    while not engine.finished:
        engine.run_epoch()
    assert sorted(written(connector, tmp_path)) == list(range(50))


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
