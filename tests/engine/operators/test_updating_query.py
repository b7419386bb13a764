"""Updating queries: however the input is split into epochs, the changelog adds up to the batch
answer.
"""

from __future__ import annotations

import ast
import itertools
import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from resurgence.graph.specs.updating_query import UpdatingInput, UpdatingQuerySpec
from resurgence.graph.values import Expression
from resurgence.ids import OperatorId
from tests.engine.updating import Row, UpdatingJob, exact, kept, query

EVENTS = "user STRING, item INT, price DOUBLE"
DIMENSION = "id BIGINT, name STRING"
FACTS = "id INT, amount DECIMAL(10)"

AGGREGATES = query(
    "SELECT user, count(*) AS n, count(DISTINCT item) AS items, sum(price) AS total,"
    " avg(price) AS mean, min(price) AS low, stddev(price) AS spread, array_agg(item) AS listed"
    " FROM {input_0} GROUP BY user HAVING count(*) > 1",
    kept(EVENTS, "user"),
)
NEWEST = query(
    "SELECT user, item, price FROM (SELECT *, row_number() OVER"
    " (PARTITION BY user ORDER BY item DESC, price) AS rank FROM {input_0}) WHERE rank <= 2",
    kept(EVENTS, "user"),
)
DISTINCT = query("SELECT DISTINCT user, item FROM {input_0}", kept("user, item", "user", "item"))
GLOBAL = query(
    "SELECT count(*) AS n, sum(item) AS total, max(user) AS last FROM {input_0}", kept(EVENTS)
)


def join(kind: str, columns: str = "a.id, a.name, b.id AS fact, b.amount") -> UpdatingQuerySpec:
    return query(
        f"SELECT {columns} FROM {{input_0}} a {kind} JOIN {{input_1}} b ON a.id = b.id",
        kept(DIMENSION, "id"),
        kept(FACTS, "id"),
    )


def updating(operator: UpdatingQuerySpec) -> UpdatingQuerySpec:
    """The same query over inputs that change."""
    inputs = tuple(each.model_copy(update={"is_updating": True}) for each in operator.inputs)
    return operator.model_copy(update={"inputs": inputs})


def event(rng: random.Random) -> Row:
    price = rng.choice([None, 0.0, float("nan"), rng.random(), rng.random() * 1e12])
    return (rng.choice([None, "", *"abcdefgh"]), rng.randrange(4), price)


def dimension(rng: random.Random) -> Row:
    return (rng.choice([None, *range(6)]), rng.choice("xyz"))


def fact(rng: random.Random) -> Row:
    return (rng.choice([None, *range(8)]), Decimal(rng.randrange(50)))


Maker = Callable[[random.Random], Row]
CASES: dict[str, tuple[UpdatingQuerySpec, tuple[str, ...], tuple[Maker, ...]]] = {
    "aggregates": (AGGREGATES, (EVENTS,), (event,)),
    "newest": (NEWEST, (EVENTS,), (event,)),
    "distinct": (DISTINCT, ("user STRING, item INT",), (lambda rng: event(rng)[:2],)),
    "global": (GLOBAL, (EVENTS,), (event,)),
    **{
        f"{kind.lower()} join": (join(kind), (DIMENSION, FACTS), (dimension, fact))
        for kind in ("INNER", "LEFT", "RIGHT", "FULL")
    },
    **{
        f"{kind.lower()} join": (
            join(f"LEFT {kind}", "a.id, a.name"),
            (DIMENSION, FACTS),
            (dimension, fact),
        )
        for kind in ("SEMI", "ANTI")
    },
}
SIMILAR = ("right join", "semi join", "left join", "distinct", "global")
"""Others go the same ways."""


