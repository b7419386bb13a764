"""Credentials reach Spark's executors, and nothing that Spark shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from resurgence.connectors.formats.contract import VALUE
from resurgence.connectors.formats.json.lines import JSON
from resurgence.connectors.staging import _writer
from resurgence.engine.tables.time_table import _reader
from resurgence.errors import StorageError
from resurgence.storage.access import StoreAccess, store_access
from resurgence.storage.object_store import ObjectStore
from tests.faults.scenario import Scenario
from tests.servers.s3 import SECRET_KEY, S3Server

ROOT = Path(__file__).parents[2]
EXECUTOR = """
import os, sys
assert not [name for name in os.environ if name.startswith("AWS_")]
from pyspark import cloudpickle
task, rows = cloudpickle.load(sys.stdin.buffer)
print([batch.to_pylist() for batch in task(iter(rows))])
"""


def run_elsewhere(access: StoreAccess, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Stage two rows in a process that has only these variables."""
    assert JSON.encoder is not None
    rows = pa.RecordBatch.from_pydict({VALUE: ["one", "two"]})
    task = _writer(access, "staged", JSON.encoder)
    return subprocess.run(
        [sys.executable, "-c", EXECUTOR if not variables else EXECUTOR.replace("assert", "0 and")],
        input=cloudpickle.dumps((task, [rows])),  # type: ignore[no-untyped-call]
        env={"PYTHONPATH": f"{ROOT}/src", **variables},
        capture_output=True,
        timeout=60,
        check=False,
    )


def test_a_task_writes_from_a_process_without_any_variable(s3_url: str) -> None:
    done = run_elsewhere(store_access(s3_url))
    assert done.returncode == 0, done.stderr.decode()
    (staged,) = ObjectStore(s3_url).list("")
    assert ObjectStore(s3_url).read(staged.path) == b"onetwo"


def test_other_credentials_of_an_executor_are_not_mixed_with_those_of_the_driver(
    s3_url: str,
) -> None:
    done = run_elsewhere(
        store_access(s3_url), AWS_ACCESS_KEY_ID="other", AWS_SESSION_TOKEN="of other keys"
    )
    assert done.returncode == 0, done.stderr.decode()


def test_refused_credentials_are_an_error_that_does_not_show_them(
    s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-key-that-must-never-be-shown")
    with pytest.raises(StorageError, match="403") as caught:
        ObjectStore(s3_url).create("a", b"")
    assert "never-be-shown" not in str(caught.value)
    done = run_elsewhere(store_access(s3_url))
    assert b"StorageError" in done.stderr
    assert b"never-be-shown" not in done.stderr


def test_new_credentials_are_used_by_stores_that_are_open(
    s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ObjectStore(s3_url)
    with monkeypatch.context() as expired:
        expired.setenv("AWS_SECRET_ACCESS_KEY", "expired")
        with pytest.raises(StorageError):
            store.create("a", b"")
    assert store.create("a", b"")


def test_a_job_on_s3_shows_no_secret_to_spark(
    spark: SparkSession,
    s3_server: S3Server,
    s3_scenario: Scenario,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The session was started before the variables were set: its executors have none."""
    names = spark.range(1).mapInArrow(_variables, "name STRING").collect()
    assert not {each.name for each in names} & s3_server.variables().keys()
    s3_scenario.finish()
    s3_scenario.assert_exactly_once()
    access = store_access(s3_scenario.place)
    assert SECRET_KEY in dict(access.options).values()
    rows = spark.range(1).mapInArrow(_reader(access, (), 0, 1), "bin LONG")
    plan = rows._jdf.queryExecution().toString()
    assert "read(" in plan
    for shown in (plan, str(spark.sparkContext.getConf().getAll()), *capfd.readouterr()):
        assert SECRET_KEY not in shown


def _variables(batches):  # type: ignore[no-untyped-def]
    import os

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"name": list(os.environ)})
