"""Lookup joins on real tables: Parquet files, Delta, a Postgres server. When a table is read again,
what a crash changes, and how each failure is reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from resurgence.connectors.checks import check_connectors
from resurgence.connectors.registry import CONNECTORS
from resurgence.engine.epochs.engine import Engine
from resurgence.engine.operators.lookup_join import LookupJoinOperator
from resurgence.engine.spark.errors import translate
from resurgence.engine.tables.lookup_cache import LookupCache
from resurgence.errors import InjectedFault, ResurgenceError
from resurgence.ids import Epoch, JobName
from resurgence.sql import compile_pipeline
from tests.engine.harness import Job, Leg, SetClock, read_lines, source_table, write_lines
from tests.postgres import PostgresServer

START = datetime(2024, 3, 1, tzinfo=UTC)
EVENTS = [{"at": f"2024-03-01T00:00:{n:02}", "id": n, "customer": n % 3} for n in range(6)]
INNER = "SELECT e.id, c.name FROM events e JOIN customers c ON e.customer = c.id"
LEFT = INNER.replace("JOIN", "LEFT JOIN")


@dataclass
class Workspace:
    """A stream of six events, two of each customer, and a table of customers."""

    spark: SparkSession
    folder: Path
    clock: SetClock = field(default_factory=lambda: SetClock(START))

    @property
    def customers(self) -> Path:
        return self.folder / "customers"

    def parquet(self, columns: dict[str, Any], name: str = "0.parquet") -> None:
        """Write a file of the table; one of that name is replaced."""
        self.customers.mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), self.customers / name)

    def job(
        self,
        query: str = INNER,
        columns: str = "id BIGINT, name TEXT",
        options: str | None = None,
        more: str = "",
    ) -> Job:
        write_lines(self.folder / "events.json", EVENTS)
        source = source_table(
            self.folder / "events.json", "at TIMESTAMP, id BIGINT, customer BIGINT"
        )
        options = options or f"connector = 'filesystem', path = '{self.customers}'"
        table = f"CREATE TEMPORARY TABLE customers ({columns}) WITH ({options}{more});\n"
        sink = (
            "CREATE TABLE named WITH (connector = 'single_file', type = 'sink',"
            f" path = '{self.folder / 'out.json'}');\n"
        )
        sql = source + table + sink + f"INSERT INTO named {query};"
        return Job(self.spark, self.folder, sql, clock=self.clock)

    def out(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = read_lines(self.folder / "out.json")
        return sorted(rows, key=lambda row: (row["id"], str(row["name"])))

    def names(self) -> dict[int, object]:
        """What each event was given."""
        return {row["id"]: row["name"] for row in self.out()}

    def failure(self, job: Job) -> ResurgenceError:
        """What the first epoch fails with."""
        engine = job.open()
        with pytest.raises(Exception) as caught:
            engine.run_epoch()
        assert engine.progress.operator is not None
        assert engine.progress.operator.startswith("lookup-")
        reported = translate(caught.value)
        assert reported.hint
        assert reported.position == "lookup table customers"
        return reported


@pytest.fixture
def workspace(spark: SparkSession, tmp_path: Path) -> Workspace:
    return Workspace(spark, tmp_path)


def one_epoch(engine: Engine) -> None:
    assert engine.run_epoch() is not None


# ---------------------------------------------------------------- Parquet files


def test_all_files_of_a_folder_are_the_table(workspace: Workspace) -> None:
    workspace.parquet({"name": ["zero", "one"], "id": [0, 1]})
    workspace.parquet({"name": ["uno"], "id": [1]}, "more.parquet")
    (workspace.customers / ".staged").mkdir()
    pq.write_table(pa.table({"id": [2]}), workspace.customers / ".staged/x.parquet")
    (workspace.customers / "_SUCCESS").touch()
    workspace.job(LEFT).run()
    assert [(row["id"], row["name"]) for row in workspace.out()] == [
        *((0, "zero"), (1, "one"), (1, "uno"), (2, None)),
        *((3, "zero"), (4, "one"), (4, "uno"), (5, None)),
    ]


def test_columns_are_found_whatever_their_case_and_read_in_their_declared_types(
    workspace: Workspace,
) -> None:
    workspace.parquet(
        {
            "ID": pa.array([0, 1], pa.int32()),
            "Name": pa.array([7, None], pa.int64()),
            "born": pa.array([START, START], pa.timestamp("ns")),
            "rate": pa.array(["1.50", "2.25"]),
            "unused": ["x", "y"],
        }
    )
    query = INNER.replace("c.name", "c.name, c.born, c.rate")
    workspace.job(query, "id BIGINT, name TEXT, born TIMESTAMP, rate DECIMAL(6,2)").run()
    first = workspace.out()[0]
    assert first == {"id": 0, "name": "7", "born": "2024-03-01T00:00:00", "rate": 1.5}


@pytest.mark.parametrize(
    ("columns", "code", "message"),
    [
        ({"id": [0], "nam": ["a"]}, "user", "0.parquet has no column 'name'"),
        ({"id": ["a"], "name": ["a"]}, "user", "column 'id' of .* is string .* read as int64"),
        ({"id": [[0]], "name": ["a"]}, "user", "column 'id' of .* is list"),
    ],
)
def test_a_file_that_does_not_match_the_declaration_is_a_user_error(
    workspace: Workspace, columns: dict[str, Any], code: str, message: str
) -> None:
    workspace.parquet(columns)
    reported = workspace.failure(workspace.job())
    assert reported.code == code
    assert re.search(message, reported.message), reported.message


def test_reading_a_damaged_file_is_retried(workspace: Workspace) -> None:
    workspace.customers.mkdir()
    (workspace.customers / "0.parquet").write_bytes(b"PAR1 no file PAR1")
    reported = workspace.failure(workspace.job())
    assert (reported.code, reported.domain) == ("source", "external")
    assert "0.parquet cannot be read" in reported.message


def test_a_missing_folder_is_a_user_error_and_is_not_created(workspace: Workspace) -> None:
    job = workspace.job()
    with pytest.raises(ResurgenceError, match=r"folder .* does not exist") as caught:
        check_connectors(compile_pipeline(job.sql, CONNECTORS), job.store.url, JobName("job"))
    assert caught.value.code == "user"
    assert workspace.failure(job).code == "user"
    assert not workspace.customers.exists()


def test_a_folder_without_files_is_not_an_empty_table(workspace: Workspace) -> None:
    workspace.customers.mkdir()
    job = workspace.job()
    with pytest.raises(ResurgenceError, match="there are no files") as caught:
        check_connectors(compile_pipeline(job.sql, CONNECTORS), job.store.url, JobName("job"))
    assert caught.value.domain == "user"
    assert workspace.failure(job).domain == "external"


def test_the_output_of_a_sink_can_be_looked_up(workspace: Workspace) -> None:
    source = source_table(
        write_lines(workspace.folder / "people.json", [{"at": None, "id": 1, "name": "ann"}]),
        "at TIMESTAMP, id BIGINT, name TEXT",
        name="people",
    )
    sink = (
        "CREATE TABLE sunk WITH (connector = 'filesystem', type = 'sink',"
        f" path = '{workspace.customers}');\n"
    )
    writer = Job(workspace.spark, workspace.folder, source + sink, name="writer")
    writer.sql += "INSERT INTO sunk SELECT id, name FROM people;"
    writer.run()
    workspace.job().run()
    assert workspace.names() == {1: "ann", 4: "ann"}


# ---------------------------------------------------------------- when it is read


def run_with_changes(workspace: Workspace, job: Job, seconds: list[int]) -> list[object]:
    """An epoch for each event; before each, the clock is set and the one customer is renamed to the
    number of the epoch. The names that the events were given.
    """
    engine = job.open(Leg(rows=1))
    for number, second in enumerate(seconds):
        workspace.parquet({"id": [0, 1, 2], "name": [str(number)] * 3})
        workspace.clock.at = START + timedelta(seconds=second)
        one_epoch(engine)
    return [workspace.names()[number] for number in range(len(seconds))]


def test_a_table_is_cached_until_its_ttl_ends(workspace: Workspace) -> None:
    names = run_with_changes(workspace, workspace.job(), [0, 30, 59, 60, 61, 120])
    assert names == ["0", "0", "0", "3", "3", "5"]


def test_a_table_without_a_ttl_is_read_in_every_epoch(workspace: Workspace) -> None:
    job = workspace.job(more=", lookup.cache.ttl = '0'")
    assert run_with_changes(workspace, job, [0, 0, 0, 1]) == ["0", "1", "2", "3"]


def test_a_table_that_is_joined_twice_is_read_once_in_an_epoch(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings: list[int] = []
    read = LookupCache.read

    def counted(table: LookupCache, epoch: Epoch, now: datetime) -> None:
        readings.append(epoch)
        read(table, epoch, now)

    monkeypatch.setattr(LookupCache, "read", counted)
    workspace.parquet({"id": [0, 1, 2], "name": ["a", "b", "c"]})
    query = f"{INNER} JOIN customers d ON e.id = d.id"
    workspace.job(query, more=", lookup.cache.ttl = '0'").run([Leg(rows=3)])
    assert readings == [1, 2]
    assert workspace.names() == {0: "a", 1: "b", 2: "c"}


def test_tables_at_the_same_location_each_have_their_own_ttl(workspace: Workspace) -> None:
    query = (
        "SELECT e.id, concat(c.name, f.name) AS name FROM events e"
        " JOIN customers c ON e.customer = c.id JOIN fresh f ON e.customer = f.id"
    )
    job = workspace.job(query)
    job.sql = job.sql.replace(
        "CREATE TABLE named",
        "CREATE TEMPORARY TABLE fresh (id BIGINT, name TEXT) WITH (connector = 'filesystem',"
        f" path = '{workspace.customers}', lookup.cache.ttl = '0');\nCREATE TABLE named",
    )
    assert run_with_changes(workspace, job, [0, 1, 60]) == ["00", "01", "22"]


def test_a_new_generation_reads_the_table_again(workspace: Workspace) -> None:
    workspace.parquet({"id": [0, 1, 2], "name": ["old"] * 3})
    job = workspace.job()
    one_epoch(job.open(Leg(rows=3)))
    workspace.parquet({"id": [0, 1, 2], "name": ["new"] * 3})
    one_epoch(job.open(Leg(rows=3)))
    assert list(workspace.names().values()) == ["old"] * 3 + ["new"] * 3


@pytest.mark.parametrize(
    ("point", "name"),
    [
        ("epoch.read", "new"),
        ("sink.staged", "new"),
        ("metadata.written", "new"),
        ("manifest.published", "old"),
        ("sink.committing", "old"),
    ],
)
def test_a_replayed_epoch_joins_the_current_table(
    workspace: Workspace, point: str, name: str
) -> None:
    """One that was sealed is not run again: what it staged is committed."""
    workspace.parquet({"id": [0, 1, 2], "name": ["old"] * 3})
    job = workspace.job()
    job.settings = {"faults": f"{point}@2=raise"}
    engine = job.open(Leg(rows=3))
    one_epoch(engine)
    with pytest.raises(InjectedFault):
        engine.run_epoch()
    workspace.parquet({"id": [0, 1, 2], "name": ["new"] * 3})
    job.run([Leg(rows=3)])
    assert [workspace.names()[number] for number in range(6)] == ["old"] * 3 + [name] * 3
    assert len(workspace.out()) == 6


# ---------------------------------------------------------------- how it is joined


def lookup_join(engine: Engine) -> LookupJoinOperator:
    operators = engine._pipeline.operators.values()
    (found,) = (each for each in operators if isinstance(each, LookupJoinOperator))
    return found


def first_plan(engine: Engine) -> str:
    """How Spark joins in the first epoch, when the table has just been read. The rows are an RDD:
    Spark must not see that there are none.
    """
    join = lookup_join(engine)
    join.table.read(Epoch(1), START)
    rows = [each.sparkSession.createDataFrame([], each.schema) for each in join.input_shapes]
    joined = join.apply(rows)
    return str(joined._jdf.queryExecution().executedPlan().toString())


@contextmanager
def broadcast_up_to(spark: SparkSession, size: str) -> Iterator[None]:
    key = "spark.sql.autoBroadcastJoinThreshold"
    before = spark.conf.get(key)
    assert before is not None
    spark.conf.set(key, size)
    try:
        yield
    finally:
        spark.conf.set(key, before)


def test_a_small_table_is_broadcast(workspace: Workspace) -> None:
    workspace.parquet({"id": [0, 1, 2], "name": ["a", "b", "c"]})
    assert "BroadcastHashJoin" in first_plan(workspace.job(LEFT).open())


def test_a_large_table_is_joined_by_sort_merge(workspace: Workspace) -> None:
    many = list(range(3, 5000))
    workspace.parquet({"id": [0, 1, 1, *many], "name": ["a", "b", "c", *map(str, many)]})
    with broadcast_up_to(workspace.spark, "8kb"):
        engine = workspace.job(LEFT).open()
        assert "SortMergeJoin" in first_plan(engine)
        one_epoch(engine)
    assert [row["name"] for row in workspace.out()] == ["a", "b", "c", None, "a", "b", "c", None]


def test_unmatched_rows_advance_the_watermark(workspace: Workspace) -> None:
    workspace.parquet({"id": [99], "name": ["nobody"]})
    report = workspace.job().run()[-1]
    assert workspace.out() == []
    assert report.rows == 6


# ---------------------------------------------------------------- Delta


def delta_options(workspace: Workspace) -> str:
    return f"connector = 'delta', path = '{workspace.customers}'"


def test_a_delta_table_consists_of_its_live_files(workspace: Workspace) -> None:
    write_deltalake(workspace.customers, pa.table({"id": [0, 1, 2], "name": ["a", "b", "c"]}))
    write_deltalake(workspace.customers, pa.table({"id": [2], "name": ["d"]}), mode="append")
    DeltaTable(workspace.customers).delete("name = 'c'")
    query = INNER.replace("customers c", "customers FOR SYSTEM_TIME AS OF e.at AS c")
    job = workspace.job(query, options=delta_options(workspace))
    engine = job.open(Leg(rows=3))
    one_epoch(engine)
    assert workspace.names() == {0: "a", 1: "b", 2: "d"}
    write_deltalake(workspace.customers, pa.table({"id": [1], "name": ["new"]}), mode="overwrite")
    workspace.clock.at += timedelta(minutes=1)
    one_epoch(engine)
    assert workspace.names() == {0: "a", 1: "b", 2: "d", 4: "new"}


def test_the_partition_columns_of_a_delta_table_are_read_from_its_log(workspace: Workspace) -> None:
    names = ["a b", "x/y%", None]
    rows = {"id": [0, 1, 2], "name": names, "born": [date(2020, 1, day) for day in (1, 2, 3)]}
    write_deltalake(workspace.customers, pa.table(rows), partition_by=["name", "born"])
    query = LEFT.replace("c.name", "c.name, c.born")
    workspace.job(query, "id BIGINT, name TEXT, born DATE", delta_options(workspace)).run()
    assert [(row["name"], row["born"]) for row in workspace.out()[:3]] == [
        ("a b", "2020-01-01"),
        ("x/y%", "2020-01-02"),
        (None, "2020-01-03"),
    ]


def test_only_partition_columns_of_a_delta_table_can_be_read(workspace: Workspace) -> None:
    rows = pa.table({"id": [0, 1, 1], "amount": [1, 2, 3]})
    write_deltalake(workspace.customers, rows, partition_by=["id"])
    query = "SELECT e.id, c.id AS name FROM events e JOIN customers c ON e.customer = c.id"
    workspace.job(query, "id BIGINT", delta_options(workspace)).run()
    assert [row["name"] for row in workspace.out()] == [0, 1, 1, 0, 1, 1]


def test_files_older_than_a_column_of_a_delta_table_have_nulls(workspace: Workspace) -> None:
    write_deltalake(workspace.customers, pa.table({"id": [0]}))
    write_deltalake(
        workspace.customers,
        pa.table({"id": [1], "name": ["b"]}),
        mode="append",
        schema_mode="merge",
    )
    workspace.job(options=delta_options(workspace)).run()
    assert workspace.names() == {0: None, 1: "b", 3: None, 4: "b"}


def test_an_empty_delta_table_has_no_rows(workspace: Workspace) -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    DeltaTable.create(workspace.customers, schema)
    workspace.job(LEFT, options=delta_options(workspace)).run()
    assert set(workspace.names().values()) == {None}


def edit_log(folder: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """Edit the actions of a table's first version."""
    path = folder / "_delta_log/00000000000000000000.json"
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        edit(action)
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))


