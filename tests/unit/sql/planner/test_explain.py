"""EXPLAIN output as plain text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from resurgence.graph.explain import explain_graph
from resurgence.graph.model import Graph
from resurgence.graph.specs.base import duration_text

Compile = Callable[..., Graph]

WINDOWED = (
    "INSERT INTO anything SELECT kind, count(*) AS n, sum(driver) FILTER (WHERE driver > 0) AS s "
    "FROM rides GROUP BY tumble(INTERVAL '90 minutes'), kind;"
)
PLAIN = "INSERT INTO out SELECT a, b FROM plain WHERE a > 1;"


def test_every_operator_is_shown_with_its_input(compiled: Compile) -> None:
    graph = compiled(WINDOWED + PLAIN)
    text = explain_graph(graph, parallelism=4)
    for each in graph.operators:
        assert f"{each.id}: " in text
        assert all(f"input        {fed}" in text for fed in each.input_ids)


def test_a_window_shows_width_keys_aggregates_parallelism_and_state(compiled: Compile) -> None:
    text = explain_graph(compiled(WINDOWED), parallelism=4)
    assert "tumbling, 1 hour 30 minutes of event time" in text
    assert "keys         `kind`" in text
    assert "count_1 = count(*)" in text
    assert "sum_2 = sum(`driver`) where `driver` > 0" in text
    assert "4 subtasks" in text
    assert "TimeTable 'partials'" in text
    assert "when the watermark passes the end of its window" in text


def test_event_time_is_not_shown_as_a_column(compiled: Compile) -> None:
    assert "__event_time" not in explain_graph(
        compiled(WINDOWED + "SELECT driver FROM rides"), parallelism=1
    )


@pytest.mark.parametrize(
    ("query", "total"),
    [
        (PLAIN, "1 at least, 1 at most"),
        (PLAIN + PLAIN, "2 at least, 2 at most"),
        (WINDOWED, "1 at least, 2 at most"),
        (WINDOWED + WINDOWED, "1 at least, 3 at most"),
        (WINDOWED + WINDOWED.replace("90", "30") + PLAIN, "3 at least, 5 at most"),
    ],
)
def test_jobs_are_counted_from_windows_and_sinks(compiled: Compile, query: str, total: str) -> None:
    assert f"in total     {total}" in explain_graph(compiled(query), parallelism=2)


def test_only_the_ingest_of_a_window_has_a_shuffle(compiled: Compile) -> None:
    lines = explain_graph(compiled(WINDOWED + PLAIN), parallelism=2).splitlines()
    jobs = [each for each in lines if each.startswith(("  always", "  on closing"))]
    assert ["one shuffle" in each for each in jobs] == [True, False, False]
    assert "reads source-rides" in jobs[0]
    assert "sink-out: reads source-plain" in jobs[1]
    assert "sink-anything: reads the closed bins of window-" in jobs[2]


RANKED = (
    "INSERT INTO anything SELECT kind, rank() OVER (PARTITION BY window ORDER BY n) FROM"
    " (SELECT tumble(INTERVAL '1 hour') AS window, kind, count(*) AS n FROM rides GROUP BY 1, 2);"
)
LOOKED_UP = """CREATE TEMPORARY TABLE names (id BIGINT, name TEXT)
WITH (connector = 'filesystem', path = '/names');
INSERT INTO anything SELECT kind, name FROM rides JOIN names ON driver = id;
"""
KEYED = """CREATE TABLE totals (kind TEXT PRIMARY KEY, n BIGINT)
WITH (connector = 'stdout', format = 'debezium_json');
INSERT INTO totals SELECT kind, count(*) FROM rides GROUP BY kind;
"""


@pytest.mark.parametrize(
    ("query", "shuffles"),
    [
        (PLAIN, "no shuffle, stages"),
        (RANKED, "the shuffles of its queries over closed windows, stages"),
        (LOOKED_UP, "one for each lookup table that is too large to be broadcast, stages"),
        (KEYED, "one by the keys of changes, stages"),
    ],
)
def test_a_sink_shows_the_shuffles_of_its_job(compiled: Compile, query: str, shuffles: str) -> None:
    assert f", {shuffles}" in explain_graph(compiled(query), parallelism=2)


def test_a_join_shows_its_state_and_how_long_rows_are_stored(compiled: Compile) -> None:
    query = "SELECT a.kind FROM rides a JOIN rides b ON a.driver = b.driver"
    text = explain_graph(compiled(query), parallelism=2)
    assert "  stores       l_0 = `driver`, l_1 = `kind`, l_time = `__event_time`, l_key_0 =" in text
    assert "  stores       r_0 = `driver`, r_time = `__event_time`, r_key_0 = `driver`" in text
    assert "  dropped      never" in text
    bounded = f"{query} AND b.at BETWEEN a.at AND a.at + INTERVAL '1 minute'"
    text = explain_graph(compiled(bounded), parallelism=2)
    assert "  dropped      a row, when the watermark is 1 minute beyond its event time" in text


CUSTOMERS = """CREATE TABLE customers (id BIGINT PRIMARY KEY, name TEXT{more})
WITH (connector = 'single_file', path = 'x', type = 'source', format = 'debezium_json');
SELECT name, count(*) FROM customers GROUP BY name;
"""


def test_a_changelog_by_key_shows_its_state(compiled: Compile) -> None:
    text = explain_graph(compiled(CUSTOMERS.format(more="")), parallelism=2)
    assert ": changelog by key\n  input        source-customers\n  keys         id\n" in text
    assert "  state        KeyTable 'rows': the last row of each key\n" in text
    assert ": reads source-customers, one shuffle, writes state files" in text
    assert ": reads the touched keys of normalise-" in text


def test_what_reads_changes_by_key_is_edited_with_their_table(compiled: Compile) -> None:
    """A normaliser of other columns starts empty: what reads it must start empty, too."""

    def ids(more: str) -> set[str]:
        graph = compiled(CUSTOMERS.format(more=more))
        return {
            each.id for each in graph.operators if each.id.startswith(("normalise", "updating"))
        }

    assert len(ids("")) == 2
    assert ids("") == ids("")
    assert not ids("") & ids(", age INT")
    computed = ids(", size INT GENERATED ALWAYS AS (length(name))")
    assert {each for each in computed if each.startswith("normalise")} <= ids("")


def test_computed_and_metadata_columns_show_their_definition(compiled: Compile) -> None:
    text = explain_graph(
        compiled(
            "CREATE TABLE t (a INT, b INT GENERATED ALWAYS AS (a + 1) STORED, p TEXT METADATA FROM 'path')"
            " WITH (connector = 'single_file', path = '/t', type = 'source'); SELECT b, p FROM t"
        ),
        parallelism=1,
    )
    assert "a INT, b INT AS (`a` + 1), p STRING METADATA FROM 'path'" in text


@pytest.mark.parametrize(
    ("micros", "text"),
    [(1, "1 microsecond"), (3_600_000_000, "1 hour"), (90_000_000, "1 minute 30 seconds")],
)
def test_durations_are_shown_in_the_largest_units(micros: int, text: str) -> None:
    assert duration_text(micros) == text
