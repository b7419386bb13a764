"""Results that change, in real processes that are killed: the change streams come to the batch
answer, and no change is of a row that is not there.
"""

from __future__ import annotations

import json

import pytest

from tests.integration.conftest import QUICK, Project, rows_of, settings
from tests.sql.changelog import merge

KILLS = (
    "state.partial@2=kill",
    "state.written@3=kill",
    "sink.staged@4=kill",
    "manifest.published@5=kill",
    "sink.committing@6=kill",
    "compaction.mid@7=kill",
    "epoch.planned@9=kill",
    "restore.mid@9=kill",
)
SQL = """
CREATE TABLE rides (
  at TIMESTAMP NOT NULL, driver BIGINT, kind TEXT,
  WATERMARK FOR at AS at - INTERVAL '30 seconds'
) WITH (connector = 'single_file', path = 'rides.json', format = 'json', type = 'source');

CREATE TABLE totals (driver BIGINT PRIMARY KEY, rides BIGINT, kinds TEXT)
WITH (connector = 'single_file', path = 'out/totals.json', format = 'debezium_json', type = 'sink');
CREATE TABLE pairs (first TIMESTAMP, second TIMESTAMP, driver BIGINT)
WITH (connector = 'filesystem', path = 'out/pairs', format = 'parquet', type = 'sink');
CREATE TABLE alone (at TIMESTAMP, driver BIGINT)
WITH (connector = 'single_file', path = 'out/alone.json', format = 'debezium_json', type = 'sink');

INSERT INTO totals SELECT driver, count(*), array_join(sort_array(collect_set(kind)), '') FROM rides GROUP BY driver;
INSERT INTO pairs SELECT a.at, b.at, a.driver FROM rides a JOIN rides b
  ON a.driver = b.driver AND b.at > a.at AND b.at <= a.at + INTERVAL '2 minutes';
INSERT INTO alone SELECT a.at, a.driver FROM rides a LEFT ANTI JOIN rides b
  ON a.driver = b.driver AND b.at > a.at AND b.at <= a.at + INTERVAL '5 minutes';
"""


@pytest.mark.long
@pytest.mark.timeout(400)
def test_workers_killed_amid_updates_come_back_exactly_once(project: Project) -> None:
    (project.folder / "rides.sql").write_text(SQL)
    project.write_input(1000)
    options = (*QUICK, "checkpoint.compact_files=2", f"faults={','.join(KILLS)}")
    done = project.run("--epoch-rows", "100", *settings(*options))
    assert done.returncode == 0, done.stderr
    assert [each["kind"] for each in project.events("failure")] == ["worker_exited"] * len(KILLS)
    out = project.folder / "out"
    rides = f"(SELECT \"at\"::TIMESTAMP AS moment, driver, kind FROM read_json('{project.folder}/rides.json'))"
    totals = [json.loads(each) for each in merge((out / "totals.json").read_text().splitlines())]
    assert sorted((each["driver"], each["rides"], each["kinds"]) for each in totals) == rows_of(
        f"""SELECT driver, count(*), string_agg(DISTINCT kind, '' ORDER BY kind)
            FROM {rides} GROUP BY driver ORDER BY ALL"""
    )
    later = "a.driver = b.driver AND b.moment > a.moment AND b.moment <= a.moment + INTERVAL"
    assert rows_of(
        f"""SELECT first::TIMESTAMPTZ::TIMESTAMP, second::TIMESTAMPTZ::TIMESTAMP, driver
            FROM '{out}/pairs/*.parquet' ORDER BY ALL"""
    ) == rows_of(
        f"SELECT a.moment, b.moment, a.driver FROM {rides} a JOIN {rides} b ON {later} 2 MINUTE ORDER BY ALL"
    )
    alone = [json.loads(each) for each in merge((out / "alone.json").read_text().splitlines())]
    assert sorted((each["at"], each["driver"]) for each in alone) == rows_of(
        f"""SELECT strftime(a.moment, '%Y-%m-%dT%H:%M:%S'), a.driver FROM {rides} a
            WHERE NOT EXISTS (SELECT 1 FROM {rides} b WHERE {later} 5 MINUTE) ORDER BY ALL"""
    )
