"""The Postgres sink in a pipeline: appended rows, upserts, types, and what it remembers of its
epochs.
"""

from __future__ import annotations

import shutil
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.connectors.checks import check_connectors
from resurgence.connectors.registry import CONNECTORS
from resurgence.errors import ResurgenceError, SinkConflict, SqlError, UserError
from resurgence.graph.explain import explain_graph
from resurgence.ids import Epoch, JobName
from resurgence.sql import compile_pipeline
from tests.engine.connectors.postgres_tables import COLUMNS, ROWS, Tables, events
from tests.engine.harness import Job, Leg, batch


@pytest.fixture
def tables(postgres_url: str) -> Tables:
    return Tables(postgres_url)


def test_appended_rows_of_all_epochs_are_there_once(
    spark: SparkSession, tmp_path: Path, tables: Tables
) -> None:
    tables.execute("CREATE TABLE out (number serial, id bigint, at timestamptz)")
    sql = events(tmp_path) + tables.sink_sql() + "INSERT INTO out SELECT id, at FROM events"
    Job(spark, tmp_path, sql).run([Leg(20, 2, 1), Leg(15, 3, 1)])
    assert tables.ids() == list(range(ROWS))
    assert tables.rows("SELECT at FROM out WHERE id = 7")[0][0].isoformat() == (
        "2024-03-01T10:00:07+00:00"
    )
    assert tables.staging_tables() == []
    assert tables.rows("SELECT * FROM resurgence.staging") == []


def test_the_last_row_of_a_key_wins(spark: SparkSession, tmp_path: Path, tables: Tables) -> None:
    tables.execute("CREATE TABLE out (id bigint, name text PRIMARY KEY, seen int DEFAULT 5)")
    sql = events(tmp_path) + tables.sink_sql("(id BIGINT, name TEXT PRIMARY KEY)")
    sql += "INSERT INTO out SELECT id, name FROM events"
    Job(spark, tmp_path, sql).run([Leg(20, 2, 1), Leg(25, 3, 1)])
    assert tables.rows("SELECT id, name, seen FROM out ORDER BY id") == [
        (each, f"n{each % 7}", 5) for each in range(ROWS - 7, ROWS)
    ]


def test_a_changelog_is_written_as_upserts_and_deletes(
    spark: SparkSession, tmp_path: Path, tables: Tables
) -> None:
    tables.execute("CREATE TABLE out (name text PRIMARY KEY, n bigint NOT NULL, most bigint)")
    query = (
        "SELECT name, n, most FROM"
        " (SELECT name, count(*) AS n, max(id) AS most FROM events GROUP BY name)"
        " WHERE n < 8 OR name IN ('n1', 'n6')"
    )
    sql = events(tmp_path) + tables.sink_sql("(name TEXT PRIMARY KEY, n BIGINT, most BIGINT)")
    job = Job(spark, tmp_path, f"{sql}INSERT INTO out {query}")
    seen: list[int] = []
    job.run([Leg(20, 2, 1), Leg(20, 2, 1)], lambda _: seen.append(len(tables.rows("TABLE out"))))
    expected = batch(spark, tmp_path / "events.json", COLUMNS, query)
    assert sorted(tables.rows("TABLE out")) == sorted(map(tuple, expected.collect()))
    assert seen == [7, 7, 2]


def test_several_inserts_into_one_table_are_one_commit(
    spark: SparkSession, tmp_path: Path, tables: Tables
) -> None:
    tables.execute("CREATE TABLE out (id bigint, name text)")
    sql = events(tmp_path) + tables.sink_sql("(id BIGINT, name TEXT)")
    sql += "INSERT INTO out SELECT id, name FROM events WHERE id < 30;"
    sql += "INSERT INTO out SELECT id, upper(name) FROM events WHERE id >= 30"
    Job(spark, tmp_path, sql).run([Leg(40, 2, 1)])
    assert tables.ids() == list(range(ROWS))
    assert tables.rows("SELECT rows FROM resurgence.commits ORDER BY epoch") == [(40,), (20,)]


VALUES = """
    SELECT id,
      IF(id = 0, true, NULL) AS truth, CAST(IF(id = 0, -128, NULL) AS TINYINT) AS tiny,
      CAST(IF(id = 0, 2147483647, NULL) AS INT) AS whole, IF(id = 0, 0.1D, NULL) AS share,
      CAST(IF(id = 0, 0.1, NULL) AS FLOAT) AS part, IF(id = 0, CAST(12.30 AS DECIMAL(10,2)), NULL) AS price,
      CASE id WHEN 0 THEN 'a"b,\\n\\\\.\\n{} ''é' WHEN 1 THEN '' END AS text,
      IF(id = 0, X'00FF', NULL) AS bytes, IF(id = 0, DATE '2024-02-29', NULL) AS day,
      IF(id = 0, TIMESTAMP '2024-03-01 10:00:00.123456', NULL) AS instant,
      IF(id = 0, TIMESTAMP_NTZ '2024-03-01 10:00:00.123456', NULL) AS wall,
      IF(id = 0, array('a"\\\\,}', NULL, '', 'NULL'), NULL) AS tags,
      IF(id = 0, array(1, NULL), NULL) AS numbers,
      IF(id = 0, array(TIMESTAMP '2024-03-01 10:00:00.5'), NULL) AS times,
      IF(id = 0, struct(1 AS a, TIMESTAMP '2024-03-01 10:00:00' AS t), NULL) AS document,
      IF(id = 0, map('k', array(1.5D)), NULL) AS listed,
      IF(id = 0, '692a0da6-6893-4e18-bddb-d05a436206fb', NULL) AS key
    FROM events WHERE id < 2"""
