"""Syntax of Flink, Spark and Arroyo: what it compiles to, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from resurgence.errors import SqlError
from resurgence.graph.model import Graph
from resurgence.graph.specs.query import QuerySpec
from resurgence.graph.specs.source import SourceSpec

Compile = Callable[..., Graph]
Refusal = Callable[..., SqlError]

LOOKUP = (
    "CREATE TEMPORARY TABLE people (id BIGINT, name TEXT) WITH (connector = 'filesystem',"
    " path = 'people');\n"
)


def computed(graph: Graph) -> list[str]:
    """What the first query of a graph computes."""
    query = next(each for each in graph.operators if isinstance(each, QuerySpec))
    return [each.sql for each in query.select]


@pytest.mark.parametrize(
    ("query", "column", "message", "hint"),
    [
        (
            "EXECUTE STATEMENT SET BEGIN INSERT INTO anything SELECT at FROM rides;",
            1,
            "this statement set is never closed",
            "END",
        ),
        (
            "EXECUTE STATEMENT SET BEGIN SELECT at FROM rides; END;",
            29,
            "a statement set can contain only INSERT statements, not SELECT",
            "before EXECUTE STATEMENT SET",
        ),
        (
            "SELECT floor(at TO fortnight) FROM rides",
            20,
            "FLOOR requires a unit of time after TO, not 'FORTNIGHT'",
            "HOUR",
        ),
        (
            "SELECT json_value(kind, '$.a' ERROR ON EMPTY) FROM rides",
            8,
            "ERROR ON EMPTY is not supported in JSON_VALUE",
            "DEFAULT",
        ),
        (
            "SELECT json_value(kind, '$.a[*]') FROM rides",
            25,
            "a JSON path must be a literal of names and numbers, as in '$.a.b[0]'",
            "wildcards",
        ),
        (
            "SELECT /*+ STATE_TTL('rides' = '1d') */ at FROM rides",
            1,
            "the hint STATE_TTL is not supported",
            "updating_ttl",
        ),
        (
            "SELECT at FROM rides /*+ OPTIONS('scan.startup.mode' = 'latest-offset') */",
            22,
            "the hint OPTIONS is not supported",
            "WITH",
        ),
        (
            "SELECT r.at FROM rides r JOIN plain FOR SYSTEM_TIME AS OF r.at AS p ON r.driver = p.a",
            59,
            "FOR SYSTEM_TIME AS OF is not supported here",
            "lookup join",
        ),
        (
            "SELECT to_timestamp_ltz(driver, 2) FROM rides",
            33,
            "to_timestamp_ltz() takes the precision 0, 3, 6 or 9",
            "seconds",
        ),
        (
            "SELECT inline(tags) FROM rides",
            15,
            "inline() requires an array of structs with known fields",
            "CAST",
        ),
        (
            "SELECT posexplode(tags) AS place FROM rides",
            8,
            "column list has 1 names for 2 columns",
            "in their order",
        ),
        (
            "SELECT s.* FROM (SELECT struct(driver, kind) AS s FROM rides)",
            8,
            "the fields of 's' are unknown",
            "s.field",
        ),
        (
            "SELECT car.* EXCEPT (seats) FROM rides",
            8,
            "EXCEPT removes columns of a table, but 'car' is a struct",
            "car.field",
        ),
        (
            "SELECT approx_percentile_cont_with_weight(driver, 0.5) FROM rides",
            8,
            "approx_percentile_cont_with_weight() takes a value, a weight and a fraction",
            "weight, 0.9",
        ),
    ],
)
def test_what_is_refused(
    refusal: Refusal, query: str, column: int, message: str, hint: str
) -> None:
    error = refusal(query)
    assert (error.line, error.column, error.message) == (1, column, message)
    assert hint in error.hint


def test_the_time_of_a_lookup_join_is_a_column_of_the_stream(refusal: Refusal) -> None:
    query = (
        "SELECT r.at FROM rides r JOIN people FOR SYSTEM_TIME AS OF r.proc AS p ON r.driver = p.id"
    )
    assert refusal(LOOKUP + query).message == "there is no column 'proc' in 'r'"


@pytest.mark.parametrize(
    "version",
    [
        "FOR SYSTEM_TIME AS OF TIMESTAMP '2024-03-01 00:00:00'",
        "FOR SYSTEM_TIME AS OF now() - INTERVAL '1 day'",
        "FOR SYSTEM_TIME AS OF current_date",
        "TIMESTAMP AS OF '2024-03-01'",
    ],
)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT r.at FROM rides r JOIN people {} AS p ON r.driver = p.id",
        "SELECT at FROM rides WHERE driver IN (SELECT id FROM people {})",
    ],
)
def test_an_older_version_of_a_lookup_table_is_refused(
    refusal: Refusal, query: str, version: str
) -> None:
    error = refusal(LOOKUP + query.format(version))
    assert error.message == "lookup table 'people' cannot be read as of a constant time"
    assert "PROCTIME()" in error.hint
    assert (error.line, error.column) == (2, query.index("{}") + version.index("AS OF") + 7)


@pytest.mark.parametrize(
    "now", ["PROCTIME()", "now()", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "r.at - INTERVAL '1 day'"]
)
def test_the_time_of_a_lookup_join_can_be_the_current_time(compiled: Compile, now: str) -> None:
    assert compiled(
        f"{LOOKUP}SELECT r.at FROM rides r"
        f" JOIN people FOR SYSTEM_TIME AS OF {now} AS p ON r.driver = p.id"
    )


def test_a_lookup_join_is_the_same_with_and_without_system_time(compiled: Compile) -> None:
    query = "SELECT r.at, p.name FROM rides r JOIN people {} p ON r.driver = p.id"
    timed = compiled(LOOKUP + query.format("FOR SYSTEM_TIME AS OF r.at AS"))
    assert [each.id for each in timed.operators] == [
        each.id for each in compiled(LOOKUP + query.format("AS")).operators
    ]


def test_hints_about_joins_have_no_effect(compiled: Compile) -> None:
    hinted = compiled("SELECT /*+ BROADCAST(plain), SHUFFLE_HASH(rides) */ at FROM rides")
    plain = compiled("SELECT at FROM rides")
    assert [each.id for each in hinted.operators] == [each.id for each in plain.operators]


def test_like_any_is_one_like_for_each_pattern(compiled: Compile) -> None:
    graph = compiled(
        "SELECT kind LIKE ANY ('a%', 'b%') AS x, kind NOT LIKE ALL ('a%', 'b%') AS y,"
        " kind LIKE ANY ('a!%') ESCAPE '!' AS z, kind NOT LIKE 'a' AS w FROM rides"
    )
    assert computed(graph)[:4] == [
        "(`kind` LIKE 'a%' OR `kind` LIKE 'b%')",
        "(NOT `kind` LIKE 'a%' AND NOT `kind` LIKE 'b%')",
        "(`kind` LIKE 'a!%' ESCAPE '!')",
        "`kind` NOT LIKE 'a'",
    ]


@pytest.mark.parametrize(
    ("written", "sql", "nullable"),
    [
        ("a * b", "`a` * `b`", True),
        ("(a * b) STORED", "`a` * `b`", True),
        ("a * b NOT NULL", "`a` * `b`", False),
        ("a * b COMMENT 'x'", "`a` * `b`", True),
        ("a IS NOT NULL", "NOT `a` IS NULL", True),
    ],
)
def test_a_computed_column_without_a_type_has_that_of_its_expression(
    compiled_text: Callable[[str], Graph], written: str, sql: str, nullable: bool
) -> None:
    graph = compiled_text(
        f"CREATE TABLE t (a INT, b INT, c AS {written})"
        " WITH (connector = 'single_file', path = 'x', type = 'source'); SELECT c FROM t"
    )
    source = next(each for each in graph.operators if isinstance(each, SourceSpec))
    column = source.columns[2]
    assert (column.type, column.nullable) == ("", nullable)
    assert column.generated is not None
    assert column.generated.sql == sql


def test_a_struct_by_star_is_its_fields(compiled: Compile) -> None:
    graph = compiled("SELECT car.*, kind FROM rides")
    assert computed(graph)[:3] == ["`car`.`plate`", "`car`.`seats`", "`kind`"]


def test_a_generator_takes_its_counts_as_unsigned(compiled_text: Callable[[str], Graph]) -> None:
    graph = compiled_text(
        "CREATE TABLE i (counter BIGINT UNSIGNED NOT NULL, subtask BIGINT) WITH (connector = 'impulse');"
        " SELECT counter FROM i"
    )
    source = next(each for each in graph.operators if isinstance(each, SourceSpec))
    assert [each.type for each in source.columns] == ["DECIMAL(20,0)", "BIGINT"]


def test_options_in_a_string_or_a_comment_are_no_hint(compiled: Compile) -> None:
    assert compiled("SELECT at, '/*+ OPTIONS(a)' AS text FROM rides -- /*+ OPTIONS(a) */")
