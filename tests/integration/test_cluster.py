"""Jobs on a real Spark cluster: two executors in processes of their own, which share nothing but an
S3 server, SIGKILL to each part of the cluster, and the output held against the batch answer.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resurgence.storage.object_store import ObjectStore
from tests.integration.conftest import DEADLINE_SECONDS, QUICK, Project, rows_of, settings
from tests.integration.test_service import Service, free_port, serving
from tests.servers.faulty_proxy import Failure, Fault, FaultyProxy
from tests.spark_cluster import SparkCluster, python_with, spark_cluster
from tests.sql.changelog import merge

__all__ = ["spark_cluster"]

DRIVERS = 50
FUNCTIONS = """
import os
import time
from pathlib import Path

from resurgence import udf

FOLDER = Path({folder!r})


@udf
def ready(counter: int) -> bool:
    '''True; but not while there is a file that says to hold.'''
    deadline = time.monotonic() + 120
    while (FOLDER / "hold").exists() and time.monotonic() < deadline:
        (FOLDER / f"held-{{os.getpid()}}").touch()
        time.sleep(0.05)
    return True
"""
RIDES = """
CREATE TABLE rides WITH (
  connector = 'impulse', message_count = '{rows}', start_time = '2024-03-01T00:00:00', event_time_interval = '10s'
);
"""
BY_MINUTE = """
CREATE TABLE by_minute (start TEXT, kind BIGINT, rides BIGINT, mean DOUBLE)
WITH (connector = 'filesystem', path = '{url}/by_minute', format = 'parquet', type = 'sink');

INSERT INTO by_minute SELECT CAST(window.start AS TEXT), kind, n, mean FROM (
  SELECT tumble(INTERVAL '10 minutes') AS window, counter % 2 AS kind, count(*) AS n, avg(counter) AS mean
  FROM rides WHERE ready(counter) GROUP BY window, kind);
"""
NAMED = """
CREATE TEMPORARY TABLE drivers (driver BIGINT PRIMARY KEY, name TEXT)
WITH (connector = 'filesystem', path = '{url}/drivers', format = 'parquet');
CREATE TABLE named (counter BIGINT, name TEXT)
WITH (connector = 'filesystem', path = '{url}/named', format = 'parquet', type = 'sink');

INSERT INTO named SELECT counter, name FROM rides JOIN drivers ON rides.counter % 50 = drivers.driver;
"""
TOTALS = """
CREATE TABLE totals (driver BIGINT PRIMARY KEY, rides BIGINT, last BIGINT)
WITH (connector = 'filesystem', path = '{url}/totals', format = 'debezium_json', type = 'sink');

