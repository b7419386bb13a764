"""Expressions that depend on the clock, on randomness or on the environment: the planning time, or
refused.
"""

from __future__ import annotations

import pytest
from tests.unit.sql.conftest import CONNECTORS, Compile, Refusal

from resurgence.errors import SqlError
from resurgence.graph.model import Graph
from resurgence.graph.specs.query import QuerySpec
from resurgence.sql import compile_pipeline


def selected(graph: Graph) -> list[tuple[str, str]]:
    query = next(each for each in graph.operators if isinstance(each, QuerySpec))
    return [(each.name, each.sql) for each in query.select if not each.name.startswith("__")]


@pytest.mark.parametrize(
    ("call", "name", "sql"),
    [
        ("now()", "now", "`__planned_at`"),
        ("current_timestamp", "current_timestamp", "`__planned_at`"),
        ("CURRENT_TIMESTAMP()", "current_timestamp", "`__planned_at`"),
        ("proctime()", "proctime", "`__planned_at`"),
        ("current_date", "current_date", "(CAST(`__planned_at` AS DATE))"),
        ("curdate()", "curdate", "(CAST(`__planned_at` AS DATE))"),
        ("localtimestamp", "localtimestamp", "(CAST(`__planned_at` AS TIMESTAMP_NTZ))"),
        ("localtimestamp()", "localtimestamp", "(CAST(`__planned_at` AS TIMESTAMP_NTZ))"),
        ("unix_timestamp()", "unix_timestamp", "unix_seconds(`__planned_at`)"),
        ("date_add(current_date(), 1) AS d", "d", "date_add((CAST(`__planned_at` AS DATE)), 1)"),
    ],
)
def test_the_clock_is_the_planning_time(compiled: Compile, call: str, name: str, sql: str) -> None:
    assert selected(compiled(f"SELECT {call} FROM plain")) == [(name, sql)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT driver FROM rides WHERE at > now() - INTERVAL '1 hour'",
        "SELECT max(now()) FROM rides GROUP BY tumble(INTERVAL '1 hour')",
        "SELECT now(), count(*) FROM rides GROUP BY tumble(INTERVAL '1 hour')",
        "SELECT count(*) FROM rides GROUP BY tumble(INTERVAL '1 hour'), date_trunc('day', now())",
        "SELECT driver, max(now()) AS latest FROM rides GROUP BY driver",
        "SELECT DISTINCT driver, current_date FROM rides",
        "SELECT x.driver FROM (SELECT driver, now() AS n FROM rides) x JOIN rides y"
        " ON x.driver = y.driver AND y.at > x.n",
    ],
)
def test_the_planning_time_is_accepted_over_append_only_streams(
    compiled: Compile, query: str
) -> None:
    assert "`__planned_at`" in compiled(query).model_dump_json()


@pytest.mark.parametrize(
    ("query", "column", "message"),
    [
        (
            "SELECT driver, count(*), now() FROM rides GROUP BY driver",
            26,
            "now() requires an append-only input, but this input is a changelog",
        ),
        (
            "SELECT n FROM (SELECT count(*) AS n FROM rides GROUP BY driver) WHERE n > day(current_date)",
            79,
            "current_date() requires an append-only input",
        ),
        (
            "SELECT x.driver FROM rides x JOIN rides y ON x.driver = y.driver AND x.at < now()",
            77,
            "now() is not supported in a join condition",
        ),
        (
            "SELECT driver, row_number() OVER (PARTITION BY driver ORDER BY at) AS r, now() FROM rides",
            1,
            "not supported in an updating query",
        ),
        ("SELECT now(3) FROM plain", 8, "now() takes no arguments"),
    ],
)
def test_the_planning_time_is_refused_where_results_change(
    refusal: Refusal, query: str, column: int, message: str
) -> None:
    error = refusal(query)
    assert message in error.message
    assert error.column == column
    assert error.hint


