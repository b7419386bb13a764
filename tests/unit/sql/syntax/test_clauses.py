"""Clauses that the grammar reads and a pipeline does not support are refused by their SQL name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlglot import exp

from resurgence.errors import SqlError
from resurgence.sql.syntax.clauses import CLAUSES, refuse_unread
from resurgence.sql.syntax.parse import Script

Refusal = Callable[..., SqlError]

NODES = (
    exp.Create,
    exp.Insert,
    exp.Select,
    exp.Subquery,
    exp.Table,
    exp.Union,
    exp.Intersect,
    exp.Except,
    exp.Join,
)
PARTS = sorted({(kind.__name__, part) for kind in NODES for part in kind.arg_types})


@pytest.mark.parametrize(("kind", "part"), PARTS)
def test_no_part_of_a_statement_is_called_by_the_word_of_the_parser(kind: str, part: str) -> None:
    node: exp.Expr = getattr(exp, kind)()
    node.set(part, exp.Var(this="AS THE USER WROTE IT"))
    with pytest.raises(SqlError) as refused:
        refuse_unread(node, frozenset(), Script("", ()))
    named = CLAUSES.get(part, "'AS THE USER WROTE IT'")
    assert refused.value.message == f"{named} is not supported here"
    assert refused.value.hint


def test_names_of_clauses_are_words_of_sql() -> None:
    own = {"MATCH_RECOGNIZE", "MATCH_CONDITION", "FOR SYSTEM_TIME AS OF"}
    assert {name for name in CLAUSES.values() if "_" in name} == own


@pytest.mark.parametrize("value", [True, "AS THE USER WROTE IT"])
def test_a_part_that_is_no_expression_is_not_called_by_the_word_of_the_parser(
    value: object,
) -> None:
    with pytest.raises(SqlError) as refused:
        refuse_unread(exp.Select(of_the_future=value), frozenset(), Script("", ()))
    assert "future" not in refused.value.message.lower()


def test_a_long_part_is_quoted_up_to_a_point() -> None:
    node = exp.Select(of_the_future=exp.column("x" * 100))
    with pytest.raises(SqlError) as refused:
        refuse_unread(node, frozenset(), Script("", ()))
    assert refused.value.message == f"'{'x' * 40}...' is not supported here"


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("SELECT a FROM plain FOR SYSTEM_TIME AS OF a", "FOR SYSTEM_TIME AS OF"),
        ("SELECT a FROM plain VERSION AS OF 3", "VERSION AS OF"),
        ("SELECT a FROM main.plain", "a qualified table name"),
        ("INSERT INTO main.out SELECT a, b FROM plain", "a qualified table name"),
        ("CREATE TABLE main.t (a INT)", "a qualified table name"),
        ("SELECT a FROM plain FOR UPDATE", "FOR UPDATE"),
        ("SELECT a FROM plain FOR SHARE", "FOR SHARE"),
        ("SELECT * FROM plain PIVOT (sum(a) FOR b IN ('x', 'y'))", "PIVOT"),
        ("SELECT * FROM (SELECT * FROM plain) PIVOT (sum(a) FOR b IN ('x', 'y'))", "PIVOT"),
        ("SELECT a FROM plain UNION ALL BY NAME SELECT a FROM plain", "BY NAME"),
        ("SELECT a FROM plain INTERSECT BY NAME SELECT a FROM plain", "BY NAME"),
        ("INSERT INTO out BY NAME SELECT a, b FROM plain", "BY NAME"),
        ("INSERT INTO out SELECT a, b FROM plain ON CONFLICT DO NOTHING", "ON CONFLICT"),
        ("INSERT INTO out SELECT a, b FROM plain RETURNING a", "RETURNING"),
        ("SELECT a FROM plain TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
        ("SELECT a FROM plain CLUSTER BY a", "CLUSTER BY"),
        ("SELECT a FROM plain DISTRIBUTE BY a", "DISTRIBUTE BY"),
        ("SELECT a FROM plain SORT BY a", "SORT BY"),
        ("SELECT AS STRUCT a FROM plain", "'STRUCT'"),
        ("SELECT a INTO x FROM plain", "INTO"),
        ("SELECT a FROM plain CONNECT BY a = 1", "CONNECT BY"),
        (
            "SELECT a FROM plain MATCH_RECOGNIZE (ORDER BY a MEASURES X.a AS x PATTERN (X) DEFINE X AS a > 1)",
            "MATCH_RECOGNIZE",
        ),
        ("SELECT a FROM plain AT (TIMESTAMP => 'x')", "AT or BEFORE"),
        ("CREATE MATERIALIZED VIEW v AS SELECT a FROM plain", "MATERIALIZED"),
        ("CREATE OR REPLACE TABLE t (a INT)", "OR REPLACE"),
        ("CREATE TABLE t CLONE plain", "CLONE"),
        ("CREATE TABLE t (a INT) PARTITIONED BY (a)", "PARTITIONED BY"),
        ("CREATE EXTERNAL TABLE t (a INT)", "EXTERNAL"),
        ("CREATE TABLE t LIKE plain", "LIKE"),
    ],
)
def test_a_clause_is_refused_by_its_name(refusal: Refusal, query: str, name: str) -> None:
    error = refusal(query)
    assert error.message.startswith(f"{name} is not supported ")
    assert error.hint
