"""The systemd unit: systemd accepts it, and it starts our command with flags that exist."""

from __future__ import annotations

import configparser
import shlex
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import typer

from resurgence.cli.app import app
from resurgence.config import Settings, parse_duration

UNIT = Path(__file__).parents[3] / "deploy" / "resurgence.service"


@pytest.fixture
def service() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(UNIT.read_text())
    return parser["Service"]


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    # It checks that the executable exists.
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/resurgence/bin/resurgence", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    complaints = [each for each in done.stderr.splitlines() if UNIT.name in each]
    assert (done.returncode, complaints) == (0, [])


def test_the_unit_starts_a_service_with_flags_that_exist(
    service: configparser.SectionProxy,
) -> None:
    _, name, *flags = shlex.split(service["ExecStart"])
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    given = command.make_context(name, flags).params
    assert Path(given["state_dir"]).is_relative_to(service["WorkingDirectory"])
    assert service["WorkingDirectory"] == f"/var/lib/{service['StateDirectory']}"
    assert given["config"].is_relative_to(f"/etc/{service['ConfigurationDirectory']}")


def test_a_stop_has_time_for_the_last_checkpoint_and_reaches_the_controller_alone(
    service: configparser.SectionProxy,
) -> None:
    stop_timeout = Settings().pipeline.stop_timeout
    assert parse_duration(service["TimeoutStopSec"]) >= stop_timeout + timedelta(seconds=30)
    assert service["KillMode"] == "mixed"


def test_one_worker_out_of_memory_does_not_stop_the_service(
    service: configparser.SectionProxy,
) -> None:
    assert service["OOMPolicy"] == "continue"
    assert service["Restart"] == "always"