@pytest.mark.parametrize(
    ("query", "column", "message"),
    [
        ("SELECT CAST('now' AS TIMESTAMP) FROM plain", 13, "'now' as a TIMESTAMP reads the clock"),
        ("SELECT TIMESTAMP 'now' FROM plain", 18, "'now' as a TIMESTAMP reads the clock"),
        ("SELECT DATE 'Today ' FROM plain", 13, "'Today ' as a DATE reads the clock"),
        ("SELECT TRY_CAST('yesterday UTC' AS DATE) FROM plain", 17, "reads the clock"),
        ("SELECT 'tomorrow'::timestamp FROM plain", 8, "reads the clock"),
        ("SELECT TIMESTAMP_NTZ 'now' FROM plain", 22, "reads the clock"),
        ("SELECT to_timestamp('now') FROM plain", 21, "reads the clock"),
        ("SELECT try_to_timestamp('now') FROM plain", 25, "reads the clock"),
        ("SELECT to_date('today') FROM plain", 16, "'today' as a DATE reads the clock"),
        ("SELECT CAST('12:00' AS TIMESTAMP) FROM plain", 13, "'12:00' has no date"),
        ("SELECT TIMESTAMP 'T12' FROM plain", 18, "'T12' has no date"),
        ("SELECT from_json(b, 'a INT, t TIMESTAMP') FROM plain", 21, "from_json() adds today's"),
        (
            "SELECT variant_get(parse_json(b), '$.a', 'timestamp') FROM plain",
            42,
            "variant_get() adds today's date to a time",
        ),
        ("SELECT reflect('java.lang.System', 'nanoTime') FROM plain", 8, "arbitrary Java code"),
        ("SELECT java_method('java.lang.Math', 'random') FROM plain", 8, "arbitrary Java code"),
        ("SELECT try_reflect('java.lang.Math', 'random') FROM plain", 8, "arbitrary Java code"),
        ("SELECT 1 + random() FROM plain", 12, "random() returns a random value"),
        ("SELECT rand(1) FROM plain", 8, "rand() returns a random value"),
        ("SELECT upper(uuid()) FROM plain", 14, "uuid() returns a random value"),
        ("SELECT gen_random_uuid() FROM plain", 8, "returns a random value"),
        ("SELECT shuffle(tags) FROM rides", 8, "shuffle() returns a random value"),
        ("SELECT uniform(1, 5) FROM plain", 8, "uniform() returns a random value"),
        ("SELECT aes_encrypt(b, '0000111122223333') FROM plain", 8, "initialization vector"),
        ("SELECT kll_sketch_merge_bigint(b, b) FROM plain", 8, "samples values at random"),
        ("SELECT kll_sketch_agg_bigint(a) FROM plain", 8, "samples values at random"),
        ("SELECT monotonically_increasing_id() FROM plain", 8, "how rows are split into tasks"),
        ("SELECT current_user FROM plain", 8, "current_user() depends on where the job runs"),
        ("SELECT version() FROM plain", 8, "version() depends on where the job runs"),
        ("SELECT current_time() FROM plain", 8, "returns a TIME, a type that is not supported"),
    ],
)
def test_expressions_that_a_replay_cannot_repeat_are_refused(
    refusal: Refusal, query: str, column: int, message: str
) -> None:
    error = refusal(query)
    assert message in error.message
    assert error.column == column
    assert error.hint


@pytest.mark.parametrize(
    "query",
    [
        "SELECT CAST('epoch' AS TIMESTAMP) FROM plain",
        "SELECT a FROM plain WHERE b = 'now'",
        "SELECT aes_encrypt(b, '0000111122223333', 'ECB') FROM plain",
        "SELECT from_json(b, 't TIMESTAMP', map('timestampFormat', 'yyyy-MM-dd')) FROM plain",
        "SELECT CAST('12:00' AS STRING) FROM plain",
        "SELECT current_timezone() FROM plain",
    ],
)
def test_deterministic_expressions_are_accepted(compiled: Compile, query: str) -> None:
    assert compiled(query).sinks()


def test_a_changelog_has_no_column_of_the_clock() -> None:
    text = (
        "CREATE TABLE c (id INT, n TIMESTAMP GENERATED ALWAYS AS (now())) WITH"
        " (connector = 'single_file', path = 'c', format = 'debezium_json', type = 'source');"
        "SELECT id FROM c"
    )
    with pytest.raises(
        SqlError, match="requires an append-only input, but this input is a changelog"
    ):
        compile_pipeline(text, CONNECTORS)


def test_a_watermark_cannot_depend_on_the_clock() -> None:
    text = (
        "CREATE TABLE t (at TIMESTAMP, WATERMARK FOR at AS now()) WITH"
        " (connector = 'single_file', path = 'c', type = 'source'); SELECT at FROM t"
    )
    with pytest.raises(SqlError, match=r"a watermark cannot be computed from now\(\)"):
        compile_pipeline(text, CONNECTORS)