@pytest.mark.parametrize(
    ("case", "changing"),
    [
        *(
            pytest.param(case, True, marks=[pytest.mark.long] if case in SIMILAR else [])
            for case in CASES
        ),
        *((case, False) for case in ("aggregates", "full join")),
    ],
)
def test_the_changelog_adds_up_to_the_batch_answer_after_every_epoch(
    spark: SparkSession, tmp_path: Path, case: str, changing: bool
) -> None:
    operator, schemas, makers = CASES[case]
    rng = random.Random(f"{case} {changing}")
    job = UpdatingJob(spark, tmp_path, updating(operator) if changing else operator, schemas)
    held: list[list[Row]] = [[] for _ in makers]
    for number in range(4):
        epoch: list[list[Row] | None] = []
        for rows, make in zip(held, makers, strict=True):
            added = [make(rng) for _ in range(rng.choice([0, 1, 5, 20]))]
            gone = rng.sample(rows, rng.randrange(len(rows) + 1)) if changing else []
            for row in gone:
                del rows[next(place for place, each in enumerate(rows) if each is row)]
            rows.extend(added)
            if changing:
                added = [(*row, 1) for row in added] + [(*row, -1) for row in gone]
                rng.shuffle(added)
            epoch.append(added or None)
        job.run(*epoch)
        shuffled = [rng.sample(rows, len(rows)) for rows in held]
        if case == "aggregates":
            assert_close(job.view, job.batch(*shuffled))
        elif any(held):
            assert job.view == job.batch(*shuffled)
        if number == 1:
            job.restart(rng.choice([1, 3, 4]))
            job.compact()


SUMS = query(
    "SELECT user, sum(price) AS total, avg(price) AS mean, array_agg(item) AS listed"
    " FROM {input_0} GROUP BY user",
    kept(EVENTS, "user"),
)


def test_sums_of_floating_point_numbers_do_not_depend_on_the_cut(
    spark: SparkSession, tmp_path: Path
) -> None:
    rng = random.Random(5)
    rows: list[Row] = [
        (rng.choice("ab"), rng.randrange(9), rng.choice([rng.random(), 1e16, -1e16, 0.1]))
        for _ in range(60)
    ]
    whole = UpdatingJob(spark, tmp_path / "whole", SUMS, (EVENTS,), parallelism=1)
    whole.run(rows)
    rng.shuffle(rows)
    cut = UpdatingJob(spark, tmp_path / "cut", SUMS, (EVENTS,), parallelism=2)
    for start, end in itertools.pairwise((0, 7, 40, 60)):
        cut.run(rows[start:end])
        cut.compact()
    assert cut.view == whole.view


def test_changes_are_found_without_a_shuffle(spark: SparkSession, tmp_path: Path) -> None:
    operator, schemas, _ = CASES["full join"]
    job = UpdatingJob(spark, tmp_path, updating(operator), schemas)
    job.run([(1, "a", 1), (2, "b", 1)], [(1, Decimal(5), 1)])
    delta = job.query.delta([None, job._frame(1, [(2, Decimal(7), 1)])], 0)
    assert delta is not None
    changes = job.take(delta)
    assert changes is not None
    plan = changes._jdf.queryExecution().executedPlan().toString()
    assert "Exchange" not in plan
    assert "SortMergeJoin" in plan
    assert "InMemoryTableScan" in plan
    job.query.release()


