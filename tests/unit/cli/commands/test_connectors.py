"""`resurgence connectors`: what is installed, and how it is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.stand_ins.ivy import REPOSITORY, make_java_home

from resurgence.engine.spark.connector_jars import folder_of, spark_version

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Cli

AVRO = "org.apache.spark:spark-avro_2.13"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESURGENCE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(make_java_home(tmp_path)))
    repository = tmp_path / "repository.json"
    repository.write_text(json.dumps({"published": {AVRO: {spark_version(): {}}}}))
    monkeypatch.setenv(REPOSITORY, str(repository))


def test_jars_are_installed_with_progress_lines_and_listed(machine_cli: Cli) -> None:
    answer = machine_cli("connectors", "install", "avro")
    assert answer.status == 0
    assert answer.out.strip() == str(folder_of("avro"))
    assert "downloading the jars for avro" in answer.err
    listed = machine_cli("connectors", "list")
    lines = {line.split()[0]: line for line in listed.out.splitlines()}
    assert "yes" in lines["avro"]
    assert f"spark-avro_2.13-{spark_version()}.jar" in lines["avro"]
    assert "no" in lines["kafka"].split()


def test_the_list_can_be_read_by_programs(machine_cli: Cli) -> None:
    machine_cli("connectors", "install", "avro")
    sets = {
        each["name"]: each for each in json.loads(machine_cli("connectors", "list", "--json").out)
    }
    assert sets["avro"] == {
        "name": "avro",
        "installed": True,
        "folder": str(folder_of("avro")),
        "jars": [f"{AVRO}:{spark_version()}"],
    }
    assert not sets["kafka"]["installed"]


def test_an_unknown_name_is_refused_before_anything_is_downloaded(machine_cli: Cli) -> None:
    answer = machine_cli("connectors", "install", "avro", "kafak")
    assert answer.status == 2
    assert "there are no jars named 'kafak'" in answer.err
    assert not folder_of("avro").exists()


def test_jars_that_cannot_be_had_are_named(machine_cli: Cli) -> None:
    answer = machine_cli("connectors", "install", "kafka")
    assert answer.status == 1
    assert "org.apache.spark:spark-sql-kafka-0-10_2.13" in answer.err
    assert "connectors.jars" in answer.err
