"""`check` validates pipelines and starts nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Cli

GOOD = """
CREATE TABLE rides (at TIMESTAMP, kind TEXT, WATERMARK FOR at)
WITH (connector = 'single_file', path = 'rides.json', type = 'source');
CREATE TABLE hourly WITH (connector = 'filesystem', path = 'out', type = 'sink');
INSERT INTO hourly SELECT kind, count(*) AS n FROM rides GROUP BY tumble(INTERVAL '1 hour'), kind;
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.sql").write_text(GOOD)
    (tmp_path / "bad.sql").write_text(GOOD.replace("FROM rides", "FROM ride"))
    return tmp_path


def test_a_valid_pipeline_is_summed_up_and_explained(machine_cli: Cli, folder: Path) -> None:
    answer = machine_cli("check", "good.sql")
    assert answer.status == 0
    assert answer.out.startswith(
        "good.sql is valid: 1 source, 1 sink, 1 operator with state\n\nsource-rides: source\n"
    )
    assert "exactly once" in answer.out
    assert sorted(each.name for each in folder.iterdir()) == ["bad.sql", "good.sql"]


def test_an_invalid_pipeline_is_reported_at_its_place_and_the_others_are_checked(
    machine_cli: Cli,
) -> None:
    answer = machine_cli("check", "bad.sql", "missing.sql", "good.sql")
    assert answer.status == 2
    assert "error: bad.sql:5:52: " in answer.err
    assert "rides" in answer.err.partition("hint:")[2]
    assert "missing.sql does not exist" in answer.err
    assert answer.out == "good.sql is valid: 1 source, 1 sink, 1 operator with state\n"


def test_programs_get_the_findings_as_json(machine_cli: Cli) -> None:
    answer = machine_cli("check", "--json", "good.sql", "bad.sql")
    assert answer.status == 2
    good, bad = json.loads(answer.out)
    assert good["valid"]
    assert good["sinks"] == [
        {"table": "hourly", "connector": "filesystem", "guarantee": "exactly once"}
    ]
    assert not bad["valid"]
    assert (bad["line"], bad["column"]) == (5, 52)


def test_an_unknown_setting_is_refused(machine_cli: Cli) -> None:
    assert machine_cli("check", "good.sql", "--set", "pipeline.epoch_row=1").status == 2
