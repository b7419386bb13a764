"""Iceberg tables on real catalogs: each epoch once, whoever else commits, crashes or cleans up.

What needs no Spark is tested in tests/unit/connectors/iceberg.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyspark.sql import SparkSession

from resurgence.connectors.connector import LookupDeclaration
from resurgence.connectors.contract import StagedOutput
from resurgence.connectors.iceberg import IcebergLookup
from resurgence.connectors.iceberg.options import IcebergLookupOptions
from resurgence.engine.spark.errors import translate
from resurgence.errors import MessageRefused, SinkConflict, UserError
from resurgence.graph.values import CHANGE, Column
from resurgence.ids import Epoch, Generation
from tests.engine.connectors.crashes import Crash, crash_at_every_step
from tests.engine.connectors.iceberg_targets import (
    COLUMNS,
    WRITES,
    Target,
    before_each_commit,
    crash,
    sql_target,
)
from tests.engine.harness import Job, Leg, batch, random_legs, source_table, write_lines
from tests.iceberg_tables import JOB, expire_all_but_newest, numbered
from tests.servers.iceberg import IcebergServer

EVERYTHING = {"source.offset": "earliest", "source.stop_at": "latest"}
EVENTS = "id BIGINT, name TEXT, amount DOUBLE, at TIMESTAMP"


@pytest.fixture
def target(spark: SparkSession, tmp_path: Path) -> Target:
    return sql_target(spark, tmp_path)


@pytest.fixture
def rest(spark: SparkSession, tmp_path: Path, iceberg_server: IcebergServer) -> Target:
    """A REST catalog."""
    catalog = RestCatalog("rest", uri=iceberg_server.url)
    return Target(spark, tmp_path, catalog, {"catalog.rest.url": iceberg_server.url})


def events(count: int) -> list[dict[str, object]]:
    return [
        {
            "id": each,
            "name": f"n{each % 7}" if each % 11 else None,
            "amount": each * 0.5,
            "at": f"2024-01-0{1 + each % 3}T00:00:{each % 60:02}",
        }
        for each in range(count)
    ]


# ---------------------------------------------------------------- jobs


@pytest.mark.parametrize("kind", ["target", "rest"])
def test_a_job_appends_the_batch_answer_however_its_input_is_cut(
    kind: str, request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> None:
    place: Target = request.getfixturevalue(kind)
    path = write_lines(tmp_path / "events.json", events(200))
    more = {"partitioning.fields": "day(at), bucket(2, id)", "sort.fields": "amount DESC"}
    sql = source_table(path, EVENTS) + place.sql("out", "sink", **more)
    query = "SELECT id, upper(name) AS name, amount, at FROM events"
    Job(spark, tmp_path, f"{sql}INSERT INTO out {query}").run(random_legs(3, 200, 4, [1, 3, 2]))
    rows = place.table("out").scan().to_arrow().select(["id", "name", "amount"]).to_pylist()
    expected = batch(spark, path, EVENTS, query).drop("at").collect()
    assert sorted(map(str, rows)) == sorted(str(each.asDict()) for each in expected)
    fields = [(each.name, str(each.transform)) for each in place.table("out").spec().fields]
    assert fields == [("at_day", "day"), ("id_bucket", "bucket[2]")]
    days = place.table("out").scan("at < '2024-01-02T00:00:00+00:00'")
    assert 0 < len([*days.plan_files()]) < len([*place.table("out").scan().plan_files()])


@pytest.mark.parametrize("kind", ["target", "rest"])
def test_a_job_upserts_the_batch_answer_however_its_input_is_cut(
    kind: str, request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> None:
    place: Target = request.getfixturevalue(kind)
    path = write_lines(tmp_path / "events.json", events(200))
    columns = "(name TEXT, n BIGINT, total DOUBLE, PRIMARY KEY (name))"
    sql = source_table(path, EVENTS) + place.sql("totals", "sink", columns)
    query = "SELECT name, count(*) AS n, sum(amount) AS total FROM events GROUP BY name"
    Job(spark, tmp_path, f"{sql}INSERT INTO totals {query}").run(random_legs(5, 200, 4, [2, 1]))
    expected = batch(spark, path, EVENTS, query).collect()
    assert place.answer("totals") == sorted(str(each.asDict()) for each in expected)


def test_a_job_reads_what_another_one_appends(
    target: Target, spark: SparkSession, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "events.json", events(50))
    sql = source_table(path, EVENTS) + target.sql("mid", "sink")
    first = Job(spark, tmp_path, f"{sql}INSERT INTO mid SELECT id, name, amount FROM events")
    first.run([Leg(20, epochs=2)])
    source = target.sql("mid", "source", "(id BIGINT, amount DOUBLE NOT NULL)", **EVERYTHING)
    sql = source + target.sql("copy", "sink")
    second = Job(
        spark, tmp_path, f"{sql}INSERT INTO copy SELECT id, amount FROM mid", name="second"
    )
    second.run([Leg(7, epochs=3)])
    copied = target.table("copy").scan().to_arrow().to_pylist()
    assert sorted(each["id"] for each in copied) == list(range(50))
    assert sum(each["amount"] for each in copied) == sum(each * 0.5 for each in range(50))


def test_rows_that_lack_a_required_value_are_dead_letters(
    target: Target, spark: SparkSession, tmp_path: Path
) -> None:
    target.stage(1, [(1, "a")])
    target.table().append(
        pa.table({"id": pa.array([1, None, 3], pa.int64()), "name": ["a", "b", "c"]})
    )
    columns = "(id BIGINT NOT NULL, name TEXT)"
    source = target.sql("t", "source", columns, bad_data="dead_letter", **EVERYTHING)
    job = Job(
        spark, tmp_path, source + target.sql("copy", "sink") + "INSERT INTO copy SELECT * FROM t"
    )
    job.run()
    assert target.rows("copy") == {1: "a", 3: "c"}
    assert [sum(each.counts.dead_rows.values()) for each in job.reports] == [1]


# ---------------------------------------------------------------- tables


def test_columns_are_added_and_other_changes_are_refused(target: Target) -> None:
    target.commit(1, target.stage(1, [(1, "a")]))
    target.commit(2, target.stage(2, [(2, "Rome")], "ID INT, city STRING"))
    rows = target.table().scan().to_arrow().sort_by("id").to_pylist()
    assert rows == [
        {"id": 1, "name": "a", "city": None},
        {"id": 2, "name": None, "city": "Rome"},
    ]
    with pytest.raises(UserError, match="column 'name' is of type int64"):
        target.stage(3, [(1, 2)], "id BIGINT, name BIGINT")


def test_a_null_in_a_required_column_is_the_error_of_its_row(target: Target) -> None:
    target.catalog.create_namespace(target.namespace)
    required = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    target.catalog.create_table((target.namespace, "t"), required)
    with pytest.raises(Exception, match="column 'id' of a row is null") as raised:
        target.stage(1, [(None, "a")])
    assert isinstance(translate(raised.value), MessageRefused)
    with pytest.raises(UserError, match="requires a value in column 'id'"):
        target.stage(1, [("a",)], "name STRING")


def test_files_are_written_again_when_partitions_change_before_the_commit(target: Target) -> None:
    staged = target.stage(1, [(1, "a"), (2, "b")])
    with target.table().update_spec() as spec:
        spec.add_field("name", "identity")
    target.commit(1, staged)
    assert target.rows() == {1: "a", 2: "b"}
    assert len([*target.table().scan("name = 'a'").plan_files()]) == 1


def test_the_first_rows_of_an_epoch_are_committed_alone(target: Target) -> None:
    staged = target.stage(1, [(each, "x") for each in range(10)])
    target.commit(1, staged.first(7))
    assert len(target.rows()) == 7


def test_a_file_ends_at_the_target_size(target: Target) -> None:
    rows = target.spark.range(200_000).selectExpr("id", "uuid() AS name").coalesce(1)
    sink = target.open(rolling_policy__file_size="1MB")
    staged = sink.stage(rows, JOB, Epoch(1), Generation(1))
    assert len(staged.files) > 2
    assert len([each for each in staged.files if each.bytes < 1_000_000]) <= 1


# ---------------------------------------------------------------- upserts


def test_upserts_replace_rows_by_key(target: Target) -> None:
    target.upsert(1, (1, "a", 1), (2, "b", 1), (3, "c", 1))
    target.upsert(2, (1, "a", -1), (1, "A", 1), (2, "b", -1), (4, "d", 1))
    assert target.rows() == {1: "A", 3: "c", 4: "d"}
    target.upsert(3, (3, "c", -1))
    assert target.rows() == {1: "A", 4: "d"}


def test_rows_without_a_key_are_upserted_too(target: Target) -> None:
    columns = f"{COLUMNS}, {CHANGE} INT"
    for epoch, changes in enumerate(([(None, "a", 1)], [(None, "a", -1), (None, "b", 1)]), start=1):
        staged = target.stage(epoch, changes, columns, sink=target.open(["id"]))
        target.commit(epoch, staged, target.open(["id"]))
    assert target.rows() == {None: "b"}


def test_an_upsert_is_applied_anew_when_others_commit_the_same_keys(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.upsert(1, (1, "a", 1))
    staged = target.upsert(2, (1, "a", -1), (1, "A", 1), commit=False)

    def others_append() -> None:
        target.table().append(numbered(1, 2))

    with before_each_commit(monkeypatch, others_append) as made:
        target.commit(2, staged, target.open(["id"]))
    assert len(made) == 2
    assert target.rows() == {1: "A", 2: "n2"}
    target.open(["id"]).sweep(JOB, Epoch(2))
    assert target.rows() == {1: "A", 2: "n2"}


def test_a_zombie_does_not_apply_an_upsert_twice(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.upsert(1, (1, "a", 1))
    staged = target.upsert(2, (1, "a", -1), (1, "A", 1), commit=False)
    successor = [
        lambda: target.commit(2, staged, target.open(["id"])),
    ]
    with before_each_commit(monkeypatch, *successor):
        target.commit(2, staged, target.open(["id"]))
    assert target.rows() == {1: "A"}
    assert len(target.table().snapshots()) == 2


def test_an_attempt_that_staged_nothing_completes_what_an_earlier_one_has_fixed(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.write(1, 1)
    staged = target.stage(2, [(2, "b")])
    with before_each_commit(monkeypatch, crash), pytest.raises(Crash):
        target.commit(2, staged)
    target.commit(2, StagedOutput())
    target.commit(3, StagedOutput())
    assert target.rows() == {1: "n1", 2: "b"}
    assert len(target.table().snapshots()) == 2


@pytest.mark.parametrize("attempts", [1, 2])
def test_an_upsert_is_completed_after_a_crash_before_its_commit(
    target: Target, monkeypatch: pytest.MonkeyPatch, attempts: int
) -> None:
    target.upsert(1, (1, "a", 1), (2, "b", 1))
    staged = target.upsert(2, (1, "a", -1), (1, "A", 1), commit=False)
    for _ in range(attempts):
        with before_each_commit(monkeypatch, crash), pytest.raises(Crash):
            target.commit(2, staged, target.open(["id"]))
        assert target.rows() == {1: "a", 2: "b"}
        target.open(["id"]).sweep(JOB, Epoch(1))
    target.commit(2, staged, target.open(["id"]))
    target.commit(2, staged, target.open(["id"]))
    assert target.rows() == {1: "A", 2: "b"}
    target.open(["id"]).sweep(JOB, Epoch(2))
    live = {each.file.file_path for each in target.table().scan().plan_files()}
    data = [f"file://{each}" for each in target.folder.glob("wh/**/data/**/0000000002-*.parquet")]
    assert set(data) == live
    assert target.rows() == {1: "A", 2: "b"}


def test_an_upsert_that_crashes_at_any_step_is_completed_once(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.upsert(1, (0, "n1", 1), (1, "kept", 1))
    staged: dict[int, StagedOutput] = {}

    def begin(epoch: int) -> None:
        changes = (0, f"n{epoch - 1}", -1), (0, f"n{epoch}", 1)
        staged[epoch] = target.upsert(epoch, *changes, commit=False)

    def act() -> None:
        epoch = max(staged)
        target.commit(epoch, staged[epoch], target.open(["id"]))

    def check() -> None:
        assert target.rows() == {0: f"n{max(staged)}", 1: "kept"}
        assert len(target.table().snapshots()) == max(staged)
        begin(max(staged) + 1)

    begin(2)
    # The record, manifests and their list, the metadata, the commit, the staged changes.
    assert crash_at_every_step(monkeypatch, WRITES, act, check) >= 6


def test_a_retraction_of_upserts_that_crashes_at_any_step_is_completed_once(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.upsert(1, (0, "a", 1), (1, "kept", 1))
    dead = [1]

    def begin() -> None:
        dead.append(dead[-1] + 1)
        target.upsert(dead[-1], (0, "a", -1), (0, "dead", 1))

    def act() -> None:
        target.open(["id"]).retract(JOB, Epoch(dead[-1] - 1), Epoch(dead[-1]))

    def check() -> None:
        assert target.rows() == {0: "a", 1: "kept"}
        begin()

    begin()
    assert crash_at_every_step(monkeypatch, WRITES, act, check) >= 6


def test_a_rollback_restores_the_rows_before_the_upserts(target: Target) -> None:
    target.upsert(1, (1, "a", 1), (2, "b", 1))
    target.upsert(2, (1, "a", -1), (1, "A", 1))
    target.upsert(3, (2, "b", -1))
    target.open(["id"]).retract(JOB, Epoch(1), Epoch(3))
    assert target.rows() == {1: "a", 2: "b"}
    target.upsert(4, (1, "a", -1), (1, "x", 1))
    assert target.rows() == {1: "x", 2: "b"}
    target.open(["id"]).retract(JOB, Epoch(0), Epoch(4))
    assert target.rows() == {}


def test_a_rollback_of_upserts_is_refused_when_others_wrote_since(target: Target) -> None:
    target.upsert(1, (1, "a", 1))
    target.upsert(2, (1, "a", -1), (1, "A", 1))
    target.table().append(numbered(7))
    with pytest.raises(SinkConflict, match="was written by others since"):
        target.open(["id"]).retract(JOB, Epoch(1), Epoch(2))
    assert target.rows() == {1: "A", 7: "n7"}


def test_a_rollback_of_upserts_is_refused_when_the_rows_before_have_expired(
    target: Target,
) -> None:
    target.upsert(1, (1, "a", 1))
    target.upsert(2, (1, "a", -1), (1, "A", 1))
    expire_all_but_newest(target.table())
    with pytest.raises(SinkConflict, match="has expired"):
        target.open(["id"]).retract(JOB, Epoch(1), Epoch(2))
    assert target.rows() == {1: "A"}


# ---------------------------------------------------------------- lookups


def test_a_lookup_table_has_its_current_rows(target: Target) -> None:
    target.commit(1, target.stage(1, [(1, "a"), (2, "b")]))
    columns = (Column(name="NAME", type="STRING"), Column(name="id", type="INT"))
    declared = LookupDeclaration("names", columns)
    lookup = IcebergLookup("names", IcebergLookupOptions.read(target.options()), declared.columns)
    lookup.check()
    rows = lookup.read(target.spark)
    assert rows.columns == ["NAME", "id"]
    assert sorted(tuple(each) for each in rows.collect()) == [("a", 1), ("b", 2)]
    target.table().delete("id = 1")
    assert [tuple(each) for each in lookup.read(target.spark).collect()] == [("b", 2)]
    target.table().delete("id = 2")
    assert lookup.read(target.spark).collect() == []


def test_a_lookup_table_that_does_not_match_is_refused(target: Target) -> None:
    target.stage(1, [(1, "a")])
    columns = (Column(name="city", type="STRING"),)
    lookup = IcebergLookup("names", IcebergLookupOptions.read(target.options()), columns)
    with pytest.raises(UserError, match=r"lookup table names: .* has no column 'city'"):
        lookup.read(target.spark)
    missing = IcebergLookup("names", IcebergLookupOptions.read(target.options("other")), columns)
    with pytest.raises(UserError, match="does not exist"):
        missing.check()


def test_rows_are_joined_with_a_table(target: Target, spark: SparkSession, tmp_path: Path) -> None:
    target.commit(1, target.stage(1, [(each, f"N{each}") for each in range(10)]))
    path = write_lines(tmp_path / "events.json", events(20))
    sql = source_table(path, EVENTS)
    lookup = target.sql("t", "lookup", "(id BIGINT PRIMARY KEY, name TEXT)")
    sql += lookup.replace("CREATE TABLE", "CREATE TEMPORARY TABLE")
    sql += target.sql("out", "sink")
    query = "SELECT e.id, t.name FROM events e JOIN t FOR SYSTEM_TIME AS OF e.at ON t.id = e.id"
    Job(spark, tmp_path, f"{sql}INSERT INTO out {query}").run([Leg(8, epochs=2)])
    assert target.rows("out") == {each: f"N{each}" for each in range(10)}