def with_deletion_vector(action: dict[str, Any]) -> None:
    if "protocol" in action:
        action["protocol"] = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"],
            "writerFeatures": ["deletionVectors"],
        }
    if "add" in action:
        # The rows 3, 4, 7, 11, 18 and 29.
        action["add"]["deletionVector"] = {
            "storageType": "i",
            "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
            "sizeInBytes": 44,
            "cardinality": 6,
        }


def with_column_mapping(action: dict[str, Any]) -> None:
    if "protocol" in action:
        action["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
    if "metaData" in action:
        action["metaData"]["configuration"] = {
            "delta.columnMapping.mode": "name",
            "delta.columnMapping.maxColumnId": "2",
        }
        schema = json.loads(action["metaData"]["schemaString"])
        for number, each in enumerate(schema["fields"], start=1):
            each["metadata"] = {
                "delta.columnMapping.id": number,
                "delta.columnMapping.physicalName": f"col-{number}",
            }
        action["metaData"]["schemaString"] = json.dumps(schema)


def with_unknown_feature(action: dict[str, Any]) -> None:
    if "protocol" in action:
        action["protocol"] = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["timeTravelToTheFuture"],
            "writerFeatures": ["timeTravelToTheFuture"],
        }


def test_rows_under_a_deletion_vector_of_a_delta_table_are_skipped(workspace: Workspace) -> None:
    rows = pa.table({"id": [number % 3 for number in range(45)], "name": list(range(45))})
    write_deltalake(workspace.customers, rows)
    edit_log(workspace.customers, with_deletion_vector)
    workspace.job(options=delta_options(workspace)).run()
    found = [int(row["name"]) for row in workspace.out() if row["id"] in (0, 1, 2)]
    assert sorted(found) == sorted(set(range(45)) - {3, 4, 7, 11, 18, 29})


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (with_column_mapping, "column mapping by name"),
        (with_unknown_feature, "timeTravelToTheFuture"),
    ],
)
def test_a_delta_table_with_an_unsupported_reader_feature_is_refused(
    workspace: Workspace, edit: Callable[[dict[str, Any]], None], message: str
) -> None:
    write_deltalake(workspace.customers, pa.table({"id": [0], "name": ["a"]}))
    edit_log(workspace.customers, edit)
    reported = workspace.failure(workspace.job(options=delta_options(workspace)))
    assert message in reported.message
    assert reported.domain == "user"


