"""`resurgence run` into Postgres, killed at every fault point of a sink."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests.killed_run import run_killed

ROWS = 3000


@pytest.mark.long  # All systems in one killed run: tests/kafka/test_several_sinks.py
@pytest.mark.timeout(600)
def test_a_run_that_is_killed_at_every_point_writes_each_row_once(
    postgres_url: str, tmp_path: Path
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE appended (counter bigint, text text)")
        connection.execute("CREATE TABLE counted (kind bigint PRIMARY KEY, n bigint, total bigint)")
    run_killed(
        tmp_path,
        f"""
        CREATE TABLE numbers WITH (
          connector = 'impulse', event_rate = '1000000', message_count = '{ROWS}');
        CREATE TABLE appended WITH (
          connector = 'postgres', type = 'sink', dsn = '{postgres_url}', table = 'appended');
        CREATE TABLE counted (kind BIGINT PRIMARY KEY, n BIGINT, total BIGINT) WITH (
          connector = 'postgres', type = 'sink', dsn = '{postgres_url}', table = 'counted');
        INSERT INTO appended SELECT counter, concat('n', counter) AS text FROM numbers;
        INSERT INTO counted SELECT kind, n, total FROM (
          SELECT counter % 700 AS kind, count(*) AS n, sum(counter) AS total
          FROM numbers GROUP BY counter % 700) WHERE n <> 4 OR kind >= 100;
        """,
    )
    members: dict[int, list[int]] = {}
    for counter in range(ROWS):
        members.setdefault(counter % 700, []).append(counter)
    with psycopg.connect(postgres_url) as connection:
        appended = connection.execute("SELECT * FROM appended ORDER BY counter").fetchall()
        counted = connection.execute("SELECT * FROM counted ORDER BY kind").fetchall()
        left = connection.execute(
            "SELECT relname FROM pg_class WHERE relname LIKE 'staged%' UNION ALL"
            " SELECT name FROM resurgence.staging"
        ).fetchall()
    assert appended == [(counter, f"n{counter}") for counter in range(ROWS)]
    assert counted == [
        (kind, len(each), sum(each))
        for kind, each in sorted(members.items())
        if len(each) != 4 or kind >= 100
    ]
    assert left == []
