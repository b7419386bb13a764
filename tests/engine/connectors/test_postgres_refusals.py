"""A row that a table refuses: an error of the user before the epoch is sealed, or a dead letter."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.engine.spark.errors import translate
from resurgence.errors import MessageRefused
from resurgence.graph.values import CHANGE
from tests.engine.connectors.postgres_tables import ROWS, Tables, Writer, events
from tests.engine.harness import Job, Leg

ALERT = """
    CREATE FUNCTION alert() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN IF NEW.id = 33 THEN RAISE EXCEPTION 'no thirty-three'; END IF; RETURN NEW; END $$"""

REFUSALS = {
    "not null": (["out (id bigint, name text NOT NULL)"], "null value"),
    "check": (["out (id bigint CONSTRAINT odd CHECK (id <> 33), name text)"], '"odd"'),
    "length": (["out (id bigint, name varchar(8))"], "too long"),
    "range": (["out (id smallint, name text)"], "out of range"),
    "characters": (["out (id bigint, name text)"], "0x00"),
    "domain": (["out (id small, name text)"], "small"),
    "unwritten": (["out (id bigint, name text, more int DEFAULT 33, CHECK (id <> more))"], "check"),
    "foreign key": (
        ["other (id bigint PRIMARY KEY)", "out (id bigint REFERENCES other, name text)"],
        "foreign key",
    ),
    "deferred": (
        [
            "other (id bigint PRIMARY KEY)",
            "out (id bigint REFERENCES other DEFERRABLE INITIALLY DEFERRED, name text)",
        ],
        "foreign key",
    ),
    "unique": (["out (id bigint UNIQUE, name text)"], "duplicate key"),
    "partition": (["out (id bigint, name text) PARTITION BY RANGE (id)"], "no partition"),
    "trigger": (["out (id bigint, name text)"], "no thirty-three"),
}
"""Tables that refuse row 33, by the kind of their constraint, and what the server says."""
MORE = {
    "foreign key": [
        f"INSERT INTO other SELECT generate_series(0, {ROWS})",
        "DELETE FROM other WHERE id = 33",
    ],
    "unique": ["INSERT INTO out VALUES (33, 'there')"],
    "partition": [
        "CREATE TABLE low PARTITION OF out FOR VALUES FROM (0) TO (33)",
        "CREATE TABLE high PARTITION OF out FOR VALUES FROM (34) TO (100)",
    ],
    "trigger": [
        ALERT,
        "CREATE TRIGGER t BEFORE INSERT ON out FOR EACH ROW EXECUTE FUNCTION alert()",
    ],
}
MORE["deferred"] = MORE["foreign key"]
VALUES = {
    "not null": "IF(id = 33, NULL, name)",
    "characters": "IF(id = 33, char(0), name)",
    "length": "IF(id = 33, repeat(name, 9), name)",
}


@pytest.fixture
def tables(postgres_url: str) -> Tables:
    return Tables(postgres_url)


def pipeline(folder: Path, tables: Tables, kind: str) -> str:
    """A pipeline whose row 33 is refused."""
    created, _ = REFUSALS[kind]
    if kind == "domain":
        tables.execute("CREATE DOMAIN small AS bigint CHECK (VALUE <> 33)")
    tables.execute(*(f"CREATE TABLE {each}" for each in created), *MORE.get(kind, []))
    identity = "IF(id = 33, 70000, id)" if kind == "range" else "id"
    select = f"SELECT {identity} AS id, {VALUES.get(kind, 'name')} AS name FROM events"
    return f"{events(folder)}{tables.sink_sql()}INSERT INTO out {select}"


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_refused_row_fails_the_epoch_before_it_is_sealed(
    spark: SparkSession, tmp_path: Path, tables: Tables, kind: str
) -> None:
    job = Job(spark, tmp_path, pipeline(tmp_path, tables, kind))
    held = tables.ids()
    with pytest.raises(Exception, match="refuses a row") as raised:
        job.run()
    error = translate(raised.value)
    assert isinstance(error, MessageRefused)
    assert REFUSALS[kind][1] in error.message
    assert error.position == 'table "out"'
    assert tables.ids() == held
    assert not list((tmp_path / "state").rglob("manifest-*"))


@pytest.mark.parametrize(
    "kind",
    [
        each if each in ("check", "unique", "range") else pytest.param(each, marks=pytest.mark.long)
        for each in REFUSALS
    ],
)
def test_a_refused_row_can_become_a_dead_letter(
    spark: SparkSession, tmp_path: Path, tables: Tables, kind: str
) -> None:
    sql = f"SET on_error = 'dead_letter';\n{pipeline(tmp_path, tables, kind)}"
    held = tables.ids()
    reports = Job(spark, tmp_path, sql).run([Leg(30, 2, 1)])
    assert tables.ids() == sorted([*held, *(each for each in range(ROWS) if each != 33)])
    assert [sum(each.counts.dead_rows.values()) for each in reports] == [0, 1]
    assert tables.staging_tables() == []


def test_a_null_key_is_refused_also_where_the_index_allows_it(
    spark: SparkSession, tables: Tables
) -> None:
    tables.execute("CREATE TABLE out (id bigint UNIQUE, v text)")
    writer = Writer(spark, tables.sink("id"))
    with pytest.raises(Exception, match="null value in column") as raised:
        writer.stage(1, [(1, "a"), (None, "b")])
    assert isinstance(translate(raised.value), MessageRefused)


def test_a_trigger_may_fill_in_what_a_row_lacks(spark: SparkSession, tables: Tables) -> None:
    tables.execute(
        "CREATE TABLE out (id bigint, v text NOT NULL)",
        "CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.v := coalesce(NEW.v, 'filled'); RETURN NEW; END $$",
        "CREATE TRIGGER t BEFORE INSERT ON out FOR EACH ROW EXECUTE FUNCTION fill()",
    )
    Writer(spark, tables.sink()).write(1, [(1, None)])
    assert tables.rows("TABLE out") == [(1, "filled")]


def test_the_deletion_of_a_row_that_others_refer_to_is_refused_before_the_seal(
    spark: SparkSession, tables: Tables
) -> None:
    tables.execute(
        "CREATE TABLE out (id bigint PRIMARY KEY, v text)",
        "INSERT INTO out VALUES (1, 'a'), (2, 'b')",
        "CREATE TABLE details (id bigint REFERENCES out)",
        "INSERT INTO details VALUES (2)",
    )
    writer = Writer(spark, tables.sink("id"))
    changelog = f"id BIGINT, v STRING, {CHANGE} INT"
    writer.commit(1, writer.stage(1, [(1, "a", -1), (2, "b", -1), (2, "c", 1)], changelog))
    assert tables.rows("TABLE out") == [(2, "c")]
    with pytest.raises(MessageRefused, match="foreign key"):
        writer.stage(2, [(2, "c", -1)], changelog)


def test_a_row_that_is_refused_after_the_seal_fails_the_commit_until_the_table_takes_it(
    spark: SparkSession, tables: Tables
) -> None:
    tables.execute(
        "CREATE TABLE other (id bigint PRIMARY KEY)",
        "INSERT INTO other VALUES (1)",
        "CREATE TABLE out (id bigint REFERENCES other, v text)",
    )
    writer = Writer(spark, tables.sink())
    staged = writer.stage(1, [(1, "a")])
    tables.execute("DELETE FROM other")
    for _ in range(2):
        with pytest.raises(MessageRefused, match="foreign key"):
            writer.commit(1, staged)
    tables.execute("INSERT INTO other VALUES (1)")
    writer.commit(1, staged)
    writer.commit(1, staged)
    assert tables.rows("TABLE out") == [(1, "a")]