def test_a_folder_that_is_no_delta_table_is_a_user_error(workspace: Workspace) -> None:
    workspace.customers.mkdir()
    reported = workspace.failure(workspace.job(options=delta_options(workspace)))
    assert reported.code == "user"
    assert "there is no Delta table at" in reported.message


def test_a_column_that_a_delta_table_lacks_is_a_user_error(workspace: Workspace) -> None:
    write_deltalake(workspace.customers, pa.table({"id": [0], "nam": ["a"]}))
    reported = workspace.failure(workspace.job(options=delta_options(workspace)))
    assert (reported.code, reported.hint) == ("user", "Perhaps you meant 'nam'.")
    assert "has no column 'name'" in reported.message


# ---------------------------------------------------------------- Postgres


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for each in statements:
            connection.execute(each.encode())


def postgres_options(url: str, table: str = "customers") -> str:
    return f"connector = 'postgres', url = '{url}', table = '{table}'"


CUSTOMERS = (
    "CREATE TABLE customers (id int PRIMARY KEY, name varchar(20))",
    "INSERT INTO customers VALUES (0, 'a'), (1, 'b')",
)


def test_a_postgres_table_is_looked_up_and_read_again(
    workspace: Workspace, postgres_url: str
) -> None:
    execute(postgres_url, *CUSTOMERS)
    engine = workspace.job(LEFT, options=postgres_options(postgres_url)).open(Leg(rows=2))
    one_epoch(engine)
    execute(postgres_url, "UPDATE customers SET name = 'new'", "INSERT INTO customers VALUES (2)")
    one_epoch(engine)
    workspace.clock.at += timedelta(minutes=1)
    one_epoch(engine)
    assert workspace.names() == {0: "a", 1: "b", 2: None, 3: "a", 4: "new", 5: None}


