"""Real processes: `resurgence run` as a user starts it, and the batch answer to compare it with."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.sql.changelog import merge

DEADLINE_SECONDS = 580.0
QUICK = ("pipeline.initial_backoff=50ms", "pipeline.maximal_backoff=200ms")

RIDES = """
CREATE TABLE rides (
  at TIMESTAMP NOT NULL, driver BIGINT, kind TEXT,
  WATERMARK FOR at AS at - INTERVAL '30 seconds'
) WITH (connector = 'single_file', path = 'rides.json', format = 'json', type = 'source');
"""
BY_MINUTE = """
CREATE TABLE by_minute (start TIMESTAMP, kind TEXT, rides BIGINT, mean DOUBLE)
WITH (connector = 'filesystem', path = 'out/by_minute', format = 'parquet', type = 'sink');

INSERT INTO by_minute SELECT window.start, kind, n, mean FROM (
  SELECT tumble(INTERVAL '10 minutes') AS window, kind, count(*) AS n, avg(driver) AS mean
  FROM rides GROUP BY window, kind);
"""
BY_DAY = """
CREATE TABLE by_day (start TIMESTAMP, driver BIGINT, rides BIGINT)
WITH (connector = 'single_file', path = 'out/by_day.json', format = 'json', type = 'sink');

INSERT INTO by_day SELECT window.start, driver, n FROM (
  SELECT tumble(INTERVAL '1 day') AS window, driver, count(*) AS n FROM rides GROUP BY window, driver);
"""
TOTALS = """
CREATE TABLE totals (driver BIGINT PRIMARY KEY, rides BIGINT, kinds TEXT)
WITH (connector = 'single_file', path = 'out/totals.json', format = 'debezium_json', type = 'sink');

INSERT INTO totals SELECT driver, count(*), array_join(sort_array(collect_set(kind)), '') FROM rides GROUP BY driver;
"""
SQL = RIDES + BY_MINUTE + BY_DAY


@dataclass
class Project:
    """A folder with a pipeline and its input, and the processes started in it."""

    folder: Path
    rows: int = 0
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def write_input(self, rows: int) -> None:
        rng = random.Random(rows)
        at = datetime(2024, 3, 1)
        with (self.folder / "rides.json").open("w") as file:
            for _ in range(rows):
                at += timedelta(seconds=rng.randint(0, 20))
                early = at - timedelta(seconds=rng.randint(0, 25))
                ride = {
                    "at": early.isoformat(),
                    "driver": rng.randint(1, 50),
                    "kind": rng.choice("ab"),
                }
                file.write(json.dumps(ride) + "\n")
        self.rows = rows

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """`resurgence run`, in a session of its own."""
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "resurgence",
                "run",
                "rides.sql",
                "--events",
                "events.jsonl",
                *arguments,
            ],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run to the end."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=DEADLINE_SECONDS)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        path = self.folder / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        found = [json.loads(line) for line in lines if line.endswith("}")]
        return [each for each in found if name is None or each["event"] == name]

    def wait_for(self, event: str, **facts: object) -> dict[str, Any]:
        """The first event that fits; fails when it does not come."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            for each in self.events(event):
                if all(each.get(name) == value for name, value in facts.items()):
                    return each
            time.sleep(0.05)
        pytest.fail(f"no event {event} with {facts} came; there were {self.events()}")

    def kill_at_new_files(self, running: subprocess.Popen[str], pattern: str, kills: int) -> None:
        """SIGKILL a worker each time a new file is found; then wait for the end of the run."""
        known: set[Path] = set()
        deadline = time.monotonic() + DEADLINE_SECONDS
        for number in range(kills):
            while not (found := {*self.folder.glob(pattern)} - known):
                assert time.monotonic() < deadline
                assert running.poll() is None
                time.sleep(0.005)
            known |= found
            os.kill(self.events("worker_started")[-1]["pid"], signal.SIGKILL)
            while len(self.events("worker_started")) < number + 2:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        _, errors = running.communicate(timeout=DEADLINE_SECONDS)
        assert running.returncode == 0, errors
        assert len(self.events("failure")) == kills

    def write_pipeline(self, job: str, sql: str) -> None:
        """A pipeline of the statements above as `JOB.sql`, with outputs of its own."""
        (self.folder / f"{job}.sql").write_text(sql.replace("out/", f"out/{job}/"))

    def assert_exactly_once(self, job: str = "") -> None:
        """Every sink of a pipeline holds the batch answer, row for row."""
        sql = (self.folder / f"{job or 'rides'}.sql").read_text()
        out = self.folder / "out" / job
        checks = {
            "by_minute": self._check_by_minute,
            "by_day": self._check_by_day,
            "totals": self._check_totals,
        }
        checked = [check(out) for name, check in checks.items() if f"INTO {name} " in sql]
        assert len(checked) == sql.count("INSERT INTO")

    def _check_by_minute(self, out: Path) -> None:
        assert rows_of(
            f"""SELECT start::TIMESTAMPTZ::TIMESTAMP, kind, rides, mean
                FROM '{out}/by_minute/*.parquet' ORDER BY ALL"""
        ) == rows_of(
            f"""SELECT time_bucket(INTERVAL 10 MINUTE, moment) AS start, kind, count(*), avg(driver)
                FROM {self._rides} GROUP BY ALL ORDER BY ALL"""
        )

    def _check_by_day(self, out: Path) -> None:
        lines = (out / "by_day.json").read_text().splitlines()
        assert sorted(
            (row["start"], row["driver"], row["rides"]) for row in map(json.loads, lines)
        ) == rows_of(
            f"""SELECT strftime(time_bucket(INTERVAL 1 DAY, moment), '%Y-%m-%dT%H:%M:%S') AS start, driver, count(*)
                FROM {self._rides} GROUP BY ALL ORDER BY ALL"""
        )

    def _check_totals(self, out: Path) -> None:
        """Also, no change retracts a row that is not there."""
        lines = merge((out / "totals.json").read_text().splitlines())
        assert sorted(
            (row["driver"], row["rides"], row["kinds"]) for row in map(json.loads, lines)
        ) == rows_of(
            f"""SELECT driver, count(*), string_agg(DISTINCT kind, '' ORDER BY kind)
                FROM {self._rides} GROUP BY driver ORDER BY ALL"""
        )

    @property
    def _rides(self) -> str:
        """The input, for DuckDB."""
        return f"(SELECT \"at\"::TIMESTAMP AS moment, driver, kind FROM read_json('{self.folder}/rides.json'))"

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


def rows_of(query: str) -> list[Any]:
    """What DuckDB answers."""
    return list(duckdb.execute(query).fetchall())


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    duckdb.execute("SET TimeZone = 'UTC'")
    made = Project(tmp_path)
    (tmp_path / "rides.sql").write_text(SQL)
    made.write_input(1000)
    yield made
    made.close()


def settings(*assignments: str) -> list[str]:
    """`--set` for each of them."""
    return [word for each in assignments for word in ("--set", each)]


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
