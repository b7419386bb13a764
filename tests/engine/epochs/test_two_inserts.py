"""Several INSERTs into one sink: one commit per epoch, and no row lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.config import settings_from
from resurgence.connectors.checks import check_connectors
from resurgence.connectors.registry import CONNECTORS
from resurgence.engine.epochs.in_process import open_engine
from resurgence.errors import UserError
from resurgence.ids import JobName
from resurgence.sql import compile_pipeline
from resurgence.storage.object_store import ObjectStore

SOURCE = """
    CREATE TABLE n WITH (connector = 'impulse', message_count = '50', start_time = '2024-01-01T00:00:00');
"""


@pytest.mark.parametrize(
    "sink",
    [
        "connector = 'single_file', path = '{out}'",
        "connector = 'filesystem', path = '{out}', format = 'json'",
    ],
)
def test_two_inserts_into_one_sink_are_committed_together(
    spark: SparkSession, tmp_path: Path, sink: str
) -> None:
    out = tmp_path / "out"
    sql = SOURCE + (
        f"CREATE TABLE numbers (x BIGINT) WITH ({sink.format(out=out)}, type = 'sink');"
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
    files = [out] if out.is_file() else sorted(out.glob("*.json"))
    rows = [json.loads(line)["x"] for file in files for line in file.read_text().splitlines()]
    assert sorted(rows) == list(range(50))


def test_two_tables_that_write_to_one_path_are_refused(tmp_path: Path) -> None:
    sql = SOURCE + "".join(
        f"CREATE TABLE {name} (x BIGINT) WITH (connector = 'filesystem', path = '{tmp_path}/out');"
        f"INSERT INTO {name} SELECT counter FROM n;"
        for name in ("a", "b")
    )
    graph = compile_pipeline(sql, CONNECTORS)
    with pytest.raises(UserError, match="both write to"):
        check_connectors(graph, f"file://{tmp_path}/state", JobName("j"))