def test_system_time_is_that_of_the_epoch_whatever_time_is_named(
    workspace: Workspace, postgres_url: str
) -> None:
    execute(postgres_url, *CUSTOMERS)
    query = LEFT.replace("customers c", "customers FOR SYSTEM_TIME AS OF e.at AS c")
    assert query != LEFT
    options = postgres_options(postgres_url).replace("url =", "dsn =")
    engine = workspace.job(query, options=options).open(Leg(rows=2))
    one_epoch(engine)
    execute(postgres_url, "UPDATE customers SET name = 'new'", "INSERT INTO customers VALUES (2)")
    one_epoch(engine)
    workspace.clock.at += timedelta(minutes=1)
    one_epoch(engine)
    assert workspace.names() == {0: "a", 1: "b", 2: None, 3: "a", 4: "new", 5: None}


def test_values_of_postgres_are_read_in_their_declared_types(
    workspace: Workspace, postgres_url: str
) -> None:
    execute(
        postgres_url,
        'CREATE SCHEMA "My"',
        'CREATE TABLE "My"."Customers" (id smallint, "Name" jsonb, rate numeric, at timestamp,'
        " seen timestamptz, born date, good boolean, key uuid, raw bytea, tags text[],"
        " counts int[], share real)",
        'INSERT INTO "My"."Customers" VALUES (0, \'{"a": 1}\', 12.345, \'2024-01-02 03:04:05.6\','
        " '2024-01-02 03:04:05+02', '2024-01-02', true, '692a0da6-6893-4e18-bddb-d05a436206fb',"
        " 'abc', array['x', NULL], array[1, 2], 0.5)",
        'INSERT INTO "My"."Customers" (id) VALUES (1)',
    )
    columns = (
        'id BIGINT, "Name" JSON, rate DECIMAL(6,2), at TIMESTAMP, seen TIMESTAMP, born DATE,'
        " good BOOLEAN, key TEXT, raw BYTEA, tags ARRAY<TEXT>, counts ARRAY<BIGINT>, share DOUBLE"
    )
    job = workspace.job(INNER, columns, postgres_options(postgres_url, "My.Customers"))
    engine = job.open()
    one_epoch(engine)
    rows = lookup_join(engine).table.rows.orderBy("id").collect()
    assert tuple(rows[0]) == (
        *(0, '{"a": 1}', Decimal("12.35")),
        *(datetime(2024, 1, 2, 3, 4, 5, 600_000), datetime(2024, 1, 2, 1, 4, 5)),
        *(date(2024, 1, 2), True, "692a0da6-6893-4e18-bddb-d05a436206fb", b"abc"),
        *(["x", None], [1, 2], 0.5),
    )
    assert tuple(rows[1])[1:] == (None,) * 11


