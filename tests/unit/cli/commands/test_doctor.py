"""What `doctor` reports about this machine, and that it changes nothing."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from resurgence.cli.commands import doctor
from resurgence.cli.machine_health import Ports
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
    monkeypatch.setattr(doctor, "_available_memory", lambda: None)
    monkeypatch.setattr(doctor, "ports", Ports)


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
    assert doctor.class_archive(JAVA).failure_log == str(failure_log(archive))
    lock = os.open(archive.parent, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert doctor.class_archive(JAVA).is_being_built
    os.close(lock)
    archive.write_bytes(b"classes")
    assert doctor.class_archive(JAVA).size == 7


def test_a_machine_without_java_fails(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Java:
        raise ConfigError("Spark requires Java 17 or newer, found none", hint="Install a JDK.")

    monkeypatch.setattr(doctor, "find_java", none)
    answer = cli("doctor")
    assert answer.status == 1
    assert "java: Install a JDK." in answer.out
    found = {each["name"]: each for each in json.loads(cli("doctor", "--json").out)}
    assert found["java"]["verdict"] == "failed"
    assert found["java"]["remedy"] == "Install a JDK."


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


def test_a_state_dir_of_its_own_is_written_and_timed(state_dir: Path) -> None:
    state_dir.mkdir()
    found = doctor.storage(str(state_dir))
    assert found.round_trip is not None
    assert found.round_trip < timedelta(minutes=1)
    assert found.skew is None, "a local disk has this machine's clock"


@pytest.mark.parametrize(
    ("text", "bytes_of"),
    [("2g", 2 << 30), ("512m", 512 << 20), ("1024", 1024 << 20), ("1gb", 1 << 30), ("much", 0)],
)
def test_sizes_are_read_as_spark_reads_them(text: str, bytes_of: int) -> None:
    assert doctor.memory_bytes(text) == bytes_of


def test_a_port_that_another_process_holds_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(doctor, "_SERVICE_PORT", server.getsockname()[1])
        monkeypatch.setattr(doctor, "_CONNECT_SECONDS", 0.2)
        found = doctor.ports()
    assert (found.loopback_error, found.is_free, found.is_service) == ("", False, False)
    assert doctor.ports().is_free
