"""Dead letters end to end: real workers, real SIGKILL, the commands of a user."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.integration.conftest import QUICK, Project, settings

SQL = """
SET on_error = 'dead_letter';
CREATE TABLE rides (driver BIGINT, miles BIGINT)
WITH (connector = 'single_file', path = 'rides.json', type = 'source', bad_data = 'dead_letter');
CREATE TABLE prices (driver BIGINT, price DOUBLE)
WITH (connector = 'single_file', path = 'prices.json', type = 'sink');
INSERT INTO prices SELECT driver, 100 / miles AS price FROM rides;
"""
KILLS = (
    "sink.staged@2=kill",
    "sink.committed@3=kill",
    "sink.committing@4=kill",
)
"""Two epochs with dead letters, and the one that replays them."""


def resurgence(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "resurgence", *arguments],
        cwd=project.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def listed(project: Project) -> list[dict[str, Any]]:
    lines = resurgence(project, "dead-letters", "list", "--json").stdout.splitlines()
    return [json.loads(line) for line in lines]


def drivers(project: Project) -> list[int]:
    lines = (project.folder / "prices.json").read_text().splitlines()
    return sorted(json.loads(line)["driver"] for line in lines)


@pytest.mark.long  # In one process: tests/engine/epochs/test_dead_letter_recovery.py
@pytest.mark.timeout(400)
def test_dead_letters_and_their_replay_survive_kills_once_each(project: Project) -> None:
    (project.folder / "rides.sql").write_text(SQL)
    lines = [json.dumps({"driver": each, "miles": 1 + each % 5}) for each in range(30)]
    lines[12], lines[27] = json.dumps({"driver": 12, "miles": 0}), "{broken"
    (project.folder / "rides.json").write_text("\n".join(lines) + "\n")
    faults = settings(*QUICK, f"faults={','.join(KILLS)}")
    flags = ["--epoch-rows", "10", "--parallelism", "1", *faults]
    done = project.run(*flags)
    assert done.returncode == 0, done.stderr
    good = [each for each in range(30) if each not in (12, 27)]
    assert drivers(project) == good
    poison, broken = listed(project)
    assert (poison["epoch"], poison["raw"]) == (2, lines[12])
    assert "DIVIDE_BY_ZERO" in poison["error"]
    assert (broken["epoch"], broken["operator"], broken["raw"]) == (3, "source-rides", "{broken")
    assert broken["position"].endswith("rides.json, line 28")
    ledger = json.loads(resurgence(project, "ledger", "--json").stdout)
    assert (ledger["balances"], ledger["totals"]["dead_rows"]) == (True, {"source-rides": 2})

    poison["raw"] = json.dumps({"driver": 12, "miles": 2})
    (project.folder / "fixed.jsonl").write_text(json.dumps(poison) + "\n")
    answer = resurgence(project, "dead-letters", "replay", "--file", "fixed.jsonl")
    assert "1 dead letter to be read" in answer.stdout
    assert "the job has finished: start it again" in answer.stderr
    for _ in range(2):
        done = project.run(*flags)
        assert done.returncode == 0, done.stderr
        assert drivers(project) == sorted([*good, 12])
    assert [each["replayed"] for each in listed(project)] == [True, False]
    fired = len(project.events("failure"))
    assert fired == len(KILLS)
