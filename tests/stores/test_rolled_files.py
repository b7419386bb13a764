"""Partitioned and rolled files in an object store, with crashes around their commits."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.cli.commands.rollback import roll_back
from resurgence.connectors.registry import CONNECTORS
from resurgence.engine.spark.errors import translate
from resurgence.errors import InjectedFault
from resurgence.ids import Epoch, JobName
from resurgence.sql import compile_pipeline
from resurgence.state.backend import StateBackend
from resurgence.storage.object_store import ObjectStore
from tests.engine.harness import Job, Leg, source_table, write_lines

ROWS = 100


def rows(url: str) -> list[int]:
    """What is visible, with duplicates."""
    store = ObjectStore(f"{url}/out")
    names = [each.path for each in store.list("") if not each.path.startswith(".")]
    assert all(each.startswith("kind=") and each.endswith(".json.gz") for each in names)
    lines = (line for each in names for line in gzip.decompress(store.read(each)).splitlines())
    return sorted(json.loads(line)["id"] for line in lines)


def test_rolled_files_on_s3_have_every_row_once_after_crashes_and_a_rollback(
    spark: SparkSession, tmp_path: Path, s3_url: str
) -> None:
    source = write_lines(
        tmp_path / "in.json", ({"id": n, "kind": "ab"[n % 2]} for n in range(ROWS))
    )
    sql = (
        source_table(source, "id BIGINT, kind TEXT", delay=None)
        + f"""
        CREATE TABLE out WITH (connector = 'filesystem', path = '{s3_url}/out', type = 'sink',
            format = 'json', 'json.compression' = 'gzip', 'partitioning.fields' = [kind],
            'rolling_policy.interval' = '1 hour', 'rolling_policy.file_size' = '200');
        INSERT INTO out SELECT * FROM events"""
    )
    job = Job(spark, tmp_path, sql, place=f"{s3_url}/state")
    for point in ("sink.committing@3", "sink.committed@5"):
        job.settings = {"faults": f"{point}=raise"}
        with pytest.raises(Exception) as raised:
            job.run([Leg(rows=10, parallelism=1)])
        assert isinstance(translate(raised.value), InjectedFault)
    job.settings = {}
    job.run([Leg(rows=10, parallelism=1)])
    assert rows(s3_url) == [*range(ROWS)]
    backend = StateBackend(job.store, JobName(job.name))
    graph = compile_pipeline(job.sql, CONNECTORS)
    roll_back(backend, graph, Epoch(4), dry_run=False, accept_duplicates=False)
    assert rows(s3_url) == [*range(40)]
    job.run([Leg(rows=25)])
    assert rows(s3_url) == [*range(ROWS)]
