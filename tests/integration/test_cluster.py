"""Jobs on a real Spark cluster: two executors in processes of their own, SIGKILL to each part of
it, and the output held against the batch answer.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resurgence.state.paths import state_file_epoch
from tests.integration.conftest import (
    BY_MINUTE,
    DEADLINE_SECONDS,
    QUICK,
    RIDES,
    TOTALS,
    Project,
    rows_of,
    settings,
)
from tests.integration.test_service import Service, free_port, serving
from tests.spark_cluster import SparkCluster, python_with, spark_cluster

__all__ = ["spark_cluster"]

DRIVERS = 50
FUNCTIONS = """
import os
import time
from pathlib import Path

from resurgence import udf

FOLDER = Path({folder!r})


@udf
def ready(driver: int) -> bool:
    '''True; but not while there is a file that says to hold.'''
    deadline = time.monotonic() + 120
    while (FOLDER / "hold").exists() and time.monotonic() < deadline:
        (FOLDER / f"held-{{os.getpid()}}").touch()
        time.sleep(0.05)
    return True
"""
GUARDED = BY_MINUTE.replace("FROM rides GROUP", "FROM rides WHERE ready(driver) GROUP")
NAMED = """
CREATE TEMPORARY TABLE drivers (driver BIGINT PRIMARY KEY, name TEXT)
WITH (connector = 'filesystem', path = 'drivers', format = 'parquet');
CREATE TABLE named (at TIMESTAMP, name TEXT)
WITH (connector = 'filesystem', path = 'out/named', format = 'parquet', type = 'sink');

