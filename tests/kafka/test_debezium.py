"""Changes of a Postgres table, written to Kafka by Debezium's own connector, normalised by key, and
written to another table: the copy equals the original.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.engine.connectors.postgres_tables import Tables
from tests.engine.harness import Job, Leg
from tests.servers import debezium
from tests.servers.builds import NoServer
from tests.servers.kafka import KafkaBroker

COLUMNS = (
    "id bigint PRIMARY KEY, name text, spent numeric(10,2), born date, seen timestamptz,"
    " local timestamp, good boolean, share float8, notes text, last integer"
)
DECLARED = (
    "id BIGINT PRIMARY KEY, name TEXT, spent DECIMAL(10,2), born DATE, seen TIMESTAMP,"
    " local TIMESTAMP_NTZ, good BOOLEAN, share DOUBLE, notes TEXT, last INT"
)
ROW = (
    "i, 'name ' || i, i * 1.25 - 3, DATE '1969-12-20' + i::int,"
    " TIMESTAMPTZ '2024-03-01 10:00:00.123456+02' + i * INTERVAL '1 hour 1 ms',"
    " TIMESTAMP '1969-12-31 23:59:59.999999' + i * INTERVAL '1 day', i % 2 = 0, i / 3.0,"
    " (SELECT string_agg(md5(i::text || n), '') FROM generate_series(1, 400) n), i"
)
"""The notes are so long that they are stored out of line: an update that does not change them does
not send them.
"""
MOVED = "UPDATE customers SET id = id + 1000{} WHERE id % 7 = 0"
"""Debezium sends a changed key as a delete and an insert, which lacks unchanged notes unless the database
logs whole rows.
"""
CHANGES = (
    "UPDATE customers SET name = 'renamed', spent = NULL WHERE id % 4 = 0",
    "DELETE FROM customers WHERE id % 5 = 0",
    "INSERT INTO customers (id, name) VALUES (5, NULL), (10, 'é \"x\" \\\\')",
    "BEGIN; UPDATE customers SET last = 1 WHERE id = 1; UPDATE customers SET last = 2 WHERE id = 1; COMMIT",
    "BEGIN; INSERT INTO customers (id) VALUES (77); DELETE FROM customers WHERE id = 77; COMMIT",
    "BEGIN; UPDATE customers SET name = 'undone'; ROLLBACK",
    "INSERT INTO customers (id, name) VALUES (9999, 'end')",
)
_DEADLINE = 240.0


def wait_for_the_end(broker: KafkaBroker, topic: str) -> None:
    give_up_at = time.monotonic() + _DEADLINE
    while not any(b"9999" in (each.key or b"") for each in broker.read(topic)):
        assert time.monotonic() < give_up_at, f"{topic} has no end"
        time.sleep(0.2)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("has_schemas", "is_truncated", "logs_rows"),
    [
        (True, False, False),
        pytest.param(False, False, True, marks=pytest.mark.long),
        pytest.param(True, True, True, marks=pytest.mark.long),
        pytest.param(False, True, False, marks=pytest.mark.long),
    ],
    ids=["changed", "changed, no schemas, rows", "truncated, rows", "truncated, no schemas"],
)
def test_a_table_that_debezium_captures_is_copied_row_for_row(
    spark: SparkSession,
    tmp_path: Path,
    kafka_jars: tuple[Path, ...],
    kafka_broker: KafkaBroker,
    postgres_url: str,
    has_schemas: bool,
    is_truncated: bool,
    logs_rows: bool,
) -> None:
    try:
        debezium.build()
    except NoServer as error:
        pytest.skip(f"no Debezium: {error}")
    tables = Tables(postgres_url)
    tables.execute(
        f"CREATE TABLE customers ({COLUMNS})",
        f"INSERT INTO customers SELECT {ROW} FROM generate_series(1, 40) i",
        f"CREATE TABLE copies ({COLUMNS})",
    )
    if logs_rows:
        tables.execute("ALTER TABLE customers REPLICA IDENTITY FULL")
    moved = MOVED.format("" if logs_rows else ", notes = notes || '!'")
    with debezium.captured(postgres_url, "customers", kafka_broker, has_schemas) as topic:
        tables.execute(*CHANGES[:2], moved, *(["TRUNCATE customers"] if is_truncated else []))
        tables.execute(*CHANGES[2:])
        wait_for_the_end(kafka_broker, topic)
    sql = (
        f"CREATE TABLE customers ({DECLARED}) WITH (connector = 'kafka', type = 'source',"
        f" bootstrap_servers = '{kafka_broker.bootstrap}', topic = '{topic}',"
        " format = 'debezium_json', 'source.offset' = 'earliest', 'source.stop_at' = 'latest');\n"
        + tables.sink_sql(f"({DECLARED})", table="copies", name="copies")
        + "INSERT INTO copies SELECT * FROM customers"
    )
    Job(spark, tmp_path, sql).run([Leg(25, 2, 1), Leg(20, 3, 1)])
    original, copied = (
        tables.rows(f"SELECT * FROM {each} ORDER BY id") for each in ("customers", "copies")
    )
    assert copied == original
    assert len(original) == (3 if is_truncated else 35)
