"""Recovery end to end: real workers, real SIGKILL, and the output compared with the batch answer."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from resurgence.control.jobs.transitions import EDGES, StateName
from resurgence.faults import FaultPoint
from tests.integration.conftest import (
    BY_MINUTE,
    QUICK,
    RIDES,
    TOTALS,
    Project,
    is_alive,
    settings,
)

KILLS = (
    "epoch.planned@2=kill",
    "epoch.read@2=kill",
    "state.partial@2=kill",
    "state.written@3=kill",
    "sink.staged@3=kill",
    "metadata.written@3=kill",
    "manifest.published@3=kill",
    "sink.committing@4=kill",
    "sink.between@5=kill",
    "sink.committed@5=kill",
    "restore.mid@6=kill",
    "compaction.mid@6=kill",
    "retention.mid@7=kill",
)
"""One for each fault point. A kill before the seal has the epoch run again, up to the next one."""


def assert_edges_are_legal(project: Project) -> None:
    for event in project.events("state"):
        assert StateName(event["to"]) in EDGES[StateName(event["from"])]


@pytest.mark.timeout(600)
def test_a_worker_killed_at_every_fault_point_recovers_exactly_once(
    project: Project, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path_factory.mktemp("t")
    monkeypatch.setenv("TMPDIR", str(temporary))
    (project.folder / "rides.sql").write_text(RIDES + BY_MINUTE + TOTALS)
    project.write_input(800)
    done = project.run(
        "--epoch-rows",
        "100",
        "--parallelism",
        "1",
        *settings(
            *QUICK, "checkpoint.keep=3", "checkpoint.compact_files=2", f"faults={','.join(KILLS)}"
        ),
    )
    assert done.returncode == 0, done.stderr
    project.assert_exactly_once()
    assert {each.partition("@")[0] for each in KILLS} == set(FaultPoint)
    failures = project.events("failure")
    assert [each["kind"] for each in failures] == ["worker_exited"] * len(KILLS)
    incidents = project.events("incident")
    assert sum(each["attempts"] for each in incidents) == len(KILLS)
    assert all(each["resumed_at"] and each["phases"]["restore"] > 0 for each in incidents)
    assert all(each["restored_epoch"] >= 1 for each in incidents)
    assert len(project.events("worker_started")) == len(KILLS) + 1
    assert_edges_are_legal(project)
    assert not list(temporary.iterdir()), "killed workers leave no temporary files behind"


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_raised_a_hung_and_a_frozen_worker_are_each_detected_and_recovered(
    project: Project,
) -> None:
    (project.folder / "rides.sql").write_text(RIDES + BY_MINUTE)
    faults = "state.partial@2=raise,sink.staged@3=hang,epoch.read@4=freeze"
    done = project.run(
        "--epoch-rows",
        "200",
        *settings(
            *QUICK,
            "pipeline.heartbeat_interval=200ms",
            "pipeline.heartbeat_timeout=4s",
            "pipeline.epoch_timeout=25s",
            f"faults={faults}",
        ),
    )
    assert done.returncode == 0, done.stderr
    project.assert_exactly_once()
    raised, hung, frozen = project.events("failure")
    assert (raised["kind"], raised["subtask"]) == ("task_failed", 0)
    assert raised["operator_id"].startswith("window-")
    assert hung["kind"] == "progress_stalled"
    assert frozen["kind"] == "worker_timedout"
    assert len(project.events("incident")) == 3


@pytest.mark.timeout(400)
def test_a_job_resumes_exactly_once_after_a_killed_controller_an_interrupt_and_rescaling(
    project: Project,
) -> None:
    arguments = ("--epoch-rows", "100", *settings(*QUICK))
    first = project.start("--parallelism", "1", *arguments)
    worker = project.wait_for("worker_started")["pid"]
    project.wait_for("committed", epoch=2)
    first.kill()
    first.wait(10)
    deadline = time.monotonic() + 5
    while is_alive(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(worker), "a worker without a controller must end"

    second = project.start("--parallelism", "3", *arguments)
    project.wait_for("worker_started", generation=2)
    project.wait_for("failure", kind="controller_lost")
    resumed = project.wait_for("incident", kind="controller_lost")
    os.kill(second.pid, signal.SIGINT)
    _, err = second.communicate(timeout=60)
    assert second.returncode == 0, err
    assert project.events("state")[-1]["to"] == "Stopped"
    assert resumed["restored_epoch"] >= 2

    done = project.run("--parallelism", "2", *arguments)
    assert done.returncode == 0, done.stderr
    assert project.events("state")[-1]["to"] == "Finished"
    project.assert_exactly_once()

    again = project.run(*arguments)
    assert again.returncode == 0
    project.assert_exactly_once()


@pytest.mark.timeout(400)
def test_a_flipped_bit_in_a_state_file_causes_a_fallback_and_is_reported(project: Project) -> None:
    arguments = ("--epoch-rows", "100", *settings(*QUICK))
    stopped = project.start(*arguments)
    project.wait_for("committed", epoch=3)
    os.kill(stopped.pid, signal.SIGINT)
    stopped.communicate(timeout=60)
    newest = newest_state_file(project.folder / ".resurgence")
    data = bytearray(newest.read_bytes())
    data[len(data) // 3] ^= 0xFF
    newest.write_bytes(bytes(data))

    done = project.run(*arguments)
    assert done.returncode == 0, done.stderr
    project.assert_exactly_once()
    assert newest.name in project.events("failure")[-1]["error"]
    fallbacks = project.events("fallback")
    assert fallbacks
    assert all(newest.name in reason for each in fallbacks for reason in each["reasons"])
    replayed = project.events("replay_started")
    first, last = replayed[-1]["first"], replayed[-1]["last"]
    assert [each["epoch"] for each in replayed if each["first"] == first] == [
        *range(first, last + 1)
    ]
    assert f"replaying epoch {last}" in done.stderr


def newest_state_file(state_dir: Path) -> Path:
    """The newest file of the table whose window stays open to the end."""
    tables = {path.parent: path for path in state_dir.glob("rides/tables/*/partials/*.parquet")}
    most = max(tables, key=lambda folder: len(list(folder.iterdir())))
    return max(most.iterdir(), key=lambda path: int(path.name.split("-")[0]))
