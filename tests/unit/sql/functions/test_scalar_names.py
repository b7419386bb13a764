"""Functions of other databases: where their names are accepted, and which calls are refused. Their
results are tested with Spark.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from resurgence.errors import SqlError
from resurgence.graph.model import Graph
from resurgence.graph.specs.query import QuerySpec
from resurgence.udf import FunctionKind

Compile = Callable[..., Graph]
Refusal = Callable[..., SqlError]


def selected(graph: Graph) -> list[tuple[str, str]]:
    query = next(each for each in graph.operators if isinstance(each, QuerySpec))
    return [(each.name, each.sql) for each in query.select if not each.name.startswith("__")]


def test_the_result_keeps_the_name_that_the_user_called(compiled: Compile) -> None:
    graph = compiled("SELECT strpos(b, 'x'), array_has(array(1), a) AS it FROM plain")
    assert selected(graph) == [
        ("strpos", "instr(`b`, 'x')"),
        ("it", "array_contains(array(1), `a`)"),
    ]


def test_a_function_of_the_user_takes_precedence(compiled: Compile) -> None:
    graph = compiled("SELECT strpos(b, 'x') AS it FROM plain", {"strpos": FunctionKind.SCALAR})
    assert "instr" not in selected(graph)[0][1]


def test_names_count_in_every_clause(compiled: Compile) -> None:
    graph = compiled(
        "SELECT strpos(kind, 'x') AS place, max(strpos(place, 'y')) AS most FROM rides"
        " WHERE starts_with(kind, 'a') GROUP BY tumble('1 hour'), strpos(kind, 'x')"
        " HAVING max(strpos(place, 'y')) > 1"
    )
    (window,) = graph.window_aggregates()
    assert [each.sql for each in window.keys] == ["instr(`kind`, 'x')"]
    assert [each.arguments for each in window.aggregates] == [("instr(`place`, 'y')",)]


def test_a_lambda_stays_one_where_one_is_taken(compiled: Compile) -> None:
    graph = compiled("SELECT transform(tags, x -> upper(x)) AS tags FROM rides")
    assert selected(graph) == [("tags", "transform(`tags`, `x` -> upper(x))")]


@pytest.mark.parametrize(
    ("query", "column", "message", "hint"),
    [
        ("SELECT array_element(tags) FROM rides", 8, "takes 2 arguments, not 1", "(a, i)"),
        ("SELECT array_length(tags, 2) FROM rides", 8, "the dimension 1", "element_at"),
        ("SELECT b AT TIME ZONE 'UTC' FROM plain", 8, "AT TIME ZONE", "from_utc_timestamp"),
        ("SELECT b SIMILAR TO 'x' FROM plain", 8, "SIMILAR TO is not supported", "regexp_like"),
        ("SELECT tags[1:2] FROM rides", 13, "slices are not supported", "slice("),
        ("SELECT b -> a FROM plain", 13, "a JSON key must be a text", "try_variant_get"),
        ("SELECT b ->> 'it''s' FROM plain", 14, "the JSON key 'it's' is not", "from_json"),
        ("SELECT json_get(b, '*') FROM plain", 20, "the JSON key '*' is not", "from_json"),
        ("SELECT json_get_str() FROM plain", 8, "takes a JSON text and keys", ""),
        ("SELECT extract_json(b) FROM plain", 8, "takes a JSON text and a path", ""),
        ("SELECT extract_json(b, '$..a') FROM plain", 24, "a JSON path must be", "wildcards"),
        ("SELECT extract_json(b, '$.a[*]') FROM plain", 24, "a JSON path must be", "wildcards"),
        ("SELECT regexp_like(b, 'x', 'U') FROM plain", 28, "these flags", "i, m, s, x"),
        ("SELECT regexp_replace(b, 'x', 'y', 'i') FROM plain", 36, "only the first match", "'g'"),
        ("SELECT regexp_replace(b, 'x', b, 'g') FROM plain", 31, "must be a literal", "flags"),
        ("SELECT regexp_match(b, b) FROM plain", 8, "a literal pattern", "regexp_extract"),
        ("SELECT regexp_match(b, '(x)?') FROM plain", 24, "without a match", "regexp_extract"),
        ("SELECT regexp_match(b, '(x)|y') FROM plain", 24, "without a match", "regexp_extract"),
        ("SELECT digest(b, 'crc') FROM plain", 8, "the name of a digest", "'sha256'"),
        ("SELECT to_char(b, '%Q') FROM plain", 19, "'%Q' is not supported", "%Y"),
    ],
)
def test_ambiguous_calls_are_refused_at_their_place(
    refusal: Refusal, query: str, column: int, message: str, hint: str
) -> None:
    error = refusal(query)
    assert message in error.message
    assert hint in error.hint
    assert (error.line, error.column) == (1, column)