INSERT INTO totals SELECT counter % 50, count(*), max(counter) FROM rides GROUP BY counter % 50;
"""


@dataclass
class OnCluster:
    """A project whose jobs run on a cluster, with state and sinks on an S3 server."""

    project: Project
    cluster: SparkCluster
    url: str
    rows: int = 0

    @property
    def folder(self) -> Path:
        return self.project.folder

    @property
    def flags(self) -> list[str]:
        """For a job of a hundred rows per epoch."""
        quick = (*QUICK, "pipeline.heartbeat_interval=300ms", "pipeline.epoch_rows=100")
        return ["--udfs", "functions.py", *settings(*quick, *self.cluster.settings)]

    @property
    def store(self) -> ObjectStore:
        return ObjectStore(self.url)

    def write(self, rows: int, *queries: str) -> None:
        self.rows = rows
        sql = "".join((RIDES, *queries)).format(rows=rows, url=self.url)
        (self.folder / "rides.sql").write_text(sql)

    def serving(self, database: str) -> AbstractContextManager[Service]:
        return serving(self.folder, "--state-dir", f"{self.url}/state", "--database", database)

    def hold(self) -> int:
        """Let the tasks wait in mid-epoch; the executor of one that does."""
        (self.folder / "hold").touch()
        until(lambda: bool(self.held()), "a task waits")
        return self.cluster.executor_of(self.held()[0])

    def held(self) -> list[int]:
        """The processes of tasks that have waited."""
        return [int(each.name.partition("-")[2]) for each in self.folder.glob("held-*")]

    def go_on(self) -> None:
        (self.folder / "hold").unlink()

    def assert_exactly_once(self) -> None:
        """Every sink of the pipeline holds the batch answer, row for row."""
        sql = (self.folder / "rides.sql").read_text()
        rides = f"(SELECT range AS counter FROM range({self.rows}))"
        expected = {
            "by_minute": f"""SELECT CAST(time_bucket(INTERVAL 10 MINUTE,
                TIMESTAMP '2024-03-01' + counter * INTERVAL 10 SECOND) AS TEXT) AS start,
                counter % 2 AS kind, count(*), avg(counter) FROM {rides} GROUP BY ALL""",
            "named": f"SELECT counter, 'driver ' || (counter % 50) FROM {rides}",
            "totals": f"SELECT counter % 50, count(*), max(counter) FROM {rides} GROUP BY ALL",
        }
        for name, query in expected.items():
            if f"INSERT INTO {name} " in sql:
                assert sorted(self._output(name)) == sorted(rows_of(query)), name

    def _output(self, sink: str) -> list[tuple[Any, ...]]:
        contents = [
            self.store.read(each.path)
            for each in self.store.list(f"{sink}/")
            if "/.resurgence/" not in each.path
        ]
        if sink == "totals":
            lines = merge([line for each in contents for line in each.decode().splitlines()])
            return [tuple(json.loads(line).values()) for line in lines]
        tables = [pq.read_table(io.BytesIO(each)) for each in contents]
        return [tuple(row.values()) for table in tables for row in table.to_pylist()]


@pytest.fixture
def here(project: Project, spark_cluster: SparkCluster, s3_url: str) -> OnCluster:
    folder = project.folder
    (folder / "functions.py").write_text(FUNCTIONS.format(folder=str(folder)))
    numbers = list(range(DRIVERS))
    names = pa.table({"driver": numbers, "name": [f"driver {each}" for each in numbers]})
    content = io.BytesIO()
    pq.write_table(names, content)
    on_cluster = OnCluster(project, spark_cluster, s3_url)
    on_cluster.store.create("drivers/drivers.parquet", content.getvalue())
    return on_cluster


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait: a cluster is six JVMs, on a machine that may be busy."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"it did not come to this: {what}")
        time.sleep(0.3)


def executors(service: Service) -> list[dict[str, Any]]:
    (worker,) = service.get("/v1/workers")["workers"]
    found: list[dict[str, Any]] = worker["executors"]
    return found


@pytest.mark.timeout(600)
def test_an_executor_killed_in_mid_epoch_is_listed_as_lost_and_nothing_recovers(
    here: OnCluster, postgres_url: str
) -> None:
    """With a function and a lookup. The executors have no package of ours and no credentials."""
    here.write(400, BY_MINUTE, NAMED)
    with here.serving(postgres_url) as service:
        service.cli("create", "rides.sql", *here.flags)
        until(lambda: service.epoch("rides") >= 1, "it runs")
        until(lambda: len(executors(service)) == 2, "both executors are there")
        assert [each["state"] for each in executors(service)] == ["running"] * 2
        assert {each["host"] for each in executors(service)} == {"127.0.0.1", "127.0.0.2"}
        assert all(each["cores"] == 1 for each in executors(service))
        os.kill(here.hold(), signal.SIGKILL)
        until(lambda: bool(service.events("rides", "executor_lost")), "it says so")
        (worker,) = json.loads(service.cli("workers", "--json"))
        assert [each["state"] for each in worker["executors"]].count("lost") == 1
        metrics = httpx.get(f"{service.url}/metrics", timeout=30).text
        assert 'resurgence_executors{job="rides",state="lost"} 1.0' in metrics
        assert 'resurgence_executors_lost_total{job="rides"} 1.0' in metrics
        first = service.epoch("rides")
        here.go_on()
        until(lambda: service.state("rides") == "Finished", "it finishes")
        (lost,) = service.events("rides", "executor_lost")
        assert lost["epoch"] in (first, first + 1)
        assert lost["reason"]
        assert service.events("rides", "failure") == []
        assert service.events("rides", "incident") == []
        assert len(service.events("rides", "executor_added")) >= 3, "Spark started another one"
    here.assert_exactly_once()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_job_recovers_in_the_same_driver_and_is_rescaled_to_more_subtasks_than_executors(
    here: OnCluster, postgres_url: str
) -> None:
    here.write(800, BY_MINUTE, TOTALS)
    with here.serving(postgres_url) as service:
        fault = settings("faults=sink.staged@2=raise")
        service.cli("create", "rides.sql", *here.flags, *fault)
        until(lambda: service.epoch("rides") >= 3, "it recovers")
        (failure,) = service.events("rides", "failure")
        assert failure["kind"] == "task_failed"
        started = service.events("rides", "worker_started")
        assert [each["generation"] for each in started] == [1, 2]
        assert started[0]["pid"] == started[1]["pid"]
        service.cli("rescale", "rides", "5")
        until(lambda: service.state("rides") == "Finished", "it finishes")
        assert service.job("rides")["status"]["parallelism"] == 5
        assert len(service.events("rides", "failure")) == 1
    here.assert_exactly_once()


def restart_the_master_without_executors(here: OnCluster, _service: Service) -> None:
    """A restarted master does not know the application, and ends its executors."""
    here.cluster.kill_master()
    for executor in here.cluster.executors():
        os.kill(executor, signal.SIGKILL)
    here.cluster.start_master()


KILLS: dict[str, Callable[[OnCluster, Service], None]] = {
    "spark worker": lambda here, _: here.cluster.kill_worker_of(here.cluster.executors()[0]),
    "spark master": lambda here, _: here.cluster.kill_master(),
    "spark master, then restarted": restart_the_master_without_executors,
    "driver": lambda _, service: os.kill(
        int(service.job("rides")["status"]["worker_pid"]), signal.SIGKILL
    ),
}
RECOVERS = ("spark master, then restarted", "driver")
"""What a job cannot run on without: it recovers."""


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("what", KILLS)
def test_a_job_converges_after_the_sigkill_of(
    here: OnCluster, postgres_url: str, what: str
) -> None:
    here.write(800, BY_MINUTE, TOTALS)
    with here.serving(postgres_url) as service:
        # Without executors for three quarters of it, the driver registers anew.
        patience = settings("pipeline.start_timeout=60s")
        service.cli("create", "rides.sql", *here.flags, *patience)
        until(lambda: service.epoch("rides") >= 2, "it runs")
        here.hold()
        KILLS[what](here, service)
        time.sleep(1)
        here.go_on()
        until(lambda: service.state("rides") == "Finished", "it finishes")
        failures = service.events("rides", "failure")
        assert bool(failures) == (what in RECOVERS), failures
        assert all(each["resumed_at"] for each in service.events("rides", "incident"))
    here.assert_exactly_once()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_dynamic_allocation_releases_idle_executors(here: OnCluster, postgres_url: str) -> None:
    here.write(800, BY_MINUTE, TOTALS)
    dynamic = settings(
        "spark.dynamicAllocation.enabled=true",
        "spark.dynamicAllocation.shuffleTracking.enabled=true",
        "spark.dynamicAllocation.shuffleTracking.timeout=2s",
        "spark.dynamicAllocation.executorIdleTimeout=2s",
        "spark.dynamicAllocation.initialExecutors=2",
    )
    with here.serving(postgres_url) as service:
        service.cli("create", "rides.sql", "--parallelism", "1", *here.flags, *dynamic)
        until(lambda: service.epoch("rides") >= 2, "it runs")
        here.hold()

        until(
            lambda: "released" in {each["state"] for each in executors(service)},
            "the idle executor is released",
        )
        here.go_on()
        until(lambda: service.state("rides") == "Finished", "it finishes")
        assert service.events("rides", "failure") == []
        assert service.events("rides", "executor_lost") == []
    here.assert_exactly_once()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_speculative_tasks_leave_no_file_that_a_manifest_names_twice_or_retention_misses(
    here: OnCluster, s3_proxy: FaultyProxy
) -> None:
    """The server stores a state file and does not answer, so Spark runs a copy of the task."""
    here.write(800, BY_MINUTE, TOTALS)
    flags = (
        *here.flags,
        "--state-dir",
        f"{here.url}/state",
        *settings(
            "checkpoint.keep=2",
            "spark.speculation=true",
            "spark.speculation.interval=100ms",
            "spark.speculation.multiplier=1.1",
            "spark.speculation.quantile=0.5",
            "spark.speculation.minTaskRuntime=500ms",
        ),
    )
    faults = [Fault(Failure.SLOW_BODY, "CREATE", "/tables/") for _ in range(2)]
    s3_proxy.inject(faults[0])
    running = here.project.start(*flags)
    here.project.wait_for("committed", epoch=2)
    s3_proxy.inject(faults[1])
    here.project.wait_for("committed", epoch=4)
    running.send_signal(signal.SIGINT)
    assert running.wait(120) == 0
    assert [each.struck for each in faults] == [1, 1]
    state = ObjectStore(f"{here.url}/state")
    unnamed = _state_files(state) - _named_files(state)
    assert len(unnamed) >= 1, "no task ran twice"

    # Its first retention round lists what is stored.
    done = here.project.run(*flags)
    assert done.returncode == 0, done.stderr
    here.assert_exactly_once()
    assert here.project.events("failure") == []
    assert _state_files(state) & unnamed == set()


def _state_files(state: ObjectStore) -> set[str]:
    return {each.path for each in state.list("") if "/tables/" in each.path}


def _named_files(state: ObjectStore) -> set[str]:
    """The state files that checkpoints name, none of them twice."""
    found: set[str] = set()
    for record in (each.path for each in state.list("") if "/operator-" in each.path):
        names = [each for each in _strings(json.loads(state.read(record))) if "/tables/" in each]
        assert len(names) == len(set(names)), record
        found |= set(names)
    return found


def _strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for each in value.values() for text in _strings(each)]
    if isinstance(value, list):
        return [text for each in value for text in _strings(each)]
    return [value] if isinstance(value, str) else []


@pytest.mark.long
@pytest.mark.timeout(600)
def test_executors_that_cannot_run_our_tasks_are_a_clear_error_at_the_start(
    here: OnCluster,
) -> None:
    here.write(100, BY_MINUTE)
    bare = python_with(here.folder / "bare-python", "")
    packages = here.folder / "some-packages"
    packages.mkdir()
    for each in (here.cluster.python.parent / "packages").iterdir():
        if not each.name.startswith("obstore"):
            (packages / each.name).symlink_to(each.resolve())
    unfit = {
        "/nowhere/python3": "cannot run /nowhere/python3",
        str(bare): "lack the Python package",
        str(python_with(here.folder / "partial", str(packages))): "lack the Python package obstore",
    }
    for python, message in unfit.items():
        done = here.project.run(*here.flags, *settings(f"spark.pyspark.python={python}"))
        assert done.returncode == 1, done.stderr
        assert message in done.stderr
        assert "spark.pyspark.python" in done.stderr
        (failure,) = here.project.events("failure")
        assert (failure["domain"], failure["retry_hint"]) == ("user", "no_retry")
        (here.folder / "events.jsonl").unlink()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_cluster_without_room_for_an_executor_is_reported_in_time(here: OnCluster) -> None:
    here.write(100, BY_MINUTE)
    done = here.project.run(
        *here.flags,
        *settings(
            "spark.executor.memory=4g",
            "pipeline.start_timeout=80s",
            "pipeline.allowed_restarts=0",
        ),
    )
    assert done.returncode == 1
    assert "granted no executor within 60 s" in done.stderr
    (failure,) = here.project.events("failure")
    assert failure["domain"] == "external"
    assert "spark.executor.memory" in failure["hint"]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_core_cases_of_sql_give_the_batch_answer_on_a_cluster(spark_cluster: SparkCluster) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.sql.on_cluster", spark_cluster.master, spark_cluster.python],
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(120)
def test_a_master_that_is_unreachable_is_reported_at_once(project: Project) -> None:
    master = f"spark://127.0.0.1:{free_port()}"
    done = project.run(*settings(*QUICK, f"spark.master={master}", "pipeline.allowed_restarts=1"))
    assert done.returncode == 1
    assert f"cannot connect to the Spark master {master}" in done.stderr
    failures = project.events("failure")
    assert {each["domain"] for each in failures} == {"external"}
    assert {each["retry_hint"] for each in failures} == {"with_backoff"}
    assert "spark.master" in failures[0]["hint"]
