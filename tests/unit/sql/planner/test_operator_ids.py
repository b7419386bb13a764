"""Operator ids: the same for the same definition, whatever surrounds it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from resurgence.graph.model import Graph

Compile = Callable[..., Graph]
Text = Callable[[str], Graph]

QUERY = "SELECT kind, count(*) AS n FROM rides WHERE driver > 1 GROUP BY tumble(INTERVAL '1 hour'), kind"


def window_ids(graph: Graph) -> list[str]:
    return [each.id for each in graph.window_aggregates()]


def test_ids_are_a_kind_and_eight_digits_of_a_digest(compiled: Compile) -> None:
    graph = compiled(QUERY)
    patterns = [
        r"source-rides",
        r"query-[0-9a-f]{8}",
        r"window-[0-9a-f]{8}",
        r"query-[0-9a-f]{8}",
        r"query-[0-9a-f]{8}",
        r"sink-terminal",
    ]
    assert all(
        re.fullmatch(pattern, each.id)
        for pattern, each in zip(patterns, graph.operators, strict=True)
    )


CALLS = """count(DISTINCT driver, kind), first(kind) IGNORE NULLS, array_agg(driver ORDER BY at DESC),
 string_agg(kind, ',' ORDER BY upper(kind)) FILTER (WHERE driver > 1),
 percentile_cont(0.5) WITHIN GROUP (ORDER BY driver), var(driver)"""


@pytest.mark.parametrize(
    ("group", "operator_id"),
    [
        ("tumble(INTERVAL '1 hour')", "window-605867b6"),
        ("session(INTERVAL '1 hour'), kind", "window-a9c213ea"),
        ("hop(INTERVAL '1 minute', INTERVAL '1 hour'), kind", "window-561b01ad"),
        ("kind", "updating-31ae15d7"),
    ],
)
def test_ids_of_aggregates_stay_as_they_are_in_stored_checkpoints(
    compiled: Compile, group: str, operator_id: str
) -> None:
    graph = compiled(f"SELECT {CALLS} FROM rides GROUP BY {group}")
    assert operator_id in [each.id for each in graph.operators]


@pytest.mark.parametrize(
    "text",
    [
        QUERY.replace("SELECT", "SELECT  /* spaced */\n"),
        QUERY.replace(" AS n", " AS renamed"),
        QUERY.replace("count(*)", "COUNT(*)").replace("kind", "KIND"),
        QUERY.replace("'1 hour'", "'60 minutes'"),
        f"INSERT INTO anything SELECT * FROM rides; {QUERY}",
        f"CREATE VIEW v AS SELECT kind FROM rides; INSERT INTO anything {QUERY}",
        QUERY.replace("SELECT kind, count(*) AS n", "SELECT count(*) * 2 AS n, upper(kind) AS k"),
    ],
)
def test_edits_that_do_not_concern_a_window_keep_its_id(compiled: Compile, text: str) -> None:
    assert window_ids(compiled(text)) == window_ids(compiled(QUERY))


@pytest.mark.parametrize(
    "text",
    [
        QUERY.replace("'1 hour'", "'2 hours'"),
        QUERY.replace("count(*)", "count(driver)"),
        QUERY.replace("driver > 1", "driver > 2"),
        QUERY.replace("), kind", ")").replace("SELECT kind, ", "SELECT "),
        QUERY.replace("rides", "(SELECT kind, driver + 1 AS driver FROM rides)"),
    ],
)
def test_edits_of_a_window_or_of_what_feeds_it_change_its_id(compiled: Compile, text: str) -> None:
    assert window_ids(compiled(text)) != window_ids(compiled(QUERY))


@pytest.mark.parametrize(
    ("read", "one", "other"),
    [
        ("count(*)", "at, kind", "at, kind, explode(tags) AS tag"),
        ("count(*)", "at, explode(tags) AS tag", "at, explode(array(kind)) AS tag"),
        ('sum("a\\b")', 'at, driver AS "a\\b"', 'at, driver * 2 AS "a\\b"'),
        ("sum(IF(b = '`', a, 1))", "at, kind AS b, driver AS a", "at, kind AS b, driver * 2 AS a"),
    ],
)
def test_windows_over_different_rows_are_not_the_same(
    compiled: Compile, read: str, one: str, other: str
) -> None:
    """Whether or not what differs is read, and whatever it is named beside."""
    ids = [
        window_ids(
            compiled(
                f"SELECT {read} AS n FROM (SELECT {each} FROM rides) GROUP BY tumble('1 hour')"
            )
        )
        for each in (one, other)
    ]
    assert ids[0] != ids[1]


def test_the_same_window_written_twice_is_one_operator(compiled: Compile) -> None:
    graph = compiled(f"INSERT INTO anything {QUERY};\n\nINSERT INTO anything {QUERY}")
    assert len(window_ids(graph)) == 1
    assert [each.id for each in graph.sinks()] == ["sink-anything", "sink-anything-2"]


def test_ids_of_tables_are_lower_case_words(compiled_text: Text) -> None:
    graph = compiled_text(
        'CREATE TABLE "My-Ticks é" WITH (connector = \'impulse\'); SELECT * FROM "my-ticks é"'
    )
    (source,) = graph.sources()
    assert (source.id, source.table) == ("source-my_ticks__", "My-Ticks é")
