"""Lookup tables and the joins with them: what is planned, what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from resurgence.errors import SqlError
from resurgence.graph.explain import explain_graph
from resurgence.graph.model import Graph
from resurgence.graph.specs.lookup_join import LookupJoinSpec
from resurgence.graph.specs.window_aggregate import WindowAggregateSpec
from resurgence.sql.syntax.masking import masked_sql

Compile = Callable[..., Graph]
Refusal = Callable[..., SqlError]

DRIVERS = (
    "CREATE TEMPORARY TABLE drivers (id BIGINT PRIMARY KEY, name TEXT)"
    " WITH (connector = 'filesystem', path = 'drivers');\n"
)
JOIN = "FROM rides r JOIN drivers d ON r.driver = d.id"


def only_join(graph: Graph) -> LookupJoinSpec:
    (operator,) = graph.all_of(LookupJoinSpec)
    return operator


def test_a_lookup_join_has_no_state(compiled: Compile) -> None:
    graph = compiled(DRIVERS + f"SELECT r.kind, d.name {JOIN}")
    operator = only_join(graph)
    assert (operator.input, operator.join) == ("source-rides", "inner")
    assert operator.on.sql == "`driver` = `drivers_id`"
    assert operator.id not in {each.id for each in graph.durable()}
    assert [each.table for each in graph.sources()] == ["rides"]


@pytest.mark.parametrize("words", ["LEFT JOIN", "LEFT OUTER JOIN"])
def test_unmatched_rows_are_kept_by_a_left_join(compiled: Compile, words: str) -> None:
    query = f"SELECT d.name FROM rides r {words} drivers d ON r.driver = d.id AND d.name > 'b'"
    assert only_join(compiled(DRIVERS + query)).join == "left"


def test_the_sides_of_an_equality_may_be_expressions_in_any_order(compiled: Compile) -> None:
    query = "SELECT d.name FROM rides r JOIN drivers d ON d.id + 1 = r.driver % 10"
    assert only_join(compiled(DRIVERS + query)).on.sql == "`drivers_id` + 1 = `driver` % 10"


def test_a_table_can_be_joined_twice(compiled: Compile) -> None:
    query = (
        "SELECT d.name, e.name AS other FROM rides r JOIN drivers d ON r.driver = d.id"
        " LEFT JOIN drivers e ON r.place = e.name"
    )
    graph = compiled(DRIVERS + query)
    first, second = graph.all_of(LookupJoinSpec)
    assert [each.name for each in first.found] == ["drivers_id", "drivers_name"]
    assert [each.name for each in second.found] == ["drivers_id_2", "drivers_name_2"]
    assert len(graph.lookup_tables()) == 1


def test_using_shows_the_column_once(compiled: Compile) -> None:
    table = DRIVERS.replace("id BIGINT", "driver BIGINT")
    query = "INSERT INTO anything SELECT * FROM rides JOIN drivers USING (driver)"
    graph = compiled(table + query)
    (sink,) = graph.sinks()
    shown = [each.name for each in graph.operator(sink.input).select]  # type: ignore[union-attr]
    assert shown == ["driver", "at", "kind", "place", "tags", "car", "name"]


def test_event_time_is_passed_on_to_windows(compiled: Compile) -> None:
    query = f"SELECT d.name, count(*) AS n {JOIN} GROUP BY tumble(INTERVAL '1 hour'), d.name"
    graph = compiled(DRIVERS + query)
    (window,) = graph.window_aggregates()
    assert window.input == only_join(graph).id


def test_rows_of_closed_windows_stay_closed(compiled: Compile) -> None:
    query = (
        "WITH hourly AS (SELECT driver, tumble(INTERVAL '1 hour') AS window, count(*) AS n"
        " FROM rides GROUP BY 1, 2),"
        " named AS (SELECT d.name, h.window, h.n FROM hourly h JOIN drivers d ON h.driver = d.id)"
        " SELECT name, window, sum(n) AS n FROM named GROUP BY name, window"
    )
    graph = compiled(DRIVERS + query)
    assert len([each for each in graph.operators if isinstance(each, WindowAggregateSpec)]) == 1
    assert only_join(graph).input != "source-rides"


# ---------------------------------------------------------------- declarations


@pytest.mark.parametrize(
    ("option", "micros"),
    [
        ("", 60_000_000),
        (", lookup.cache.ttl = '10 minutes'", 600_000_000),
        (", 'lookup.cache.ttl' = '1.5 seconds'", 1_500_000),
        (", lookup.cache.ttl = '0'", 0),
        (", type = 'lookup', lookup.cache.ttl = 0", 0),
    ],
)
def test_a_table_is_read_again_after_its_ttl(compiled: Compile, option: str, micros: int) -> None:
    table = DRIVERS.replace("path = 'drivers'", f"path = 'drivers'{option}")
    operator = only_join(compiled(table + f"SELECT d.name {JOIN}"))
    assert operator.table.ttl_micros == micros
    assert operator.table.options == {"path": "drivers", "format": "parquet"}


def declared(
    options: str, columns: str = "id BIGINT, name TEXT", words: str = "TEMPORARY TABLE"
) -> str:
    return f"CREATE {words} drivers ({columns}) WITH ({options}); SELECT kind FROM rides"


@pytest.mark.parametrize(
    ("query", "place", "message", "hint"),
    [
        (
            declared("connector = 'postgres', url = 'u'", words="TABLE"),
            "CREATE",
            "connector 'postgres' is for lookup tables, which are TEMPORARY",
            "CREATE TEMPORARY TABLE",
        ),
        (
            declared("connector = 'filesystem', path = 'p', type = 'lookup'", words="TABLE"),
            "type = 'lookup'",
            "a lookup table must be TEMPORARY",
            "CREATE TEMPORARY TABLE",
        ),
        (
            declared("connector = 'single_file', path = 'p'"),
            "CREATE",
            "connector 'single_file' does not support",
            "filesystem, postgres",
        ),
        (
            declared("connector = 'filesystem', path = 'p', type = 'sink'"),
            "type = 'sink'",
            "cannot be a sink",
            "Remove TEMPORARY",
        ),
        (
            declared("connector = 'filesystem', path = 'p', lookup.cache.ttl = 'soon'"),
            "lookup.cache.ttl",
            "option 'lookup.cache.ttl': 'soon' is not an interval",
            "'10 minutes'",
        ),
        (
            declared("connector = 'filesystem', path = 'p', lookup.cache.ttl = '-1 hour'"),
            "lookup.cache.ttl",
            "must be a positive number",
            "'0' to read the table in every epoch",
        ),
        (
            declared("connector = 'filesystem', path = 'p', lookup.cache.tll = '1 hour'"),
            "lookup.cache.tll",
            "as a lookup has no option 'lookup.cache.tll'",
            "'lookup.cache.ttl'",
        ),
        (
            declared("connector = 'filesystem', path = 'p', format = 'json'"),
            "format = 'json'",
            "'json' is not a valid value for option 'format'",
            "parquet",
        ),
        (
            declared(
                "connector = 'filesystem', path = 'p'", "at TIMESTAMP, WATERMARK FOR at AS at"
            ),
            "WATERMARK",
            "a lookup table cannot have a WATERMARK",
            "Remove it",
        ),
        (
            declared(
                "connector = 'filesystem', path = 'p'", "a INT, b INT GENERATED ALWAYS AS (a)"
            ),
            "GENERATED",
            "a lookup table cannot compute columns",
            "in the SELECT",
        ),
        (
            "CREATE TEMPORARY TABLE d WITH (connector = 'filesystem', path = 'p');",
            "d WITH",
            "table 'd' needs columns",
            "Declare them",
        ),
        (
            "CREATE TEMPORARY TABLE d (a INT) WITH (connector = 'filesystem', path = 'p')"
            " AS SELECT driver FROM rides",
            "SELECT",
            "a lookup table cannot be defined by AS",
            "CREATE TEMPORARY TABLE",
        ),
    ],
)
def test_a_declaration_that_cannot_be_looked_up_is_refused(
    refusal: Refusal, query: str, place: str, message: str, hint: str
) -> None:
    error = refusal(query)
    assert message in error.message
    assert hint in error.hint
    assert (error.line, error.column) == (1, query.index(place) + 1)


@pytest.mark.parametrize(
    ("query", "column", "message", "hint"),
    [
        (
            "SELECT * FROM drivers",
            15,
            "lookup table 'drivers' can only be joined",
            "Put the stream first",
        ),
        (
            "SELECT kind FROM drivers d JOIN rides r ON r.driver = d.id",
            18,
            "can only be joined",
            "FROM events e JOIN drivers t ON e.key = t.key",
        ),
        (
            "SELECT kind FROM rides WHERE driver NOT IN (SELECT id FROM drivers)",
            30,
            "NOT IN (SELECT ...) requires values that are not null",
            "NOT EXISTS",
        ),
        (
            "SELECT kind FROM rides r RIGHT JOIN drivers d ON r.driver = d.id",
            26,
            "RIGHT JOIN is not supported with the lookup table 'drivers'",
            "Use JOIN or LEFT JOIN",
        ),
        (
            "SELECT kind FROM rides r FULL OUTER JOIN drivers d ON r.driver = d.id",
            26,
            "FULL OUTER JOIN is not supported",
            "Use JOIN or LEFT JOIN",
        ),
        ("SELECT kind FROM rides CROSS JOIN drivers", 24, "CROSS JOIN is not", "Use JOIN"),
        (
            "SELECT kind FROM rides r JOIN drivers d",
            26,
            "requires an equality between its sides",
            "ON",
        ),
        (
            "SELECT kind FROM rides r JOIN drivers d ON r.driver > d.id",
            26,
            "requires an equality between its sides",
            "ON e.key = t.key",
        ),
        (
            "SELECT kind FROM rides r JOIN drivers d ON d.id = 7 AND r.driver = 7",
            26,
            "requires an equality between its sides",
            "",
        ),
        (
            "INSERT INTO drivers SELECT driver, kind FROM rides",
            13,
            "table 'drivers' is a lookup table and cannot be written",
            "Write to a sink",
        ),
        (
            "SELECT c.n FROM (SELECT driver, count(*) AS n FROM rides GROUP BY driver) c"
            " JOIN drivers d ON c.driver = d.id",
            77,
            "requires an append-only input, but this input is a changelog",
            "before rows are aggregated",
        ),
        ("SELECT d.nam FROM rides r JOIN drivers d ON r.driver = d.id", 8, "'nam'", "'name'"),
    ],
)
def test_a_query_that_a_lookup_table_cannot_serve_is_refused(
    refusal: Refusal, query: str, column: int, message: str, hint: str
) -> None:
    error = refusal(DRIVERS + query)
    assert message in error.message
    assert hint in error.hint
    assert (error.line, error.column) == (2, column)


# ---------------------------------------------------------------- ids, secrets, EXPLAIN

COUNTED = f"SELECT d.name, count(*) AS n {JOIN} GROUP BY tumble(INTERVAL '1 hour'), d.name"
POSTGRES = (
    "CREATE TEMPORARY TABLE drivers (id BIGINT, name TEXT) WITH (connector = 'postgres',"
    " url = 'postgresql://me:geheim@host/db', password = 'mellon');\n"
)


def window_id(graph: Graph) -> str:
    (window,) = graph.window_aggregates()
    return window.id


@pytest.mark.parametrize(
    "table",
    [
        DRIVERS.replace("'drivers')", "'elsewhere', lookup.cache.ttl = '0')"),
        DRIVERS.replace("name TEXT", "name TEXT, born DATE"),
        DRIVERS.replace(" PRIMARY KEY", ""),
        POSTGRES,
        POSTGRES.replace("geheim", "secret").replace("mellon", "friend"),
    ],
)
def test_an_edit_that_changes_no_value_changes_no_id(compiled: Compile, table: str) -> None:
    assert window_id(compiled(table + COUNTED)) == window_id(compiled(DRIVERS + COUNTED))


@pytest.mark.parametrize(
    ("table", "query"),
    [
        (DRIVERS.replace("name TEXT", "name VARIANT"), COUNTED),
        (DRIVERS.replace("id BIGINT", "id INT"), COUNTED),
        (DRIVERS, COUNTED.replace("JOIN drivers", "LEFT JOIN drivers")),
        (DRIVERS, COUNTED.replace("d.id", "d.id + 1")),
        (DRIVERS.replace("drivers (", "others ("), COUNTED.replace("drivers", "others")),
    ],
)
def test_an_edit_that_changes_what_is_found_changes_the_id(
    compiled: Compile, table: str, query: str
) -> None:
    assert window_id(compiled(table + query)) != window_id(compiled(DRIVERS + COUNTED))


def test_unread_columns_of_the_stream_change_no_id(compiled_text: Compile) -> None:
    stream = (
        "CREATE TABLE rides (at TIMESTAMP, driver BIGINT, {}WATERMARK FOR at AS at)"
        " WITH (connector = 'single_file', path = 'rides.json', type = 'source');\n"
    )
    ids = {
        window_id(compiled_text(stream.format(more) + DRIVERS + COUNTED))
        for more in ("", "kind TEXT, ")
    }
    assert len(ids) == 1


def test_explain_shows_the_table_without_its_secrets(compiled: Compile) -> None:
    text = explain_graph(compiled(POSTGRES + f"SELECT d.name {JOIN}"), parallelism=2)
    assert "looks up     table drivers through postgres (url = postgresql://me:***@host/db" in text
    assert "join         inner, on `driver` = `drivers_id`" in text
    assert "none: the table is read again every 1 minute" in text
    assert "in total     1 at least, 2 at most" in text
    assert "geheim" not in text
    assert "mellon" not in text


def test_explain_says_that_the_time_of_a_row_does_not_choose_the_version(compiled: Compile) -> None:
    timed = JOIN.replace("drivers d", "drivers FOR SYSTEM_TIME AS OF r.at AS d")
    assert timed != JOIN
    text = explain_graph(compiled(DRIVERS + f"SELECT d.name {timed}"), parallelism=2)
    version = "version      the one cached at the epoch, whatever time of the row SYSTEM_TIME names"
    assert version in text


def test_explain_says_when_a_table_is_read_in_every_epoch(compiled: Compile) -> None:
    table = DRIVERS.replace("'drivers')", "'drivers', lookup.cache.ttl = '0')")
    text = explain_graph(compiled(table + f"SELECT d.name {JOIN}"), parallelism=2)
    assert "the table is read again in every epoch" in text


def test_the_text_of_a_temporary_table_is_masked_for_records() -> None:
    shown = masked_sql(POSTGRES)
    assert "geheim" not in shown
    assert "mellon" not in shown
    assert shown.startswith("CREATE TEMPORARY TABLE drivers")
