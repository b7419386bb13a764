"""The commands for jobs, against a real server with a simulated controller."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.unit.api.simulated_service import SQL, KeyBox, SimulatedController, served, simulated
from tests.unit.cli.conftest import Answer
from typer.testing import CliRunner

from resurgence.cli.app import app
from resurgence.control.store.metadata import KeyRole
from resurgence.engine.spark.executors import Executor, ExecutorState
from resurgence.errors import IncompatibleState, StorageError
from resurgence.ids import Epoch, JobName

Run = Callable[..., Answer]
RIDES = JobName("rides")


def run_command(*arguments: str, **environment: str) -> Answer:
    done = CliRunner().invoke(app, list(arguments), env=environment)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert "Traceback" not in done.output
    return Answer(done.exit_code, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[str, SimulatedController]]:
    controller = SimulatedController(Path())
    with served(simulated(controller), KeyBox([])) as url:
        yield url, controller


@pytest.fixture
def controller(shared: tuple[str, SimulatedController], tmp_path: Path) -> SimulatedController:
    shared[1].begin_anew(tmp_path)
    return shared[1]


@pytest.fixture
def run(shared: tuple[str, SimulatedController], controller: SimulatedController) -> Run:
    """Runs a command that speaks to the service."""
    return lambda *arguments: run_command(*arguments, RESURGENCE_SERVER=shared[0])


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "rides.sql"
    path.write_text(SQL)
    return str(path)


@pytest.fixture
def rides(run: Run, file: str) -> str:
    assert run("create", file).status == 0
    return "rides"


def test_create_takes_name_settings_and_functions(
    run: Run, controller: SimulatedController, file: str, tmp_path: Path
) -> None:
    functions = tmp_path / "more.py"
    functions.write_text("# none yet\n")
    done = run(
        *("create", file, "--name", "other", "--parallelism", "4", "--stopped"),
        *("--set", "pipeline.epoch_rows=5", "--udfs", str(functions)),
    )
    assert (done.status, done.out) == (0, "other: created; state Stopped, desired stopped\n")
    record = controller.records[JobName("other")]
    assert record.pipeline.settings == {
        "pipeline.epoch_rows": "5",
        "pipeline.parallelism": "4",
    }
    assert record.pipeline.functions == "# none yet\n"


def test_create_reports_the_position_of_a_sql_error(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.sql"
    path.write_text("SELECT 1;\nSELEC 2;")
    done = run("create", str(path))
    assert done.status == 2
    assert f"{path}:2:1: " in done.err
    assert "hint:" in done.err


def test_user_errors_exit_2(run: Run, file: str, rides: str) -> None:
    assert "there is a job 'rides' already" in run("create", file).err
    for arguments in (
        ("create", file),
        ("create", file, "--name", "../x"),
        ("create", file, "--name", "y", "--set", "pipeline.none=1"),
        ("create", file, "--name", "y", "--set", "nonsense"),
        ("show", "none"),
        ("show", "a/b"),
        ("rescale", "rides", "65"),
        ("list", "--server", "nonsense"),
        ("list", "--server", "ftp://x"),
        ("list", "--api-key-file", "/nowhere/key"),
    ):
        done = run(*arguments)
        assert done.status == 2, arguments
        assert done.err


def test_no_service_is_one_clear_message(run: Run) -> None:
    done = run("list", "--server", "http://127.0.0.1:9")
    assert done.status == 2
    assert done.err.splitlines() == [
        "error: cannot connect to a service at http://127.0.0.1:9",
        "hint: Start one with `resurgence serve`, or name its address with --server.",
    ]


def test_a_failing_service_exits_1(run: Run, controller: SimulatedController) -> None:
    controller.failing = StorageError("the database fails", hint="wait")
    done = run("list")
    assert (done.status, done.err) == (1, "error: the database fails\nhint: wait\n")


def test_list_is_a_table(run: Run, rides: str) -> None:
    header, line = run("list").out.splitlines()
    assert header.split()[:4] == ["job", "state", "desired", "parallelism"]
    assert line.split()[:6] == ["rides", "Created", "running", "2", "7", "12,000"]
    listed = json.loads(run("list", "--json").out)
    assert listed[0]["name"] == "rides"


def test_list_of_nothing_says_so(run: Run) -> None:
    assert run("list").out == "there are no jobs\n"
    assert run("workers").out == "there are no workers\n"
    assert run("incidents").out == "there are no incidents\n"


def test_show_prints_all_fields(run: Run, rides: str) -> None:
    done = run("show", "rides")
    assert done.out.startswith("rides: Running, desired running\n")
    assert "  worker       pid 4711\n" in done.out
    assert "progress\n  epoch    7\n  rows_in  12000\n" in done.out
    assert done.out.endswith(SQL.rstrip() + "\n")
    assert json.loads(run("show", "rides", "--json").out)["pipeline"]["sql"] == SQL


def test_show_lists_the_lag_of_partitions(
    run: Run, controller: SimulatedController, rides: str
) -> None:
    partitions: JsonValue = [
        {"table": "rides", "partition": "rides/1", "rows": 1200, "seconds": 3.25},
        {"table": "rides", "partition": "rides/0", "rows": 0, "seconds": None},
    ]
    controller.progress = {"lag": {"rows": 1200, "seconds": 3.25, "partitions": partitions}}
    shown = run("show", "rides").out
    assert "  lag      1,200 rows, 3.2 s\n" in shown
    assert "lag\n  table  partition   rows  seconds\n  rides  rides/1    1,200     3.25\n" in shown
    assert json.loads(run("show", "rides", "--json").out)["progress"] == {
        "epoch": 7,
        "rows_in": 12_000,
        **controller.progress,
    }


def test_edit_replaces_the_pipeline(
    run: Run, controller: SimulatedController, file: str, rides: str
) -> None:
    Path(file).write_text(SQL + "-- edited\n")
    done = run("edit", "rides", file, "--accept-state-loss")
    assert (done.status, done.out) == (0, "rides: edited; state Created, desired running\n")
    record = controller.records[RIDES]
    assert record.pipeline.sql.endswith("-- edited\n")
    assert record.pipeline.settings == {"checkpoint.accept_state_loss": "true"}


def test_edit_shows_the_state_that_would_be_lost(
    run: Run, controller: SimulatedController, file: str, rides: str
) -> None:
    table = "would lose state:\n  window-7f  drop  held 5 rows (LOST)"
    controller.failing = IncompatibleState(table, hint="Undo it.")
    done = run("edit", "rides", file)
    assert (done.status, done.out) == (2, "")
    assert done.err == f"error: {table}\nhint: Undo it.\n"


def test_rollback_shows_its_preview_and_asks_for_confirmation(
    run: Run, controller: SimulatedController, rides: str
) -> None:
    reported = (
        "rollback to epoch 3: epochs 4 to 7 are undone, with 1,200 rows of output\n"
        "sink     rows  effect\n"
        "hourly  1,200  retracts them\n"
        "source        rows read again  from\n"
        "source-rides            5,000  line 40\n"
    )
    dry = run("rollback", "rides", "--to-epoch", "3", "--dry-run")
    assert (dry.status, dry.out) == (0, f"{reported}nothing was changed\n")
    assert controller.records[RIDES].desired.reset_run == 0
    done = run("rollback", "rides", "--to-epoch", "3")
    assert done.out == f"{reported}rides: rollback to epoch 3; state Created, desired running\n"
    assert controller.records[RIDES].desired.reset_epoch == 3


def test_rollback_names_the_epochs_that_only_sinks_have_recorded(
    run: Run, controller: SimulatedController, rides: str
) -> None:
    controller.held = Epoch(9)
    dry = run("rollback", "rides", "--to-epoch", "3", "--dry-run")
    assert (
        "epochs up to 9, which only the sinks have recorded, are retracted, too"
        in dry.out.splitlines()
    )


def test_rollback_with_duplicates_has_to_be_accepted(
    run: Run, controller: SimulatedController, rides: str
) -> None:
    controller.sinks_retract = False
    refused = run("rollback", "rides", "--to-epoch", "3")
    assert refused.status == 2
    assert "hourly cannot retract committed output" in refused.err
    assert run("rollback", "rides", "--to-epoch", "3", "--accept-duplicates").status == 0
    assert run("rollback", "rides", "--to-epoch", "3", "--name", "rides").status == 2


def test_stop_waits_until_the_job_has_stopped(run: Run, rides: str) -> None:
    done = run("stop", "rides", "--mode", "force", "--wait")
    assert (done.status, done.out) == (0, "rides: stop (force); state Stopped, desired stopped\n")


def test_stop_does_not_wait_forever(run: Run, controller: SimulatedController, rides: str) -> None:
    controller.is_stuck = True
    done = run("stop", "rides", "--wait", "--timeout", "1")
    assert done.status == 1
    assert "is still Created after 1 s" in done.err


def test_start_restart_and_rescale(run: Run, controller: SimulatedController, rides: str) -> None:
    run("stop", "rides", "--wait")
    assert "desired running" in run("start", "rides").out
    assert run("restart", "rides", "--force", "--without-state").status == 0
    desired = controller.records[RIDES].desired
    assert (desired.run, desired.force, desired.reset_run) == (3, True, 3)
    assert json.loads(run("rescale", "rides", "8", "--json").out)["desired"]["parallelism"] == 8


def test_delete_asks_for_confirmation(
    run: Run, controller: SimulatedController, rides: str
) -> None:
    done = run("delete", "rides")
    assert done.status == 2
    assert "--yes" in done.err
    assert not controller.records[RIDES].desired.delete_state
    done = run("delete", "rides", "--with-state", "--yes")
    assert (done.status, done.out) == (0, "rides: delete; state Running, desired deleted\n")
    assert controller.records[RIDES].desired.delete_state


def test_events_are_lines_for_people_or_json(
    run: Run, controller: SimulatedController, rides: str
) -> None:
    controller.happened(RIDES, "committed", epoch=1)
    done = run("events", "rides")
    assert done.out.splitlines() == [
        "2030-01-01T00:00:00.000+00:00 none -> Created: created",
        "2030-01-01T00:00:00.000+00:00 committed",
    ]
    (line,) = run("events", "rides", "--after", "1", "--json").out.splitlines()
    assert json.loads(line)["epoch"] == 1


def test_incidents_are_a_table(run: Run, controller: SimulatedController, rides: str) -> None:
    controller.reported = [
        {
            "job": "rides",
            "detected_at": "2030-01-01T00:00:00+00:00",
            "resumed_at": "2030-01-01T00:00:03+00:00",
            "kind": "worker_exited",
            "domain": "external",
            "restored_epoch": 6,
            "replayed_rows": 1000,
            "reason": "killed",
            "phases": {"detect": 0.5, "restore": 2.0},
        },
        {"job": "b", "kind": "worker_timedout", "resumed_at": None},
    ]
    lines = run("incidents").out.splitlines()
    assert lines[1].split() == [
        *("rides", "2030-01-01T00:00:00+00:00", "worker_exited", "external", "6", "1,000"),
        *("2.5", "s", "killed"),
    ]
    assert "ongoing" in lines[2]
    assert len(run("incidents", "rides").out.splitlines()) == 2


def test_workers_are_a_table(run: Run, rides: str) -> None:
    run("show", "rides")
    line = run("workers").out.splitlines()[1]
    assert line.split()[:6] == ["w1", "rides", "running", "execute", "4711", "1"]


def test_executors_of_a_cluster_are_a_second_table(
    run: Run, controller: SimulatedController, rides: str
) -> None:
    controller.executors = (
        Executor(
            id="1",
            host="10.0.0.7",
            cores=4,
            state=ExecutorState.LOST,
            active_tasks=0,
            completed_tasks=90,
            failed_tasks=2,
            added_at=datetime(2026, 11, 17, tzinfo=UTC),
            reason="Command exited with code 137",
        ),
    )
    run("show", "rides")
    line = run("workers").out.splitlines()[-1]
    assert line.split()[:8] == ["w1", "1", "10.0.0.7", "4", "lost", "0", "90", "2"]
    assert line.endswith("Command exited with code 137")
    (worker,) = json.loads(run("workers", "--json").out)
    assert [each["state"] for each in worker["executors"]] == ["lost"]


def test_logs_are_the_end_of_the_newest(
    run: Run, controller: SimulatedController, rides: str, tmp_path: Path
) -> None:
    assert run("logs", "rides").out == ""
    log = tmp_path / "w1.log"
    log.write_text("one\ntwo\n")
    controller.logs[RIDES] = [log]
    assert run("logs", "rides").out == "one\ntwo\n"
    assert run("logs", "rides", "--lines", "1").out == "two\n"


def test_a_key_comes_from_the_environment_or_a_file(tmp_path: Path) -> None:
    keys = KeyBox([])
    text = keys.add("reader", KeyRole.READ)
    path = tmp_path / "key"
    path.write_text(text + "\n")
    with served(simulated(SimulatedController(tmp_path)), keys) as url:
        without = run_command("list", "--server", url)
        assert without.status == 2
        assert "an API key is required" in without.err
        assert run_command("list", "--server", url, RESURGENCE_API_KEY=text).status == 0
        with_file = run_command("list", "--server", url, "--api-key-file", str(path))
        assert with_file.status == 0
        refused = run_command("start", "x", "--server", url, RESURGENCE_API_KEY=text)
        assert refused.status == 2
        assert "may only read" in refused.err
        wrong = run_command("list", "--server", url, RESURGENCE_API_KEY="ä")
        assert wrong.status == 2
