"""Windows over rows without event time are by processing time."""

from __future__ import annotations

import pytest
from tests.unit.sql.conftest import CONNECTORS, Compile

from resurgence.errors import SqlError
from resurgence.graph.explain import explain_graph
from resurgence.sql import compile_pipeline

TABLE = (
    "CREATE TABLE t (a INT, seen {kind}{more}) WITH (connector = 'single_file', path = 'c',"
    " type = 'source'); SELECT count(*), max(seen) FROM t GROUP BY tumble(INTERVAL '1 hour')"
)
PROCTIME = "AS PROCTIME()"
HOURLY = "GROUP BY tumble(INTERVAL '1 hour')"


def test_a_window_over_a_table_without_event_time_is_by_processing_time(compiled: Compile) -> None:
    graph = compiled(f"SELECT count(*) FROM plain {HOURLY}")
    (window,) = graph.window_aggregates()
    assert window.by_processing_time
    assert graph.follows_planning_time(window.id)
    assert graph.event_time_sources_of(window.id) == ()
    assert "processing time" in explain_graph(graph, 2)


def test_a_window_over_event_time_is_not(compiled: Compile) -> None:
    graph = compiled(f"SELECT count(*) FROM rides {HOURLY}")
    (window,) = graph.window_aggregates()
    assert not window.by_processing_time
    assert not graph.follows_planning_time(window.id)
    assert graph.event_time_sources_of(window.id) == ("source-rides",)
    assert "processing time" not in explain_graph(graph, 2)


def test_a_join_with_a_table_without_event_time_has_none(compiled: Compile) -> None:
    graph = compiled(f"SELECT count(*) FROM rides r JOIN plain p ON r.driver = p.a {HOURLY}")
    (window,) = graph.window_aggregates()
    assert window.by_processing_time
    assert graph.event_time_sources_of(window.id) == ()
    assert set(graph.sources_of(window.id)) == {"source-rides", "source-plain"}


def test_a_window_of_windows_follows_the_one_below(compiled: Compile) -> None:
    graph = compiled(
        f"SELECT sum(n) FROM (SELECT window, count(*) AS n FROM plain {HOURLY})"
        " GROUP BY tumble(INTERVAL '1 day')"
    )
    below, above = graph.window_aggregates()
    assert below.by_processing_time
    assert not above.by_processing_time
    assert graph.follows_planning_time(above.id)
    assert graph.event_time_sources_of(above.id) == ()


def test_joined_windows_of_event_and_processing_time_follow_the_slower_watermark(
    compiled: Compile,
) -> None:
    graph = compiled(
        f"SELECT x.n, y.n FROM (SELECT window, count(*) AS n FROM plain {HOURLY}) x JOIN"
        f" (SELECT window, count(*) AS n FROM rides {HOURLY}) y ON x.window = y.window"
    )
    for window in graph.window_aggregates():
        assert graph.follows_planning_time(window.id)
        assert graph.event_time_sources_of(window.id) == ("source-rides",)


@pytest.mark.parametrize("kind", [PROCTIME, "TIMESTAMP GENERATED ALWAYS AS (PROCTIME()) STORED"])
def test_a_proctime_column_is_no_event_time(kind: str) -> None:
    graph = compile_pipeline(TABLE.format(kind=kind, more=""), CONNECTORS)
    assert graph.window_aggregates()[0].by_processing_time


@pytest.mark.parametrize(
    ("more", "options"),
    [(", WATERMARK FOR seen AS seen", ""), ("", ", event_time_field = 'seen'")],
)
def test_a_proctime_column_takes_no_watermark(more: str, options: str) -> None:
    text = TABLE.format(kind=PROCTIME, more=more).replace("path = 'c'", f"path = 'c'{options}")
    with pytest.raises(SqlError, match="'seen' is processing time and cannot have a watermark"):
        compile_pipeline(text, CONNECTORS)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM t GROUP BY TUMBLE(seen, INTERVAL '1' HOUR)",
        "SELECT TUMBLE_START(p, INTERVAL '1' HOUR), count(*) FROM (SELECT a, seen AS p FROM t)"
        " GROUP BY TUMBLE(p, INTERVAL '1' HOUR)",
        "SELECT window_start, count(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(seen),"
        " INTERVAL '1' HOUR)) GROUP BY window_start, window_end",
        "SELECT a, window_start FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(seen), INTERVAL '1' HOUR))",
    ],
)
@pytest.mark.parametrize("more", ["", ", at TIMESTAMP, WATERMARK FOR at AS at"])
def test_a_window_may_name_a_proctime_column(query: str, more: str) -> None:
    """Also where the table has event time."""
    table = TABLE.format(kind=PROCTIME, more=more).partition("SELECT")[0]
    graph = compile_pipeline(table + query, CONNECTORS)
    (window,) = graph.window_aggregates()
    assert window.by_processing_time