STORED_VALUES = """
    CREATE TABLE out (id bigint, truth boolean, tiny smallint, whole integer, share float8, part real,
      price numeric(12,2), text text, bytes bytea, day date, instant timestamptz, wall timestamp,
      tags text[], numbers int[], times timestamptz[], document jsonb, listed json, key uuid)"""


def test_values_of_every_type_are_stored_as_they_are(
    spark: SparkSession, tmp_path: Path, tables: Tables
) -> None:
    tables.execute(STORED_VALUES)
    sql = events(tmp_path) + tables.sink_sql() + f"INSERT INTO out {VALUES}"
    Job(spark, tmp_path, sql).run()
    first, second = tables.rows("SELECT *, key::text, times[1] FROM out ORDER BY id")
    assert first[1:9] == (
        *(True, -128, 2147483647, 0.1, 0.1, Decimal("12.30")),
        *("a\"b,\n\\.\n{} 'é", b"\x00\xff"),
    )
    assert first[9:14] == (
        date(2024, 2, 29),
        datetime.fromisoformat("2024-03-01T10:00:00.123456+00:00"),
        datetime(2024, 3, 1, 10, 0, 0, 123456),
        ['a"\\,}', None, "", "NULL"],
        [1, None],
    )
    assert first[15:17] == ({"a": 1, "t": "2024-03-01T10:00:00"}, {"k": [1.5]})
    assert first[18] == "692a0da6-6893-4e18-bddb-d05a436206fb"
    assert first[19] == datetime.fromisoformat("2024-03-01T10:00:00.500000+00:00")
    assert second[7] == ""
    assert [each for number, each in enumerate(second) if number not in (0, 7)] == [None] * 18


def test_an_older_copy_of_the_state_is_refused(
    spark: SparkSession, tmp_path: Path, tables: Tables
) -> None:
    tables.execute("CREATE TABLE out (id bigint)")
    sql = events(tmp_path) + tables.sink_sql() + "INSERT INTO out SELECT id FROM events"
    job = Job(spark, tmp_path, sql)
    engine = job.open(Leg(10))
    engine.run_epoch()
    shutil.copytree(tmp_path / "state", tmp_path / "backup")
    engine.run_epoch()
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "backup").rename(tmp_path / "state")
    with pytest.raises(SinkConflict, match="holds epoch 2, but the newest epoch"):
        job.open(Leg(7))
    assert tables.ids() == list(range(20))


def test_a_rollback_writes_the_rows_again_and_fences_out_a_zombie(
    spark: SparkSession, tmp_path: Path, tables: Tables
) -> None:
    tables.execute("CREATE TABLE out (id bigint)")
    sql = events(tmp_path) + tables.sink_sql() + "INSERT INTO out SELECT id FROM events"
    job = Job(spark, tmp_path, sql)
    zombie = job.open(Leg(20))
    for _ in range(2):
        zombie.run_epoch()
    backend = zombie._backend
    claim = backend.claim_generation(zombie._clock.now())
    backend.record_rollback(claim, Epoch(1), zombie._clock.now(), Epoch(2))
    job.run()
    assert tables.ids() == sorted([*range(ROWS), *range(20, 40)])
    with pytest.raises(ResurgenceError):
        zombie.run_epoch()
    assert len(tables.ids()) == ROWS + 20
    assert tables.rows("SELECT first, last FROM resurgence.retractions") == [(2, 2)]


def test_a_rollback_of_upserts_converges(
    spark: SparkSession, tmp_path: Path, tables: Tables
) -> None:
    tables.execute("CREATE TABLE out (name text PRIMARY KEY, n bigint)")
    sql = events(tmp_path) + tables.sink_sql("(name TEXT PRIMARY KEY, n BIGINT)")
    sql += "INSERT INTO out SELECT name, count(*) FROM events GROUP BY name"
    job = Job(spark, tmp_path, sql)
    engine = job.open(Leg(20))
    for _ in range(2):
        engine.run_epoch()
    backend = engine._backend
    claim = backend.claim_generation(engine._clock.now())
    backend.record_rollback(claim, Epoch(1), engine._clock.now(), Epoch(2))
    job.run()
    assert sorted(tables.rows("TABLE out")) == [(f"n{k}", 9 if k < 4 else 8) for k in range(7)]


def check(folder: Path, sink: str, query: str = "SELECT id, name FROM events") -> None:
    graph = compile_pipeline(f"{events(folder)}{sink}INSERT INTO out {query}", CONNECTORS, {})
    check_connectors(graph, f"file://{folder}/state", JobName("job"))


