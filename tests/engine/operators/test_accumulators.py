"""The state of an aggregate without a window: accumulators, or rows where there are none."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from resurgence.engine.epochs.engine import Engine
from resurgence.engine.operators.changelogs.updating import UpdatingOperator
from resurgence.ids import JobName
from resurgence.state.backend import StateBackend
from resurgence.state.inspection.checkpoints import checkpoint_of, kept_checkpoints
from resurgence.state.inspection.state_database import StateDatabase
from tests.engine.harness import (
    Job,
    Leg,
    SetClock,
    batch,
    forget_cached_state,
    sink_table,
    source_table,
    state_files,
    timestamp,
    write_lines,
)
from tests.sql.changelog import merge

USERS, ROWS, EPOCHS = 4, 60, 3
COLUMNS = "id BIGINT, user BIGINT, price BIGINT, cost DOUBLE"
ANY_CASE = "collate(CASE WHEN id % 2 = 0 THEN 'a' ELSE 'A' END, 'UTF8_LCASE')"
FLOATS = "sum(cost) AS total, avg(cost) AS mean, stddev(cost) AS spread, corr(cost, id) AS c"


def job(spark: SparkSession, folder: Path, calls: str, *, more: str = "") -> Job:
    """A job that aggregates `events` by user into a changelog."""
    sql = source_table(folder / "in.json", COLUMNS, delay=None) + more
    sql += sink_table(
        folder / "out.json",
        name="results",
        connector="single_file",
        more=", format = 'debezium_json'",
    )
    sql += f"INSERT INTO results SELECT user, {calls} FROM events GROUP BY user"
    return Job(spark, folder, sql)


def rows(count: int, users: int = USERS) -> list[dict[str, object]]:
    rng = random.Random(count)
    return [
        {
            "id": each,
            "user": rng.choice([None, *range(users)]),
            "price": each * 7 % 11,
            "cost": rng.choice([None, -0.0, rng.random(), rng.uniform(-1, 1) * 1e15]),
        }
        for each in range(count)
    ]


def lines(folder: Path) -> list[str]:
    return (folder / "out.json").read_text().splitlines()


@pytest.mark.parametrize(
    ("calls", "is_constant"),
    [
        (
            "count(*) AS n, sum(price) AS prices, max(price) AS most, bool_or(price > 7) AS dear,"
            " min(cost) AS least, avg(CAST(price AS DECIMAL(10, 2))) AS exact,"
            " count(*) FILTER (WHERE price > 3) AS some, bit_xor(price) AS bits,"
            f" avg(price) AS mean_price, max_by(price, id) AS newest, {FLOATS}",
            True,
        ),
        ("count(DISTINCT price) AS n", False),
        ("count(*) AS n, min(price) AS least, sort_array(collect_list(price)) AS prices", False),
    ],
)
def test_a_group_stores_one_row_per_epoch_if_its_aggregates_have_accumulators(
    spark: SparkSession, tmp_path: Path, calls: str, is_constant: bool
) -> None:
    path = write_lines(tmp_path / "in.json", rows(ROWS))
    held: list[int] = []

    def note(engine: Engine) -> None:
        held.append(sum(each.rows for each in state_files(engine)))

    job(spark, tmp_path, calls).run([Leg(rows=ROWS // EPOCHS, parallelism=2)], note)
    assert len(held) == EPOCHS
    assert held[-1] == ((USERS + 1) * EPOCHS if is_constant else ROWS)
    batch(spark, path, COLUMNS, "SELECT * FROM events")
    answer = f"SELECT user, {calls} FROM events GROUP BY user"
    expected = spark.sql(f"SELECT to_json(struct(*)) FROM ({answer})").collect()
    found = merge(lines(tmp_path))
    assert in_order(found) == in_order([each[0] for each in expected])


def in_order(texts: Iterable[str]) -> list[list[tuple[str, object]]]:
    """Rows in an order, without nulls, and with numbers to nine digits: the last ones depend on
    Spark's order of rows.
    """
    read = [
        {name: near(value) for name, value in json.loads(each).items() if value is not None}
        for each in texts
    ]
    return sorted((sorted(each.items()) for each in read), key=repr)


def near(value: object) -> object:
    return f"{value:.8g}" if isinstance(value, float) else value


def test_a_replay_at_another_parallelism_emits_the_same_bits(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Two checkpoints are lost, whose output the sink holds. Later epochs retract what the replay
    has computed.
    """
    emitted = []
    for first, second in ((2, None), (2, 3), (3, 1)):
        folder = tmp_path / f"{first}-{second}"
        folder.mkdir()
        write_lines(folder / "in.json", rows(400, users=7))
        made = job(spark, folder, FLOATS)
        engine = made.open(Leg(60, first))
        for _ in range(4):
            assert engine.run_epoch() is not None
        if second is not None:
            lost = frozenset(each.path for each in state_files(engine) if each.epoch >= 3)
            engine = made.open(Leg(60, second), damaged=lost)
            assert engine.epoch == 2
        while not engine.finished:
            assert engine.run_epoch() is not None
        emitted.append(Counter(lines(folder)))
    assert emitted[0] == emitted[1] == emitted[2]


