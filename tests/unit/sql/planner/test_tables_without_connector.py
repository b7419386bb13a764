"""Tables without a connector, CREATE TABLE ... AS, and SET: rows that one query passes to another."""

from __future__ import annotations

from collections.abc import Callable

from resurgence.errors import SqlError
from resurgence.graph.model import Graph

Compile = Callable[..., Graph]
Refusal = Callable[..., SqlError]

COUNTS = (
    "CREATE TABLE counts (w STRUCT<start: TIMESTAMP, end: TIMESTAMP>, kind TEXT, n INT);"
    "INSERT INTO counts SELECT tumble(INTERVAL '1 hour') AS w, kind, count(*) FROM rides GROUP BY 1, 2;"
)


def kinds(graph: Graph) -> list[str]:
    return [each.kind for each in graph.operators if each.kind != "query"]


def test_a_table_without_a_connector_passes_on_the_rows_of_one_insert(compiled: Compile) -> None:
    graph = compiled(f"{COUNTS} SELECT w, max(n) FROM counts GROUP BY w")
    assert kinds(graph) == ["source", "window_aggregate", "closed_query", "sink"]


def test_its_rows_have_the_declared_types(compiled: Compile) -> None:
    graph = compiled(f"{COUNTS} SELECT n FROM counts")
    assert any("CAST(`count" in each.model_dump_json() for each in graph.operators)


def test_it_is_filled_before_it_is_read_and_once(refusal: Refusal) -> None:
    empty = refusal("CREATE TABLE t (a INT); SELECT a FROM t")
    assert "is read before an INSERT INTO fills it" in empty.message
    twice = refusal(
        "CREATE TABLE t (a INT); INSERT INTO t SELECT a FROM plain; INSERT INTO t SELECT a FROM plain;"
    )
    assert "is already filled by another INSERT INTO" in twice.message
    narrow = refusal("CREATE TABLE t (a INT); INSERT INTO t SELECT a, b FROM plain")
    assert "has 1 column, but the SELECT has 2" in narrow.message


def test_create_table_as_is_a_view_without_a_connector_and_an_insert_with_one(
    compiled: Compile,
) -> None:
    assert kinds(compiled("CREATE TABLE t AS SELECT a FROM plain; SELECT a FROM t")) == [
        "source",
        "sink",
    ]
    direct = compiled("CREATE TABLE t WITH (connector = 'blackhole') AS SELECT a FROM plain")
    assert [each.table for each in direct.sinks()] == ["t"]


def test_the_state_ttl_applies_to_the_statements_after_it(refusal: Refusal) -> None:
    error = refusal("SET updating_tl = INTERVAL '1 hour'")
    assert "no setting 'updating_tl'" in error.message
