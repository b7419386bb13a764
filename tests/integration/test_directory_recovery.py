"""`resurgence run` over a folder: workers are killed, and the output is the batch answer."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.integration.conftest import QUICK, Project, rows_of, settings

SQL = """
CREATE TABLE rides (
  id BIGINT NOT NULL, at TIMESTAMP NOT NULL, kind TEXT, day DATE,
  WATERMARK FOR at AS at - INTERVAL '20 seconds'
) WITH (
  connector = 'filesystem', path = 'in/**/*.json*', format = 'json', type = 'source',
  'partitioning.fields' = 'day', 'source.epoch_files' = '4', 'source.stop_at' = 'latest'{more}
);
CREATE TABLE totals (start TIMESTAMP, kind TEXT, day DATE, n BIGINT, ids BIGINT)
WITH (connector = 'filesystem', path = 'out', format = 'parquet', type = 'sink');

INSERT INTO totals SELECT window.start, kind, day, n, ids FROM (
  SELECT tumble(INTERVAL '10 seconds') AS window, kind, day, count(*) AS n, sum(id) AS ids
  FROM rides GROUP BY window, kind, day);
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project(tmp_path)
    yield project
    project.close()


def write_files(folder: Path, files: int, rows: int) -> int:
    """Files in the order of event time, by name and by modified time; returns the rows."""
    rng, at, number = random.Random(7), datetime(2024, 3, 1, 23, 50), 0
    for place in range(files):
        day = at.date().isoformat()
        path = folder / f"day={day}" / f"{place:03}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            for _ in range(rows * (8 if place == 5 else 1)):
                number += 1
                at += timedelta(seconds=rng.random())
                moment = at - timedelta(seconds=rng.uniform(0, 15))
                row = {"id": number, "at": moment.isoformat(), "kind": rng.choice("ab")}
                file.write(json.dumps(row) + "\n")
        os.utime(path, (1_700_000_000 + place, 1_700_000_000 + place))
    return number


@pytest.mark.long  # With all systems in one killed run: tests/kafka/test_several_sinks.py
@pytest.mark.timeout(900)
@pytest.mark.parametrize("more", ["", ", 'source.order' = 'modified'"])
def test_killed_workers_over_a_folder_give_the_batch_answer(project: Project, more: str) -> None:
    rows = write_files(project.folder / "in", files=25, rows=60)
    (project.folder / "rides.sql").write_text(SQL.format(more=more))
    faults = "epoch.read@2=kill,sink.committed@3=kill"
    process = project.start(
        *("--epoch-rows", "200", "--name", "folder"), *settings(*QUICK, f"faults={faults}")
    )
    project.wait_for("committed", epoch=4)
    os.kill(project.events("worker_started")[-1]["pid"], signal.SIGKILL)
    _, errors = process.communicate(timeout=800)
    assert process.returncode == 0, errors
    assert [each["kind"] for each in project.events("failure")] == ["worker_exited"] * 3
    checkpoints = {each["epoch"]: each for each in project.events("checkpoint")}
    assert sum(each["rows"] for each in checkpoints.values()) == rows
    assert sum(each["late"] for each in checkpoints.values()) == 0
    found = rows_of(
        f"""SELECT start::TIMESTAMPTZ::TIMESTAMP, kind, day, n, ids
            FROM '{project.folder}/out/*.parquet' ORDER BY ALL"""
    )
    assert found == rows_of(
        f"""SELECT time_bucket(INTERVAL 10 SECOND, "at"::TIMESTAMP), kind, day, count(*), sum(id)
            FROM read_json('{project.folder}/in/*/*.json', hive_partitioning = true)
            GROUP BY ALL ORDER BY ALL"""
    )