@pytest.mark.parametrize(
    ("columns", "table", "message"),
    [
        ("id BIGINT, name TEXT", "nobody", 'relation "nobody" does not exist'),
        ("id BIGINT, name TEXT", "no.customers", 'relation "no.customers" does not exist'),
        ("id BIGINT, name TEXT, age INT", "customers", 'column "age" does not exist'),
        ("id BIGINT, name INT", "customers", "invalid input syntax for type integer"),
        ("id BIGINT, name ARRAY<INT>", "customers", "malformed array literal"),
        ("id DATE, name TEXT", "customers", "cannot cast type integer to date"),
    ],
)
def test_a_postgres_table_that_does_not_match_its_declaration_is_a_user_error(
    workspace: Workspace, postgres_url: str, columns: str, table: str, message: str
) -> None:
    execute(postgres_url, *CUSTOMERS)
    query = "SELECT e.id, c.name FROM events e JOIN customers c ON CAST(e.id AS TEXT) = CAST(c.id AS TEXT)"
    reported = workspace.failure(
        workspace.job(query, columns, postgres_options(postgres_url, table))
    )
    assert (reported.code, reported.retry_hint) == ("user", "no_retry")
    assert message in reported.message


def test_a_missing_database_is_a_user_error(
    workspace: Workspace, postgres_server: PostgresServer
) -> None:
    postgres_server.start()
    reported = workspace.failure(
        workspace.job(options=postgres_options(postgres_server.url("nowhere")))
    )
    assert reported.code == "user"
    assert 'database "nowhere" does not exist' in reported.message


