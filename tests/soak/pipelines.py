"""Random pipelines: streams, a changelog and a lookup table, and queries over them in two spellings,
ours and Spark's batch SQL.

Everything is derived from one seed. Rows are out of order by less than the watermark's delay, so that
none is late however the input is split into epochs, and floating-point values are eighths, so that
sums are exact in any order.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tests.sql.cases import Case, Header
from tests.sql.inputs import Record

Chance = random.Random

_START = datetime(2024, 2, 28, 22)
_DELAY = "30 seconds"
_STREAM = (
    "at TIMESTAMP NOT NULL, id BIGINT, k BIGINT, t TEXT, x BIGINT, d DECIMAL(10,2), f DOUBLE,"
    " flag BOOLEAN"
)
_CHANGES = "id BIGINT, k BIGINT, x BIGINT, t TEXT"
_WORDS = ("ant", "bee", "cat", "Äpfel 🍎", "a b", "", None)


@dataclass(frozen=True)
class Query:
    """One INSERT, and the batch query that says what its sink holds at the end."""

    kind: str
    sql: str
    expected: str
    is_changelog: bool = False


@dataclass(frozen=True)
class RandomPipeline:
    """A whole pipeline, made of parts that can be left out."""

    seed: int
    rows: int
    queries: tuple[Query, ...]

    def with_queries(self, queries: Sequence[Query]) -> RandomPipeline:
        return replace(self, queries=tuple(queries))

    def case(self) -> Case:
        """As a SQL case, which can be run and compared."""
        expected = {f"q{number}": each.expected for number, each in enumerate(self.queries)}
        return Case(
            name=f"seed {self.seed}",
            header=Header({"undeclared": "", "functions": ""}, [], self._inputs()),
            pipeline=_sources() + "".join(map(_insert, range(len(self.queries)), self.queries)),
            expected=expected,
        )

    def _inputs(self) -> list[tuple[str, str, bool, list[Record]]]:
        rng = Chance(self.seed)
        streams = [(name, _STREAM, False, _stream(rng, self.rows)) for name in ("a", "b")]
        changes = _changes(rng, self.rows)
        lookup: list[Record] = [{"k": k, "name": f"name {k}"} for k in range(0, 12, 2)]
        return [
            *streams,
            ("c", _CHANGES, False, changes),
            ("l", "k BIGINT, name TEXT", True, lookup),
        ]


def random_pipeline(seed: int) -> RandomPipeline:
    """Two to five queries over a few hundred rows."""
    rng = Chance(f"pipeline {seed}")
    makers = rng.sample(_MAKERS, rng.randint(2, 5))
    queries = tuple(make(rng) for make in makers)
    return RandomPipeline(seed, rng.choice([60, 150, 400]), queries)


# ---------------------------------------------------------------- inputs


def _stream(rng: Chance, count: int) -> list[Record]:
    at, rows = _START, list[Record]()
    for number in range(count):
        at += timedelta(seconds=rng.choice([0, 1, 3, 10, 60, 60, 400]))
        early = at - timedelta(milliseconds=rng.randint(0, 25_000))
        rows.append(
            {
                "at": early.isoformat(),
                "id": number,
                "k": rng.choice([*range(6), None]),
                "t": rng.choice(_WORDS),
                "x": rng.choice([None, 0, *(rng.randint(-100, 100) for _ in range(8))]),
                "d": rng.choice([None, rng.randint(-9999, 9999) / 100]),
                "f": rng.randint(-800, 800) / 8,
                "flag": rng.choice([True, False, None]),
            }
        )
    return rows


def _changes(rng: Chance, count: int) -> list[Record]:
    live, rows = dict[int, Record](), list[Record]()
    for _ in range(count):
        key = rng.randint(1, max(3, count // 6))
        before = live.pop(key, None)
        after: Record | None = {
            "id": key,
            "k": rng.choice([*range(6), None]),
            "x": rng.randint(-50, 50),
            "t": rng.choice(_WORDS),
        }
        if before is not None and rng.random() < 0.3:
            after = None
        rows.append(
            {
                "before": before,
                "after": after,
                "op": "c" if before is None else "u" if after else "d",
            }
        )
        if after is not None:
            live[key] = after
    return rows


def _sources() -> str:
    streams = "".join(
        f"CREATE TABLE {name} ({_STREAM}, WATERMARK FOR at AS at - INTERVAL '{_DELAY}') WITH ("
        f"connector = 'single_file', path = '$input/{name}.json', format = 'json',"
        " type = 'source');\n"
        for name in ("a", "b")
    )
    return (
        streams
        + f"CREATE TABLE c ({_CHANGES.replace('id BIGINT', 'id BIGINT PRIMARY KEY')}) WITH ("
        "connector = 'single_file', path = '$input/c.json', format = 'debezium_json',"
        " type = 'source');\n"
        "CREATE TEMPORARY TABLE l (k BIGINT PRIMARY KEY, name TEXT) WITH ("
        "connector = 'filesystem', path = '$input/l', format = 'parquet', type = 'lookup');\n"
    )


def _insert(number: int, query: Query) -> str:
    name = f"q{number}"
    options = (
        f"connector = 'single_file', path = '$output/{name}.changes', format = 'debezium_json'"
        if query.is_changelog
        else f"connector = 'filesystem', path = '$output/{name}', format = 'parquet'"
    )
    return (
        f"CREATE TABLE {name} WITH ({options}, type = 'sink');\nINSERT INTO {name} {query.sql};\n"
    )


# ---------------------------------------------------------------- expressions

_KEYS = ("k", "t", "flag", "x % 3", "coalesce(k, -1)", "upper(t)")
_AGGREGATES = (
    "count(*)",
    "count(x)",
    "sum(x)",
    "min(x)",
    "max(t)",
    "avg(x)",
    "sum(d)",
    "avg(d)",
    "sum(f)",
    "max(f)",
    "count(DISTINCT k)",
    "bool_or(flag)",
    "max_by(t, id)",
    "stddev(f)",
    "approx_count_distinct(x)",
    "array_join(sort_array(collect_set(t)), '|')",
    "percentile(x, 0.5)",
    "sum(CASE WHEN flag THEN x ELSE 1 END)",
)


def _condition(rng: Chance, prefix: str = "") -> str:
    p = prefix
    one = [
        f"{p}x > {rng.randint(-80, 60)}",
        f"{p}t IS NOT NULL",
        f"{p}k IN (1, 2, {rng.randint(3, 5)})",
        f"{p}flag",
        f"{p}t LIKE 'a%'",
        f"{p}f BETWEEN -50 AND {rng.randint(0, 90)}",
        f"NOT coalesce({p}flag, false)",
        f"{p}id % {rng.randint(2, 5)} <> 0",
    ]
    first, second = rng.sample(one, 2)
    return rng.choice([first, f"{first} AND {second}", f"({first} OR {second})"])


def _where(rng: Chance, prefix: str = "") -> str:
    return f" WHERE {_condition(rng, prefix)}" if rng.random() < 0.6 else ""


def _keys(rng: Chance, fewest: int = 0) -> list[str]:
    return rng.sample(_KEYS, rng.randint(fewest, 2))


def _calls(rng: Chance) -> list[str]:
    calls = rng.sample(_AGGREGATES, rng.randint(1, 4))
    return [
        f"{each} FILTER (WHERE {_condition(rng)})"
        if rng.random() < 0.2 and "(" in each and not each.startswith("array_join")
        else each
        for each in calls
    ]


def _named(items: Sequence[str], letter: str) -> str:
    return "".join(f", {each} AS {letter}{number}" for number, each in enumerate(items))


@dataclass(frozen=True)
class _Window:
    """A window in both spellings."""

    ours: str
    batch: str

    @property
    def name(self) -> str:
        return "session_window" if self.batch.startswith("session") else "window"


def _window(rng: Chance, kinds: Sequence[str] = ("tumble", "hop", "session")) -> _Window:
    minutes = rng.choice([1, 5, 15, 60])
    match rng.choice(kinds):
        case "hop":
            slide = rng.choice([1, 2, 5])
            width = slide * rng.randint(1, 4)
            return _Window(
                f"hop(INTERVAL '{slide} minutes', INTERVAL '{width} minutes')",
                f"window(at, '{width} minutes', '{slide} minutes')",
            )
        case "session":
            gap = rng.choice([20, 90, 300])
            return _Window(
                f"session(INTERVAL '{gap} seconds')", f"session_window(at, '{gap} seconds')"
            )
        case _:
            return _Window(
                f"tumble(INTERVAL '{minutes} minutes')", f"window(at, '{minutes} minutes')"
            )


# ---------------------------------------------------------------- queries


def _stateless(rng: Chance) -> Query:
    items = rng.sample(
        [
            "id",
            "k * 2",
            "upper(t)",
            "x + coalesce(k, 0)",
            "d * 3",
            "f / 2",
            "NOT flag",
            "at + INTERVAL '1' HOUR",
            "date_trunc('hour', at)",
        ],
        4,
    )
    sql = f"SELECT id{_named(items, 'c')} FROM {rng.choice('ab')}{_where(rng)}"
    return Query("stateless", sql, sql)


def _windowed(rng: Chance) -> Query:
    window, keys, calls = _window(rng), _keys(rng), _calls(rng)
    having = rng.choice(["", "", " HAVING count(*) > 1"])
    source = f"FROM {rng.choice('ab')}{_where(rng)}"
    items = f"{_named(keys, 'g')}{_named(calls, 'v')}"
    groups = "".join(f", {each}" for each in keys)
    return Query(
        "windowed",
        f"SELECT window.start AS s, window.end AS e{items} {source} GROUP BY {window.ours}{groups}{having}",
        f"SELECT {window.name}.start AS s, {window.name}.end AS e{items} {source}"
        f" GROUP BY {window.batch}{groups}{having}",
    )


def _python(rng: Chance) -> Query:
    window = _window(rng, ("tumble", "hop"))
    source = f"FROM a{_where(rng)}"
    return Query(
        "python",
        f"SELECT window.start AS s, k, spread(f) AS v, sum(doubled(x)) AS w {source}"
        f" GROUP BY {window.ours}, k",
        f"SELECT window.start AS s, k, max(f) - min(f) AS v, sum(x * 2) AS w {source}"
        f" GROUP BY {window.batch}, k",
    )


def _ranked(rng: Chance) -> Query:
    window = _window(rng, ("tumble", "hop"))
    source = f"FROM a{_where(rng)}"
    most = rng.randint(1, 3)

    def ranked(inner: str, start: str) -> str:
        return (
            f"SELECT s, k, n, r FROM (SELECT {start} AS s, k, n, row_number() OVER (PARTITION BY w"
            f" ORDER BY n DESC, k NULLS LAST) AS r FROM ({inner})) WHERE r <= {most}"
        )

    return Query(
        "ranked",
        ranked(f"SELECT {window.ours} AS w, k, count(*) AS n {source} GROUP BY w, k", "w.start"),
        ranked(
            f"SELECT {window.batch} AS w, k, count(*) AS n {source} GROUP BY {window.batch}, k",
            "w.start",
        ),
    )


def _window_join(rng: Chance) -> Query:
    window, kind = _window(rng, ("tumble", "hop")), rng.choice(["", "LEFT ", "FULL OUTER "])
    conditions = _where(rng), _where(rng)

    def joined(name: str, group: str) -> str:
        left, right = (
            f"(SELECT {name} AS w, k, count(*) AS n, sum(x) AS v FROM {table}{condition} GROUP BY {group}, k)"
            for table, condition in zip("ab", conditions, strict=True)
        )
        return (
            f"SELECT o.w.start AS s, p.w.start AS e, o.k AS k0, p.k AS k1, o.n AS n0, p.v AS v1"
            f" FROM {left} o {kind}JOIN {right} p ON o.w = p.w AND o.k = p.k"
        )

    return Query("window join", joined(window.ours, "w"), joined(window.batch, window.batch))


def _interval_join(rng: Chance) -> Query:
    kind = rng.choice(["", "LEFT ", "FULL OUTER ", "LEFT SEMI ", "LEFT ANTI "])
    before, after = rng.choice([0, 10, 60]), rng.choice([5, 60, 600])
    right = "" if "SEMI" in kind or "ANTI" in kind else ", b.id AS j, b.at AS bt, b.x AS y"
    sql = (
        f"SELECT a.id AS i, a.at AS t{right} FROM a {kind}JOIN b ON a.k = b.k"
        f" AND b.at >= a.at - INTERVAL '{before}' SECOND AND b.at <= a.at + INTERVAL '{after}' SECOND"
    )
    return Query("interval join", sql, sql, is_changelog=kind not in ("", "LEFT SEMI "))


def _updating(rng: Chance) -> Query:
    table = rng.choice("abc")
    keys = [each for each in _keys(rng) if table != "c" or "flag" not in each]
    calls = _calls(rng)
    if table == "c":
        known = ("count(*)", "sum(x)", "min(x)", "max(t)", "avg(x)", "count(DISTINCT k)")
        calls = rng.sample(known, rng.randint(1, 4))
    groups = f" GROUP BY {', '.join(keys)}" if keys else ""
    condition = _where(rng) if table != "c" else rng.choice(["", " WHERE x > 0"])
    sql = f"SELECT {(_named(keys, 'g') + _named(calls, 'v'))[2:]} FROM {table}{condition}{groups}"
    return Query("updating aggregate", sql, sql, is_changelog=True)


def _aggregate_of_aggregate(rng: Chance) -> Query:
    table = rng.choice("abc")
    sql = (
        f"SELECT n, count(*) AS m, sum(v) AS s FROM (SELECT k, count(*) AS n, sum(x) AS v"
        f" FROM {table} GROUP BY k) GROUP BY n"
    )
    return Query("aggregate of aggregate", sql, sql, is_changelog=True)


def _updating_join(rng: Chance) -> Query:
    kind = rng.choice(["", "LEFT ", "RIGHT ", "FULL OUTER "])
    left, right = rng.choice([("a", "b"), ("a", "c"), ("c", "b")])
    sql = (
        f"SELECT o.id AS i, o.x AS x0, p.id AS j, p.t AS t1 FROM {left} o {kind}JOIN {right} p"
        f" ON o.id = p.id AND o.x > p.x"
    )
    return Query("updating join", sql, sql, is_changelog=True)


def _newest(rng: Chance) -> Query:
    order = rng.choice(["at DESC, id DESC", "f, id", "x NULLS LAST, id"])
    most = rng.choice([1, 1, 2])
    sql = (
        f"SELECT k, id, t, r FROM (SELECT k, id, t, row_number() OVER (PARTITION BY k ORDER BY {order})"
        f" AS r FROM a{_where(rng)}) WHERE r <= {most}"
    )
    return Query("newest by key", sql, sql, is_changelog=True)


def _set_operation(rng: Chance) -> Query:
    word = rng.choice(["UNION", "INTERSECT", "EXCEPT", "UNION ALL"])
    sql = f"SELECT k, t FROM a{_where(rng)} {word} SELECT k, t FROM b{_where(rng)}"
    return Query("set operation", sql, sql, is_changelog=True)


def _distinct(rng: Chance) -> Query:
    sql = f"SELECT DISTINCT k, t, flag FROM {rng.choice('ab')}{_where(rng)}"
    return Query("distinct", sql, sql, is_changelog=True)


def _lookup(rng: Chance) -> Query:
    kind = rng.choice(["", "LEFT "])
    sql = f"SELECT a.id AS i, a.k AS k, l.name AS n FROM a {kind}JOIN l ON a.k = l.k"
    return Query("lookup join", sql, sql)


def _window_of_windows(rng: Chance) -> Query:
    inner = rng.choice([1, 5])
    outer = inner * rng.choice([2, 12])
    source = f"FROM a{_where(rng)}"
    return Query(
        "window of windows",
        f"SELECT window.start AS s, max(n) AS m, count(*) AS c FROM (SELECT"
        f" tumble(INTERVAL '{inner} minutes') AS w, k, count(*) AS n {source} GROUP BY w, k)"
        f" GROUP BY tumble(INTERVAL '{outer} minutes')",
        f"SELECT window.start AS s, max(n) AS m, count(*) AS c FROM (SELECT"
        f" window(at, '{inner} minutes').start AS at, k, count(*) AS n {source}"
        f" GROUP BY window(at, '{inner} minutes'), k) GROUP BY window(at, '{outer} minutes')",
    )


def _cumulated(rng: Chance) -> Query:
    step = rng.choice([1, 2, 5])
    width = step * rng.choice([2, 3, 6])
    keys, calls = _keys(rng), _calls(rng)
    items = f"{_named(keys, 'g')}{_named(calls, 'v')}"
    groups = "".join(f", {each}" for each in keys)
    condition = _where(rng)
    return Query(
        "cumulated",
        f"SELECT window.start AS s, window.end AS e{items} FROM a{condition}"
        f" GROUP BY cumulate(INTERVAL '{step} minutes', INTERVAL '{width} minutes'){groups}",
        f"SELECT s, e{items} FROM (SELECT *, w.start AS s, explode(sequence("
        f"window(at, '{step} minutes').end, w.end, INTERVAL {step} MINUTES)) AS e"
        f" FROM (SELECT *, window(at, '{width} minutes') AS w FROM a{condition}))"
        f" GROUP BY s, e{groups}",
    )


def _asof(rng: Chance) -> Query:
    kind, compared = rng.choice(["", "LEFT "]), rng.choice([">=", ">"])
    conditions = _where(rng), _where(rng)
    left, right = (
        f"(SELECT * FROM {table}{condition})"
        for table, condition in zip("ab", conditions, strict=True)
    )
    on = f"ON o.k = p.k AND o.at {compared} p.at"
    return Query(
        "asof join",
        f"SELECT o.id AS i, p.at AS t FROM {left} o ASOF {kind}JOIN {right} p {on}",
        f"SELECT o.id AS i, max(p.at) AS t FROM {left} o {kind}JOIN {right} p {on} GROUP BY o.id",
    )


def _subquery(rng: Chance) -> Query:
    negated = rng.choice(["", "NOT "])
    test = rng.choice(
        [
            f"k IS NOT NULL AND k {negated}IN (SELECT k FROM l WHERE k IS NOT NULL)",
            f"{negated}EXISTS (SELECT 1 FROM l WHERE l.k = a.k)",
            f"{negated}EXISTS (SELECT 1 FROM c WHERE c.k = a.k AND c.x > 0)",
            "(k, t) IN (SELECT k, t FROM c)",
            "id IN (SELECT id FROM c WHERE c.k IS NOT DISTINCT FROM a.k)",
        ]
    )
    sql = f"SELECT id, k, t FROM a WHERE {test}"
    return Query("subquery", sql, sql, is_changelog=True)


_MAKERS: list[Callable[[Chance], Query]] = [
    _stateless,
    _windowed,
    _windowed,
    _windowed,
    _python,
    _ranked,
    _window_join,
    _interval_join,
    _interval_join,
    _updating,
    _updating,
    _aggregate_of_aggregate,
    _updating_join,
    _newest,
    _set_operation,
    _distinct,
    _lookup,
    _window_of_windows,
    _cumulated,
    _asof,
    _subquery,
]


def described(pipeline: RandomPipeline) -> str:
    """A pipeline as a file that can be read, with what each sink should hold."""
    case = pipeline.case()
    rows = {name: len(values) for name, _, _, values in case.header.literals}
    expected = "\n".join(f"-- expect {sink}\n{sql}" for sink, sql in case.expected.items())
    return f"-- rows {json.dumps(rows)}\n{case.sql}\n{expected}\n"