def test_a_global_aggregate_has_no_row_before_the_first_input(
    spark: SparkSession, tmp_path: Path
) -> None:
    operator = updating(GLOBAL).model_copy(update={"ttl_micros": 100})
    job = UpdatingJob(spark, tmp_path, operator, (EVENTS,))
    job.run([])
    job.run(None)
    assert job.changes == []
    job.run([("a", 1, 1.0, 1)])
    assert job.changes == [("(1, 1, 'a')", 1)]
    job.run([("a", 1, 1.0, -1)])
    job.compact()
    job.restart(3)
    assert list(job.view) == ["(0, None, None)"]
    job.time = 100
    job.run([("b", 2, 1.0, 1)])
    assert list(job.view) == ["(1, 2, 'b')"]
    # Forgotten: what was given stays, and it begins anew.
    job.time = 201
    job.run([("c", 3, 1.0, 1)])
    assert job.changes == [("(1, 3, 'c')", 1)]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_idle_keys_expire_whatever_is_compacted_meanwhile(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    counts = "SELECT user, count(*) AS n FROM {input_0} GROUP BY user"
    operator = query(counts, kept("user", "user"), ttl_micros=100)
    job = UpdatingJob(spark, tmp_path, operator, ("user STRING",))
    held: dict[str, int] = {}
    touched_at: dict[str, int] = {}
    for _ in range(8):
        job.time += rng.choice([0, 30, 60, 101])
        users = rng.choices("abcdef", k=3)
        wanted = []
        for user, rows in Counter(users).items():
            if job.time - touched_at.get(user, job.time) > 100:
                held[user] = 0
            if held.get(user):
                wanted.append((exact((user, held[user])), -1))
            held[user] = held.get(user, 0) + rows
            wanted.append((exact((user, held[user])), 1))
            touched_at[user] = job.time
        job.view = Counter(row for row, change in wanted if change < 0)
        job.run([(user,) for user in users])
        assert sorted(job.changes) == sorted(wanted)
        job.compact(frozenset(each.path for each in job.live.files if rng.random() < 0.5))
        if rng.random() < 0.3:
            job.restart(rng.choice([1, 3]))


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_keys_of_a_join_expire_on_both_sides_at_once(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """A row of either side keeps the rows of both. Who comes after they were forgotten meets none."""
    rng = random.Random(seed)
    operator = join("FULL").model_copy(update={"ttl_micros": 100})
    job = UpdatingJob(spark, tmp_path, operator, (DIMENSION, FACTS))
    held: dict[int, tuple[list[Row], list[Row]]] = {}
    touched_at: dict[int, int] = {}

    def joined(key: int) -> Counter[str]:
        left, right = held.get(key, ([], []))
        nothing: list[Row] = [(None, None)] if left or right else []
        pairs = itertools.product(left or nothing, right or nothing)
        return Counter(exact((*one, *other)) for one, other in pairs)

    for _ in range(8):
        job.time += rng.choice([0, 30, 60, 101])
        sides: tuple[list[Row], list[Row]] = (
            [(rng.randrange(4), rng.choice("xyz")) for _ in range(rng.randrange(3))],
            [(rng.randrange(4), Decimal(rng.randrange(5))) for _ in range(rng.randrange(3))],
        )
        touched = {key for rows in sides for key, _ in rows if isinstance(key, int)}
        for key in touched:
            if job.time - touched_at.get(key, job.time) > 100:
                del held[key]
        before = sum((joined(key) for key in touched), Counter[str]())
        for key in touched:
            touched_at[key] = job.time
            for kept_rows, rows in zip(held.setdefault(key, ([], [])), sides, strict=True):
                kept_rows.extend(row for row in rows if row[0] == key)
        after = sum((joined(key) for key in touched), Counter[str]())
        job.view = before.copy()
        job.run(*sides)
        assert job.view == after
        job.compact(frozenset(each.path for each in job.live.files if rng.random() < 0.5))
        if rng.random() < 0.3:
            job.restart(rng.choice([1, 3]))


def test_changes_of_one_query_are_the_input_of_another(spark: SparkSession, tmp_path: Path) -> None:
    inner = UpdatingJob(
        spark,
        tmp_path / "inner",
        query(
            "SELECT user, count(*) AS n FROM {input_0} GROUP BY user", kept("user, item", "user")
        ),
        ("user STRING, item INT",),
    )
    outer = UpdatingJob(
        spark,
        tmp_path / "outer",
        query(
            "SELECT n, count(*) AS users FROM {input_0} GROUP BY n",
            kept("user, n", "n", updating=True),
        ),
        ("user STRING, n BIGINT",),
        parallelism=1,
    )
    rows = [("a", 1), ("b", 1), ("a", 2), ("c", 3), ("c", 4), ("b", 5), ("b", 6)]
    for start, end in itertools.pairwise((0, 3, 4, 7)):
        inner.run(rows[start:end])
        outer.run([(*ast.literal_eval(row), change) for row, change in inner.changes])
    assert outer.view == Counter({"(2, 2)": 1, "(3, 1)": 1})


def test_columns_of_any_type_survive_a_round_trip(spark: SparkSession, tmp_path: Path) -> None:
    schema = (
        "id INT, bytes BINARY, lookup MAP<STRING, DOUBLE>, list ARRAY<FLOAT>,"
        " record STRUCT<a: DATE, b: MAP<INT, INT>>, at TIMESTAMP, local TIMESTAMP_NTZ"
    )
    names = ("id", "bytes", "lookup", "list", "record", "at", "local")
    operator = query(
        "SELECT * FROM {input_0}", kept(", ".join(names), "id", "bytes", updating=True)
    )
    noon = datetime(1931, 5, 6, 12, 0, 0, 7)
    full: Row = (
        1,
        b"\0\xff",
        {"x": -0.0, "a": None},
        [0.5, None],
        (noon.date(), {2: 1}),
        noon,
        noon,
    )
    turned: Row = (*full[:2], {"a": None, "x": -0.0}, *full[3:])
    empty: Row = (None,) * len(names)
    job = UpdatingJob(spark, tmp_path, operator, (schema,))
    job.run([(*full, 1), (*full, 1), (*empty, 1)])
    job.compact()
    job.run([(*turned, -1)])
    stored = spark.createDataFrame([full, empty], schema).collect()
    assert _unordered(job.view) == _unordered(Counter(exact(each) for each in stored))


def _unordered(rows: Counter[str]) -> Counter[str]:
    """Without the order of a map's entries, which means nothing."""
    return Counter(row.replace("{'a': None, 'x': -0.0}", "{'x': -0.0, 'a': None}") for row in rows)


def test_rows_without_columns_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    nothing = UpdatingInput(operator=OperatorId("source"), columns=(), keys=())
    operator = query("SELECT count(*) AS n FROM {input_0}", nothing)
    job = UpdatingJob(spark, tmp_path, operator, ("user STRING",))
    job.run([("a",), ("b",)])
    job.compact()
    job.run([("c",)])
    assert sorted(job.changes) == [("(2,)", -1), ("(3,)", 1)]


def test_a_column_of_nulls_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    columns = (Expression(name="user", sql="user"), Expression(name="none", sql="NULL"))
    given = UpdatingInput(operator=OperatorId("source"), columns=columns, keys=("user", "none"))
    operator = query("SELECT user, none, count(*) AS n FROM {input_0} GROUP BY ALL", given)
    job = UpdatingJob(spark, tmp_path, operator, ("user STRING",))
    job.run([("a",)])
    job.run([("a",)])
    assert list(job.view) == ["('a', None, 2)"]


def test_keys_that_cannot_be_compared_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    operator = query("SELECT count(*) FROM {input_0}", kept("lookup", "lookup"))
    with pytest.raises(AnalysisException, match="MAP"):
        UpdatingJob(spark, tmp_path, operator, ("lookup MAP<STRING, INT>",))


def assert_close(given: Counter[str], wanted: Counter[str]) -> None:
    """The same rows, but for the last digits of sums of floating-point numbers and the order of
    lists: batch has its own.
    """
    assert _rounded(given) == _rounded(wanted)


def _rounded(rows: Counter[str]) -> list[str]:
    scope = {"nan": float("nan")}
    found = []
    for row in rows.elements():
        *plain, listed = eval(row, scope)
        found.append(
            repr(
                (
                    [f"{each:.9g}" if isinstance(each, float) else each for each in plain],
                    sorted(listed),
                )
            )
        )
    return sorted(found)