@pytest.mark.parametrize(
    ("stored", "declared", "message", "hint"),
    [
        ("", "(id BIGINT, name TEXT)", '"out" does not exist', '("id" bigint, "name" text)'),
        ("out (id bigint)", "(id BIGINT, name TEXT)", "has no column 'name'", "id"),
        (
            "out (id text, name text)",
            "(id BIGINT, name TEXT)",
            "'id' .* cannot hold BIGINT",
            "Cast",
        ),
        (
            "out (id bigint, name text, at date NOT NULL)",
            "(id BIGINT, name TEXT)",
            "'at' .* is NOT NULL without a default",
            "default",
        ),
        (
            "out (id bigint, name text)",
            "(id BIGINT PRIMARY KEY, name TEXT)",
            "no unique index on its PRIMARY KEY",
            'ADD PRIMARY KEY ("id")',
        ),
        (
            "out (id bigint GENERATED ALWAYS AS IDENTITY, name text)",
            "(id BIGINT, name TEXT)",
            "'id' .* is generated",
            "Leave",
        ),
        (
            "out (id numeric(10,1), name text)",
            "(id DECIMAL(10,2), name TEXT)",
            "digits after the decimal point would be lost",
            "Cast",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_reported_before_spark_starts(
    tmp_path: Path, tables: Tables, stored: str, declared: str, message: str, hint: str
) -> None:
    if stored:
        tables.execute(f"CREATE TABLE {stored}")
    with pytest.raises(UserError, match=message) as refused:
        check(tmp_path, tables.sink_sql(declared))
    assert hint in refused.value.hint


def test_a_table_that_fits_the_query_alone_is_reported_by_its_first_epoch(
    spark: SparkSession, tmp_path: Path, tables: Tables
) -> None:
    tables.execute("CREATE TABLE out (id bigint)")
    sql = events(tmp_path) + tables.sink_sql() + "INSERT INTO out SELECT id, name FROM events"
    with pytest.raises(UserError, match="has no column 'name'"):
        Job(spark, tmp_path, sql).run()


def test_a_view_is_not_a_table(tmp_path: Path, tables: Tables) -> None:
    tables.execute("CREATE VIEW out AS SELECT 1::bigint AS id, 'a' AS name")
    with pytest.raises(UserError, match="is not a table"):
        check(tmp_path, tables.sink_sql())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "postgresql://a@b/c"}, "requires either the option 'dsn' or 'url'"),
        ({"dsn": "host=x"}, "option 'dsn' is not the URL"),
        ({"sink__statement_timeout": "soon"}, "'soon' is not a valid value"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(
    tmp_path: Path, tables: Tables, options: dict[str, str], message: str
) -> None:
    with pytest.raises((UserError, SqlError), match=message):
        check(tmp_path, tables.sink_sql(**options))


def test_a_changelog_without_a_primary_key_is_refused(tmp_path: Path, tables: Tables) -> None:
    with pytest.raises(SqlError, match="requires an append-only input") as refused:
        check(tmp_path, tables.sink_sql(), "SELECT name, count(*) AS n FROM events GROUP BY name")
    assert refused.value.hint.startswith("Declare a PRIMARY KEY to write upserts")


def test_names_are_matched_exactly_and_else_but_for_case(
    spark: SparkSession, tmp_path: Path, tables: Tables
) -> None:
    tables.execute(
        'CREATE SCHEMA "My"', 'CREATE TABLE "My"."Out" ("ID" bigint PRIMARY KEY, "Name" text)'
    )
    sink = tables.sink_sql("(id BIGINT PRIMARY KEY, name TEXT)", table="My.Out")
    check(tmp_path, sink)
    sql = events(tmp_path) + sink + "INSERT INTO out SELECT id, name FROM events"
    Job(spark, tmp_path, sql).run([Leg(30, 2, 1)])
    assert len(tables.rows('TABLE "My"."Out"')) == ROWS


def test_explain_shows_the_guarantee_and_no_password(tmp_path: Path, tables: Tables) -> None:
    sink = tables.sink_sql(dsn="postgresql://me:mellon@db/shop")
    sql = f"{events(tmp_path)}{sink}INSERT INTO out SELECT id FROM events"
    explained = explain_graph(compile_pipeline(sql, CONNECTORS, {}), 2)
    assert "guarantee    exactly once" in explained
    assert "mellon" not in explained


def test_a_constraint_that_is_added_while_the_job_runs_is_found_before_the_seal(
    spark: SparkSession, tmp_path: Path, tables: Tables
) -> None:
    tables.execute("CREATE TABLE out (id bigint, name text)")
    sql = events(tmp_path) + tables.sink_sql() + "INSERT INTO out SELECT id, name FROM events"
    engine = Job(spark, tmp_path, sql).open(Leg(20))
    engine.run_epoch()
    tables.execute("ALTER TABLE out ADD COLUMN more int DEFAULT 3, ADD CHECK (id <> 25)")
    with pytest.raises(Exception, match=r"refuses a row.*out_id_check"):
        engine.run_epoch()
    assert tables.ids() == list(range(20))