def test_an_unavailable_server_is_retried_and_the_job_continues(
    workspace: Workspace, postgres_server: PostgresServer, postgres_url: str
) -> None:
    execute(postgres_url, *CUSTOMERS)
    job = workspace.job(options=postgres_options(postgres_url))
    postgres_server.kill()
    reported = workspace.failure(job)
    assert (reported.code, reported.domain, reported.retry_hint) == (
        "connection",
        "external",
        "with_backoff",
    )
    assert "lookup table customers: connection to server" in reported.message
    postgres_server.start()
    job.run()
    assert workspace.names() == {0: "a", 1: "b", 3: "a", 4: "b"}


def test_waiting_for_a_locked_table_has_a_deadline(
    workspace: Workspace, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from resurgence.connectors.postgres import lookup

    monkeypatch.setattr(lookup, "_LOCK_SECONDS", 1)
    execute(postgres_url, *CUSTOMERS)
    with psycopg.connect(postgres_url) as holder:
        holder.execute("LOCK TABLE customers")
        reported = workspace.failure(workspace.job(options=postgres_options(postgres_url)))
    assert (reported.code, reported.domain) == ("source", "external")
    assert "lock timeout" in reported.message


def test_a_failed_login_is_reported_without_the_password(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOKUP_PASSWORD", "mel lon%")
    options = (
        postgres_options("postgresql://me@127.0.0.1:1/db") + ", password = '${env:LOOKUP_PASSWORD}'"
    )
    reported = workspace.failure(workspace.job(options=options))
    assert reported.code == "connection"
    assert "port 1 failed" in reported.message
    assert "mel" not in reported.message