INSERT INTO named SELECT at, name FROM rides JOIN drivers ON rides.driver = drivers.driver;
"""


@dataclass
class OnCluster:
    """A project whose jobs run on a cluster."""

    project: Project
    cluster: SparkCluster

    @property
    def folder(self) -> Path:
        return self.project.folder

    @property
    def flags(self) -> list[str]:
        return [
            "--udfs",
            "functions.py",
            *settings(*QUICK, "pipeline.heartbeat_interval=300ms", *self.cluster.settings),
        ]

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

    def assert_named(self) -> None:
        found = rows_of(
            f"SELECT name, count(*) FROM '{self.folder}/out/named/*.parquet' GROUP BY 1"
        )
        expected = rows_of(
            f"SELECT 'driver ' || driver, count(*) FROM read_json('{self.folder}/rides.json')"
            " GROUP BY 1"
        )
        assert sorted(found) == sorted(expected)


@pytest.fixture
def here(project: Project, spark_cluster: SparkCluster) -> OnCluster:
    folder = project.folder
    (folder / "functions.py").write_text(FUNCTIONS.format(folder=str(folder)))
    (folder / "drivers").mkdir()
    numbers = list(range(1, DRIVERS + 1))
    names = pa.table({"driver": numbers, "name": [f"driver {each}" for each in numbers]})
    pq.write_table(names, folder / "drivers/drivers.parquet")
    (folder / "rides.sql").write_text(RIDES + GUARDED + TOTALS)
    return OnCluster(project, spark_cluster)


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
    here: OnCluster,
) -> None:
    """With a function and a lookup; then with more subtasks than executors. The executors' Python
    has no package of ours.
    """
    here.project.write_input(800)
    (here.folder / "rides.sql").write_text(RIDES + GUARDED)
    (here.folder / "named.sql").write_text(RIDES + GUARDED + NAMED)
    with serving(here.folder) as service:
        service.cli("create", "named.sql", *here.flags, *settings("pipeline.epoch_rows=100"))
        until(lambda: service.epoch("named") >= 2, "it runs")
        until(lambda: len(executors(service)) == 2, "both executors are there")
        assert [each["state"] for each in executors(service)] == ["running"] * 2
        assert {each["host"] for each in executors(service)} == {"127.0.0.1"}
        assert all(each["cores"] == 1 for each in executors(service))
        os.kill(here.hold(), signal.SIGKILL)
        until(lambda: bool(service.events("named", "executor_lost")), "it says so")
        (worker,) = json.loads(service.cli("workers", "--json"))
        assert [each["state"] for each in worker["executors"]].count("lost") == 1
        metrics = httpx.get(f"{service.url}/metrics").text
        assert 'resurgence_executors{job="named",state="lost"} 1.0' in metrics
        assert 'resurgence_executors_lost_total{job="named"} 1.0' in metrics
        first = service.epoch("named")
        here.go_on()
        until(lambda: service.epoch("named") > first, "it goes on")
        service.cli("rescale", "named", "5")
        until(lambda: service.state("named") == "Finished", "it finishes")
        (lost,) = service.events("named", "executor_lost")
        assert lost["epoch"] in (first, first + 1)
        assert lost["reason"]
        assert service.events("named", "failure") == []
        assert service.events("named", "incident") == []
        assert len(service.events("named", "executor_added")) >= 3, "Spark started another one"
    here.project.assert_exactly_once()
    here.assert_named()


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
def test_a_job_converges_after_the_sigkill_of(here: OnCluster, what: str) -> None:
    here.project.write_input(1500)
    with serving(here.folder) as service:
        # Without executors for three quarters of it, the driver registers anew.
        patience = settings("pipeline.epoch_rows=100", "pipeline.start_timeout=40s")
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
    here.project.assert_exactly_once()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_dynamic_allocation_releases_idle_executors(here: OnCluster) -> None:
    here.project.write_input(1500)
    dynamic = settings(
        "pipeline.epoch_rows=100",
        "spark.dynamicAllocation.enabled=true",
        "spark.dynamicAllocation.shuffleTracking.enabled=true",
        "spark.dynamicAllocation.shuffleTracking.timeout=2s",
        "spark.dynamicAllocation.executorIdleTimeout=2s",
        "spark.dynamicAllocation.initialExecutors=2",
    )
    with serving(here.folder) as service:
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
    here.project.assert_exactly_once()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_speculative_tasks_leave_no_file_that_a_manifest_names_twice_or_retention_misses(
    here: OnCluster,
) -> None:
    """One of two tasks is slow in every epoch, so Spark runs a copy of it."""
    slow = FUNCTIONS.replace(
        "    deadline =",
        "    from pyspark import TaskContext\n"
        "    context = TaskContext.get()\n"
        "    if context.partitionId() == 0 and context.attemptNumber() == 0:\n"
        "        (FOLDER / f'slow-{{context.taskAttemptId()}}').touch()\n"
        "        time.sleep(0.1)\n"
        "    deadline =",
    )
    (here.folder / "functions.py").write_text(slow.format(folder=str(here.folder)))
    here.project.write_input(600)
    done = here.project.run(
        *here.flags,
        "--state-dir",
        "state",
        *settings(
            "pipeline.epoch_rows=100",
            "checkpoint.keep=2",
            "spark.speculation=true",
            "spark.speculation.interval=100ms",
            "spark.speculation.multiplier=1.1",
            "spark.speculation.quantile=0.1",
            "spark.speculation.minTaskRuntime=500ms",
        ),
    )
    assert done.returncode == 0, done.stderr
    here.project.assert_exactly_once()
    assert here.project.events("failure") == []
    state = here.folder / "state"
    files = [path for path in state.rglob("*.parquet") if "tables" in path.parts]
    assert files
    for manifest in state.rglob("*.json"):
        named = [each for each in _strings(json.loads(manifest.read_text())) if "/tables/" in each]
        assert len(named) == len(set(named)), manifest
    assert all(state_file_epoch(str(path.relative_to(state))) is not None for path in files)


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
    done = here.project.run(
        *here.flags,
        *settings(
            "spark.executor.memory=4g",
            "pipeline.start_timeout=24s",
            "pipeline.allowed_restarts=0",
        ),
    )
    assert done.returncode == 1
    assert "granted no executor within 18 s" in done.stderr
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