@pytest.mark.parametrize("calls", [FLOATS, "max(cost) AS most"])
def test_floating_point_numbers_are_aggregated_in_order_and_without_a_hash_map(
    spark: SparkSession, tmp_path: Path, calls: str
) -> None:
    """A hash map is spilled and merged above some size, which adds them in another order."""
    write_lines(tmp_path / "in.json", rows(1))
    (operator,) = [
        each
        for each in job(spark, tmp_path, calls).open()._pipeline.operators.values()
        if isinstance(each, UpdatingOperator)
    ]
    schema = operator.input_shapes[0].schema
    read = spark.createDataFrame([(None,) * len(schema)], schema)
    delta = operator._query.delta([read], 0)
    assert delta is not None
    plan = delta._jdf.queryExecution().executedPlan().toString()
    assert "SortAggregate" in plan
    assert "HashAggregate" not in plan
    (sort,) = [each for each in plan.splitlines() if "Sort [" in each]
    assert "is_negative_zero" in sort


def test_a_damaged_checkpoint_is_replayed_to_the_same_changelog(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_lines(tmp_path / "in.json", rows(300))
    made = job(spark, tmp_path, FLOATS)
    engine = made.open(Leg(60, 2))
    for _ in range(4):
        assert engine.run_epoch() is not None
    newest = [each.path for each in state_files(engine) if each.epoch >= 3]
    assert newest
    forget_cached_state(spark)
    engine = made.open(Leg(60, 3), damaged=frozenset(newest))
    assert engine.epoch == 2
    while not engine.finished:
        assert engine.run_epoch() is not None
    found = merge(lines(tmp_path))
    batch(spark, tmp_path / "in.json", COLUMNS, "SELECT * FROM events")
    answer = spark.sql(f"SELECT user, {FLOATS} FROM events GROUP BY user")
    expected = [each[0] for each in answer.selectExpr("to_json(struct(*))").collect()]
    assert in_order(found) == in_order(expected)


@dataclass
class Merges:
    """Lets every epoch adopt what was being merged after the one before."""

    adopted: int = 0
    paths: frozenset[str] = frozenset()

    def after_epoch(self, engine: Engine) -> None:
        paths = frozenset(each.path for each in state_files(engine))
        self.adopted += not self.paths <= paths
        self.paths = paths
        running = engine.compaction._compactor.running
        if running is not None:
            running.written.result(60)


@pytest.mark.parametrize("compacts", [False, True])
def test_an_idle_group_expires_whether_or_not_files_were_merged(
    spark: SparkSession, tmp_path: Path, compacts: bool
) -> None:
    """User 0 is touched by every epoch, each other one by every fifth, after an hour and a half."""
    hour, epochs = timedelta(hours=1), 12
    users = [[0, 1 + number % 5] for number in range(epochs)]
    write_lines(tmp_path / "in.json", ({"user": each} for epoch in users for each in epoch))
    made = job(spark, tmp_path, "count(*) AS n", more="SET updating_ttl = INTERVAL '1 hour';\n")
    made.clock = clock = SetClock(datetime(2024, 1, 1, tzinfo=UTC))
    made.settings = {"checkpoint.compact_files": "2" if compacts else "1000"}
    merges = Merges()

    def next_epoch(engine: Engine) -> None:
        clock.at += hour * 0.3
        merges.after_epoch(engine)

    made.run([Leg(2, 1, epochs=5), Leg(2, 3, epochs=4), Leg(2, 2)], next_epoch)
    assert (merges.adopted > 1) is compacts
    emitted: dict[int, list[int]] = {}
    for each in map(json.loads, lines(tmp_path)):
        if each["after"] is not None:
            emitted.setdefault(each["after"]["user"], []).append(each["after"]["n"])
    idle = [sum(user in epoch for epoch in users) for user in range(1, 6)]
    assert emitted[0] == [*range(1, epochs + 1)]
    assert [emitted[user] for user in range(1, 6)] == [[1] * times for times in idle]


@pytest.mark.parametrize("compacts", [False, True])
def test_a_delete_of_an_unknown_row_cancels_the_same_whether_or_not_files_were_merged(
    spark: SparkSession, tmp_path: Path, compacts: bool
) -> None:
    def row(user: int, price: int) -> dict[str, object]:
        return {"id": price, "user": user, "price": price, "cost": None}

    write_lines(
        tmp_path / "in.json",
        [
            {"before": None, "after": row(1, 5), "op": "c"},
            {"before": row(1, 3), "after": None, "op": "d"},
            {"before": None, "after": row(2, 7), "op": "c"},
            {"before": None, "after": row(1, 1), "op": "c"},
        ],
    )
    made = job(spark, tmp_path, "count(*) AS n, sum(price) AS total")
    made.sql = made.sql.replace("type = 'source'", "type = 'source', format = 'debezium_json'")
    made.settings = {"checkpoint.compact_files": "2" if compacts else "1000"}
    merges = Merges()
    made.run([Leg(1, 1)], merges.after_epoch)
    assert merges.adopted == compacts
    found = [json.loads(each) for each in merge(lines(tmp_path))]
    assert {each["user"]: (each["n"], each["total"]) for each in found} == {1: (1, 3), 2: (1, 7)}


NET = (
    "count(*) AS n, count(cost) AS costs, sum(price) AS prices, avg(price) AS mean,"
    " sum(CAST(price AS DECIMAL(5, 1))) AS exact, avg(CAST(price AS DECIMAL(5, 1))) AS exact_mean,"
    " count_if(price > 3) AS many, sum(price) FILTER (WHERE id % 2 = 0) AS even"
)


@pytest.mark.parametrize("group", ["GROUP BY user", ""])
def test_over_a_changelog_retractions_are_subtracted(
    spark: SparkSession, tmp_path: Path, group: str
) -> None:
    """Some groups lose all their rows, and some get new ones."""
    rng = random.Random(5)
    left: list[dict[str, object]] = []
    changes: list[dict[str, object]] = []
    for each in rows(120, users=12):
        left.append(each)
        changes.append({"before": None, "after": each, "op": "c"})
        while left and rng.random() < 0.45:
            gone = left.pop(rng.randrange(len(left)))
            changes.append({"before": gone, "after": None, "op": "d"})
    write_lines(tmp_path / "in.json", changes)
    write_lines(tmp_path / "left.json", left)
    made = job(spark, tmp_path, NET)
    sql = made.sql.replace("type = 'source'", "type = 'source', format = 'debezium_json'")
    if not group:
        sql = sql.replace("SELECT user, ", "SELECT ").replace("GROUP BY user", "")
    made = Job(spark, tmp_path, sql, settings={"checkpoint.compact_files": "2"})
    made.run([Leg(40, 2, epochs=3), Leg(40, 3)])
    batch(spark, tmp_path / "left.json", COLUMNS, "SELECT * FROM events")
    shown = "user, " if group else ""
    answer = spark.sql(f"SELECT {shown}{NET} FROM events {group}")
    expected = [each[0] for each in answer.selectExpr("to_json(struct(*))").collect()]
    assert in_order(merge(lines(tmp_path))) == in_order(expected)
    engine = made.open(Leg())
    groups = len({each["user"] for each in rows(120, users=12)}) if group else 1
    assert sum(each.rows for each in state_files(engine)) <= groups * len(made.reports)
    (operator,) = [each for each in engine._pipeline.operators.values() if each.live is not None]
    assert isinstance(operator, UpdatingOperator)
    merged = operator._query.merged(operator.live, operator.live.paths, 0)
    assert merged.count() == len(expected), "a group without rows is dropped"


@pytest.mark.parametrize("calls", ["count(*) AS n", "count(DISTINCT price) AS n"])
def test_an_epoch_reports_whether_its_tasks_found_state_on_their_machine(
    spark: SparkSession, tmp_path: Path, calls: str
) -> None:
    write_lines(tmp_path / "in.json", rows(60))
    engine = job(spark, tmp_path, calls).open(Leg(10, 1))
    reads = []
    for _ in range(3):
        report = engine.run_epoch()
        assert report is not None
        reads.append(report.cache)
    assert [each.misses for each in reads] == [0, 0, 0]
    assert reads[2].hits > reads[1].hits > 0
    forget_cached_state(spark)
    report = engine.run_epoch()
    assert report is not None
    assert report.cache.misses == 3


def test_a_query_over_the_state_shows_one_row_per_group(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_lines(tmp_path / "in.json", rows(60))
    made = job(spark, tmp_path, "count(*) AS n")
    made.run([Leg(rows=20)])
    backend = StateBackend(made.store, JobName(made.name))
    views = kept_checkpoints(backend)
    with StateDatabase(backend, checkpoint_of(views, None), views) as database:
        (table,) = [each.name for each in database.tables if each.table == "rows"]
        _, found = database.query(f"SELECT count(*), sum(__part_0), max(__epoch) FROM {table}")
        assert list(found) == [(USERS + 1, 60, 3)]


@pytest.mark.parametrize(
    "calls",
    [
        "sum(cost) AS total, avg(cost) AS mean",
        "max(cost * 0) AS zero",
        f"max({ANY_CASE}) AS most, min_by(id, {ANY_CASE}) AS first",
        f"max({ANY_CASE}) AS most, count(DISTINCT price) AS n",
    ],
)
def test_the_order_of_the_input_does_not_change_the_bits(
    spark: SparkSession, tmp_path: Path, calls: str
) -> None:
    orders: Sequence[list[dict[str, object]]] = [rows(200), rows(200)[::-1]]
    emitted = []
    for number, each in enumerate(orders):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_lines(folder / "in.json", each)
        job(spark, folder, calls).run()
        emitted.append(Counter(lines(folder)))
    assert emitted[0] == emitted[1]


@pytest.mark.parametrize("delay", [None, "5 seconds"])
def test_first_and_last_store_one_row_per_group_and_return_the_batch_answer(
    spark: SparkSession, tmp_path: Path, delay: str | None
) -> None:
    """By event time and then by value; without event time by value."""
    columns = f"{COLUMNS}, at TIMESTAMP"
    start = datetime(2024, 1, 1)
    given = rows(ROWS)
    for number, each in enumerate(given):
        each["at"] = timestamp(start + timedelta(seconds=number * 7 % 10))
        each["price"] = each["price"] if number % 4 else None
    path = write_lines(tmp_path / "in.json", given)
    order = "price" if delay is None else "at, price"
    calls = {
        "first(price)": f"min(struct({order})).price",
        "last(price)": f"max(struct({order})).price",
        "last(price, true)": f"max(struct({order})) FILTER (WHERE price IS NOT NULL).price",
        "any_value(price) FILTER (WHERE id > 9)": (
            f"min(struct({order})) FILTER (WHERE id > 9).price"
        ),
        "first(price ORDER BY cost)": "min(struct(cost, price)).price",
    }
    made = job(
        spark, tmp_path, ", ".join(f"{each} AS c{place}" for place, each in enumerate(calls))
    )
    made.sql = made.sql.replace(
        source_table(tmp_path / "in.json", COLUMNS, delay=None),
        source_table(tmp_path / "in.json", columns, delay=delay),
    )
    held: list[int] = []
    made.run(
        [Leg(ROWS // EPOCHS, epochs=2), Leg(ROWS // EPOCHS, 3)],
        lambda engine: held.append(sum(each.rows for each in state_files(engine))),
    )
    assert held == [(USERS + 1) * number for number in (1, 2, 3)]
    answers = ", ".join(f"{each} AS c{place}" for place, each in enumerate(calls.values()))
    found = batch(spark, path, columns, f"SELECT user, {answers} FROM events GROUP BY user")
    expected = [each[0] for each in found.selectExpr("to_json(struct(*))").collect()]
    assert in_order(merge(lines(tmp_path))) == in_order(expected)
