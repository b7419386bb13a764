"""The command line: one clear message, the right exit status, never a stack trace."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import BY_MINUTE, QUICK, RIDES, SQL, Project, settings
from tests.sql.changelog import merge


def assert_clean(done: subprocess.CompletedProcess[str]) -> None:
    """No Python or Java stack trace reaches the user."""
    assert "Traceback" not in done.stderr
    assert "\tat " not in done.stderr
    assert "Exception" not in done.stderr


@pytest.mark.parametrize(
    ("old", "new", "place", "message", "hint"),
    [
        (
            "FROM rides GROUP BY window, kind",
            "FROM ride GROUP BY window, kind",
            "12:8",
            "'ride'",
            "rides",
        ),
        ("avg(driver) AS mean", "avg(diver) AS mean", "11:76", "'diver'", "driver"),
        ("avg(driver) AS mean", "agv(driver) AS mean", "11:72", "agv", "avg"),
        ("connector = 'filesystem'", "connector = 'filesytem'", None, "'filesytem'", "filesystem"),
        ("path = 'rides.json'", "pth = 'rides.json'", None, "'pth'", "path"),
        ("INSERT INTO by_minute SELECT", "INSERT INTO by_minute SELEC", None, "", ""),
    ],
    ids=["table", "column", "function", "connector", "option", "syntax"],
)
def test_bad_sql_is_exit_2_with_line_column_and_a_hint(
    project: Project, old: str, new: str, place: str | None, message: str, hint: str
) -> None:
    assert old in SQL
    (project.folder / "rides.sql").write_text(SQL.replace(old, new, 1))
    done = project.run()
    assert done.returncode == 2
    assert_clean(done)
    first, *rest = done.stderr.splitlines()
    assert first.startswith(f"error: rides.sql:{place or ''}")
    assert message in first
    assert hint in "\n".join(rest)


def test_an_unknown_setting_is_refused_with_the_nearest_one(project: Project) -> None:
    done = project.run("--set", "pipeline.heartbeat_timeot=3s")
    assert done.returncode == 2
    assert "pipeline.heartbeat_timeout" in done.stderr


def test_a_missing_sql_file_and_an_unknown_flag_are_bad_usage(project: Project) -> None:
    (project.folder / "rides.sql").unlink()
    assert project.run().returncode == 2
    (project.folder / "rides.sql").write_text(SQL)
    assert project.run("--nonsense").returncode == 2


def test_a_missing_input_file_fails_at_once_and_says_which(project: Project) -> None:
    (project.folder / "rides.json").unlink()
    done = project.run()
    assert done.returncode == 1
    assert_clean(done)
    assert "the job failed (user)" in done.stderr
    assert "rides.json does not exist" in done.stderr
    assert project.events("worker_started") == []


def test_a_read_only_state_dir_is_refused(project: Project) -> None:
    state = project.folder / "state"
    state.mkdir(mode=0o555)
    done = project.run("--state-dir", "state")
    assert done.returncode == 2
    assert_clean(done)
    assert f"cannot write to {state}" in done.stderr


def checkpoint_of(project: Project, **changes: object) -> Path:
    """A manifest made by hand, as another release would leave it."""
    job = project.folder / ".resurgence" / "rides"
    (job / "generations").mkdir(parents=True)
    record = {
        "version": 1,
        "job": "j",
        "generation": 1,
        "claimed_by": "x",
        "claimed_at": "2024-01-01T00:00:00Z",
    }
    (job / "generations" / "0000000001.json").write_text(json.dumps({**record, **changes}))
    (job / "epochs" / "0000000001").mkdir(parents=True)
    manifest = job / "epochs" / "0000000001" / "manifest-0.json"
    manifest.write_text("damaged")
    return manifest


def test_a_state_dir_of_a_newer_format_is_refused_untouched(project: Project) -> None:
    manifest = checkpoint_of(project, version=99)
    done = project.run()
    assert done.returncode == 1
    assert_clean(done)
    assert "format version 99" in done.stderr
    assert manifest.read_text() == "damaged"


def test_explain_shows_operators_state_and_jobs(project: Project) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "resurgence", "explain", "rides.sql", "--parallelism", "3"],
        cwd=project.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for word in ("source-rides", "sink-by_minute", "sink-by_day", "window-", "partials", "3"):
        assert word in done.stdout


@pytest.mark.timeout(200)
def test_a_bad_line_fails_with_file_line_and_column_and_can_be_fixed_or_dropped(
    project: Project,
) -> None:
    (project.folder / "rides.sql").write_text(RIDES + BY_MINUTE)
    project.write_input(600)
    rides = project.folder / "rides.json"
    lines = rides.read_text().splitlines()
    good = lines[450]
    lines[450] = '{"at": "2024-03-01T01:00:00", "driver": , "kind": "a"}'
    rides.write_text("\n".join(lines) + "\n")
    arguments = ("--epoch-rows", "300", *settings(*QUICK))
    done = project.run(*arguments)
    assert done.returncode == 1
    assert_clean(done)
    assert f"{rides}, line 451, column 41" in done.stderr
    assert "bad_data" in done.stderr
    assert project.events("failure")[-1]["retry_hint"] == "no_retry"

    lines[450] = good
    rides.write_text("\n".join(lines) + "\n")
    # The same run shows its profile: another one would only repeat it.
    done = project.run(*arguments, "--profile")
    assert done.returncode == 0, done.stderr
    project.assert_exactly_once()
    profile = project.events("profile")[-1]
    assert profile["epoch"] == project.events("committed")[-1]["epoch"]
    assert {each["operator"] for each in profile["jobs"]} <= {
        each["operator"] for each in profile["work"]
    }
    assert "checkpoint share of the time: " in done.stderr


@pytest.mark.timeout(200)
def test_a_type_error_that_only_spark_sees_is_exit_2_at_its_place(project: Project) -> None:
    (project.folder / "rides.sql").write_text(
        SQL.replace("avg(driver) AS mean", "sum(map(kind, 1)) AS mean")
    )
    done = project.run()
    assert done.returncode == 2, done.stderr
    assert_clean(done)
    assert "rides.sql:11:72" in done.stderr


@pytest.mark.timeout(200)
def test_a_bare_select_prints_rows_or_changes_and_python_functions_can_be_called(
    project: Project,
) -> None:
    (project.folder / "functions.py").write_text(
        "from resurgence import udaf, udf\n\n\n"
        "@udf\ndef double(x: int) -> int:\n    return 2 * x\n\n\n"
        "@udaf\ndef middle(values: list[int]) -> float | None:\n    return float(sorted(values)[len(values) // 2])\n"
    )
    (project.folder / "rides.sql").write_text(
        """CREATE TABLE n WITH (connector = 'impulse', message_count = '10', start_time = '2024-01-01T00:00:00');
        SELECT window.start, lowest, half FROM (
            SELECT tumble(INTERVAL '5 milliseconds') AS window, min(double(counter)) AS lowest, middle(counter) AS half
            FROM n GROUP BY window);
        SELECT counter % 2 AS odd, count(*) AS n FROM n GROUP BY 1"""
    )
    done = project.run("--udfs", "functions.py", "--epoch-rows", "6", *settings(*QUICK))
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    changes = [json.dumps(each) for each in lines if "op" in each]
    assert sorted(merge(changes)) == ['{"odd": 0, "n": 5}', '{"odd": 1, "n": 5}']
    assert len(changes) > 2
    rows = sorted((each for each in lines if "op" not in each), key=lambda row: row["start"])
    assert rows == [
        {"start": "2024-01-01T00:00:00", "lowest": 0, "half": 2.0},
        {"start": "2024-01-01T00:00:00.005", "lowest": 10, "half": 7.0},
    ]


def command(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Any other command, in the project's folder."""
    return subprocess.run(
        [sys.executable, "-m", "resurgence", *arguments],
        cwd=project.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_job_is_rolled_back_inspected_edited_and_resumed(project: Project) -> None:
    project.write_input(500)
    assert project.run("--epoch-rows", "100", *settings(*QUICK)).returncode == 0
    back = command(project, "rollback", "--to-epoch", "2")
    assert back.returncode == 0, back.stderr
    assert "the next run continues with epoch 6" in back.stdout
    assert "dead" in command(project, "checkpoints", "list").stdout

    edited = project.folder / "edited.sql"
    edited.write_text(SQL.replace("INTERVAL '10 minutes'", "INTERVAL '20 minutes'"))
    reported = command(project, "explain", "restore", "edited.sql")
    assert reported.returncode == 0, reported.stderr
    assert "(LOST)" in reported.stdout
    original = (project.folder / "rides.sql").read_text()
    (project.folder / "rides.sql").write_text(edited.read_text())
    refused = project.run(*settings(*QUICK))
    assert refused.returncode == 1
    assert "(LOST)" in refused.stderr
    assert "--accept-state-loss" in refused.stderr
    assert_clean(refused)

    (project.folder / "rides.sql").write_text(original)
    assert project.run("--epoch-rows", "90", *settings(*QUICK)).returncode == 0
    project.assert_exactly_once()
    for checked in (("checkpoints", "verify", "--all", "--sql", "rides.sql"), ("ledger",)):
        done = command(project, *checked)
        assert done.returncode == 0, done.stdout + done.stderr
