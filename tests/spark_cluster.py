"""A real Spark cluster on loopback: one standalone master and two Spark workers of one core, each a
process of its own with its own work directory, started through Spark's own classes.

Its executors run a Python that has what Resurgence depends on, but not Resurgence itself, as a
plain image would. Everything ends with the test.
"""

from __future__ import annotations

import json
import os
import re
import site
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from resurgence.engine.spark.java import JAVA_OPTIONS, class_path, find_java, spark_home

_DEADLINE = 180.0
_MASTER_ADDRESS = re.compile(r"Starting Spark master at (spark://\S+)")
_MASTER_PAGE = re.compile(r"MasterWebUI .*started at (http://\S+)")
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_WORKERS = 2
_END_WITH_MY_INPUT = 'read -r _; kill -s KILL -- "-$0"'
"""Ends a process with its children, however this process ends: its input closes then."""
_OWN = re.compile(r"resurgence|__editable__.*resurgence|_resurgence", re.IGNORECASE)


class SparkCluster:
    """A master and its workers. Each can be killed; the master can be started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []
        self._guards: list[subprocess.Popen[bytes]] = []
        self._page = ""
        self.master = ""
        self.python = _python_without_us(folder / "image")

    @property
    def settings(self) -> tuple[str, ...]:
        """The settings of a job that runs here."""
        return (
            f"spark.master={self.master}",
            f"spark.pyspark.python={self.python}",
            "spark.executor.memory=512m",
            "spark.driver.memory=1g",
        )

    def start(self) -> None:
        self.start_master()
        for _ in range(_WORKERS):
            self.add_worker()
        self.until(lambda: self.alive_workers() == _WORKERS, "the workers register")

    def start_master(self) -> None:
        """Start the master, again at the same address if it had one."""
        port = self.master.rpartition(":")[2] or "0"
        log = self._folder / f"master-{time.monotonic_ns()}.log"
        arguments = ("--host", "127.0.0.1", "--port", port, "--webui-port", "0")
        self._master = self._spawn("org.apache.spark.deploy.master.Master", arguments, log)

        def is_up() -> bool:
            text = log.read_text(errors="replace")
            address, page = _MASTER_ADDRESS.search(text), _MASTER_PAGE.search(text)
            if address and page:
                self.master, self._page = address[1].rstrip("."), page[1].rstrip(".")
            return bool(address and page)

        self.until(is_up, f"the master starts; see {log}")

    def add_worker(self) -> None:
        """Start one at a loopback address of its own, for Spark a host of its own: it would not run
        a speculative copy of a task on the same one.
        """
        number = len(self._workers)
        folder, host = self._folder / f"worker-{number}", f"127.0.0.{number + 1}"
        folder.mkdir()
        arguments = ("--host", host, "--webui-port", "0", "--cores", "1", "--memory", "1g")
        self._workers.append(
            self._spawn(
                "org.apache.spark.deploy.worker.Worker",
                (*arguments, "--work-dir", str(folder), self.master),
                folder / "worker.log",
                {"SPARK_LOCAL_DIRS": str(folder), "SPARK_LOCAL_IP": host},
            )
        )

    def _spawn(
        self,
        kind: str,
        arguments: tuple[str, ...],
        log: Path,
        variables: dict[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        java = find_java().executable
        inherited = ("PATH", "HOME", "JDK_JAVA_OPTIONS", "LANG", "TMPDIR")
        environment = {name: os.environ[name] for name in inherited if name in os.environ}
        environment |= {
            "JAVA_HOME": str(Path(java).resolve().parent.parent),
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            # Spark would look for it in folders that only its source tree has.
            "SPARK_SCALA_VERSION": "2.13",
            **(variables or {}),
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [java, "-Xmx256m", *JAVA_OPTIONS, *class_path(), kind, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )
        guard = ["sh", "-c", _END_WITH_MY_INPUT, str(process.pid)]
        self._guards.append(
            subprocess.Popen(guard, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        )
        return process

    # ---------------------------------------------------------------- what runs

    def status(self) -> dict[str, Any]:
        """What the master says about itself."""
        with urllib.request.urlopen(f"{self._page}/json/", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def alive_workers(self) -> int:
        return int(self.status()["aliveworkers"])

    def executors(self) -> list[int]:
        """The process ids of all executors."""
        parents = {each.pid for each in self._workers}
        return [
            pid for pid in _processes() if _EXECUTOR in _command(pid) and _parent(pid) in parents
        ]

    def executor_of(self, pid: int) -> int:
        """The process id of the executor that a Python process of a task belongs to."""
        while _EXECUTOR not in _command(pid):
            pid = _parent(pid)
            assert pid > 1, "it is not the process of a task"
        return pid

    # ---------------------------------------------------------------- what ends

    def kill_master(self) -> None:
        assert self._master is not None
        self._master.kill()
        self._master.wait(10)

    def kill_worker_of(self, executor: int) -> None:
        """Kill the Spark worker that started an executor, and nothing else."""
        worker = next(each for each in self._workers if each.pid == _parent(executor))
        worker.kill()
        worker.wait(10)

    def close(self) -> None:
        for guard in self._guards:
            assert guard.stdin is not None
            guard.stdin.close()
            guard.wait(10)
        for process in (*self._workers, self._master):
            if process is not None:
                process.wait(10)

    def until(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + _DEADLINE
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"it did not come to this: {what}")
            time.sleep(0.1)


def _python_without_us(folder: Path) -> Path:
    """A Python with all installed packages except this one."""
    packages = folder / "packages"
    packages.mkdir(parents=True)
    for installed in map(Path, site.getsitepackages()):
        for each in installed.iterdir():
            if not _OWN.match(each.name) and each.suffix != ".pth":
                (packages / each.name).symlink_to(each)
    return python_with(folder / "python", str(packages))


def python_with(script: Path, path: str, executable: str = "") -> Path:
    """A script that runs a Python with this on its path."""
    program = executable or getattr(sys, "_base_executable", sys.executable)
    script.write_text(f'#!/bin/sh\nexport PYTHONPATH="$PYTHONPATH:{path}"\nexec "{program}" "$@"\n')
    script.chmod(0o755)
    return script


def _processes() -> list[int]:
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


@pytest.fixture
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    cluster = SparkCluster(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
