"""What `doctor` reports about this machine, and that it changes nothing."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from resurgence.cli.commands import doctor
from resurgence.cli.commands.doctor import Condition
from resurgence.engine.spark.class_archive import archive_path, failure_log
from resurgence.engine.spark.java import Java
from resurgence.errors import ConfigError

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Cli

JAVA = Java("/usr/bin/java", 'openjdk version "17.0.1"\nmore')


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESURGENCE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(doctor, "find_java", lambda: JAVA)


def test_a_machine_without_an_archive_passes(cli: Cli, state_dir: Path) -> None:
    answer = cli("doctor")
    assert answer.status == 0
    lines = {line.split("  ")[0]: line for line in answer.out.splitlines()}
    assert "openjdk version" in lines["java"]
    assert "slow" in lines["class-data archive"]
    assert "missing" in lines["class-data archive"]
    assert f"{state_dir} will be created" in lines["state dir"]
    assert not state_dir.exists()


def test_the_archive_is_reported_as_present_being_built_or_failed() -> None:
    archive = archive_path(JAVA)
    archive.parent.mkdir(parents=True)
    failure_log(archive).touch()
    assert "could not be built" in doctor.class_archive(JAVA).detail
    lock = os.open(archive.parent, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert "is being built" in doctor.class_archive(JAVA).detail
    os.close(lock)
    archive.write_bytes(b"classes")
    assert doctor.class_archive(JAVA).verdict is Condition.OK


def test_a_machine_without_java_fails(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Java:
        raise ConfigError("Spark requires Java 17 or newer, found none", hint="Install a JDK.")

    monkeypatch.setattr(doctor, "find_java", none)
    answer = cli("doctor")
    assert answer.status == 1
    assert "Install a JDK." in answer.out


def test_a_state_dir_that_cannot_be_written_fails(cli: Cli, state_dir: Path) -> None:
    state_dir.mkdir()
    assert "is writable" in cli("doctor").out
    assert list(state_dir.iterdir()) == []
    state_dir.chmod(0o500)
    answer = cli("doctor")
    state_dir.chmod(0o700)
    assert answer.status == 1
    assert "cannot write" in answer.out


def test_a_state_dir_that_is_a_file_fails(cli: Cli, state_dir: Path) -> None:
    state_dir.write_text("")
    assert cli("doctor").status == 1
