"""Settings of event time: late rows, allowed lateness, idle sources."""

from __future__ import annotations

from collections.abc import Callable

from resurgence.errors import SqlError
from resurgence.graph.explain import explain_graph
from resurgence.graph.model import Graph
from resurgence.graph.specs.late_rows import LateRowsSpec
from resurgence.graph.specs.query import QuerySpec
from resurgence.ids import OperatorId

Compile = Callable[..., Graph]
Refusal = Callable[..., SqlError]

SECOND = 1_000_000
COUNT = "SELECT kind, count(*) FROM rides GROUP BY kind, tumble(INTERVAL '1 hour');"
IDLE = """CREATE TABLE events (at TIMESTAMP, WATERMARK FOR at)
WITH (connector = 'single_file', path = '/x', type = 'source', idle_timeout = '{}');"""


def late(graph: Graph) -> list[LateRowsSpec]:
    return [each for each in graph.operators if isinstance(each, LateRowsSpec)]


def test_late_rows_of_the_following_statements_are_written_to_a_sink(compiled: Compile) -> None:
    assert not late(compiled(f"{COUNT} SET late_rows = 'anything'; SELECT kind FROM rides"))
    graph = compiled(f"SET late_rows = 'anything'; {COUNT}")
    (found,) = late(graph)
    assert found.input == "source-rides"
    assert [each.table for each in graph.sinks()] == ["terminal", "anything"]
    assert "rows whose windows in" in explain_graph(graph, 2)


def test_late_rows_of_one_window_are_written_once(compiled: Compile) -> None:
    graph = compiled(f"SET late_rows = anything; {COUNT} {COUNT}")
    assert len(graph.window_aggregates()) == 1
    assert [each.table for each in graph.sinks()].count("anything") == 1


def test_rows_of_closed_windows_are_never_late(compiled: Compile) -> None:
    graph = compiled(
        "SET late_rows = 'anything'; SELECT max(n) FROM (SELECT count(*) AS n FROM rides"
        " GROUP BY tumble(INTERVAL '1 hour')) GROUP BY tumble(INTERVAL '1 day')"
    )
    assert len(graph.window_aggregates()) == 2
    assert len(late(graph)) == 1


def test_the_sink_of_late_rows_must_match_their_columns(refusal: Refusal) -> None:
    assert "there is no table 'nowhere'" in refusal("SET late_rows = 'nowhere'").message
    assert "cannot be written" in refusal("SET late_rows = 'rides'").message
    narrow = refusal(f"SET late_rows = 'out'; {COUNT}")
    assert "table 'out' has 2 columns, but the input of the window has 6" in narrow.message


def test_late_rows_of_a_join_have_all_columns_under_their_names(compiled: Compile) -> None:
    graph = compiled(
        "SET late_rows = 'anything'; SELECT a.kind, count(*) FROM rides a JOIN rides b"
        " ON a.driver = b.driver GROUP BY a.kind, tumble(INTERVAL '1 hour')"
    )
    (sink,) = (each for each in graph.sinks() if each.table == "anything")
    query = graph.operator(sink.input)
    assert isinstance(query, QuerySpec)
    own = ["at", "driver", "kind", "place", "tags", "car"]
    assert [each.name for each in query.select] == [*own, *(f"{each}_2" for each in own)]


def test_allowed_lateness_applies_to_the_following_statements_and_their_downstream_windows(
    compiled: Compile,
) -> None:
    graph = compiled(f"{COUNT} SET allowed_lateness = INTERVAL '10 seconds'; {COUNT}")
    assert [each.lateness_micros for each in graph.window_aggregates()] == [0, 10 * SECOND]
    lags = [graph.lag_micros(each.id) for each in graph.window_aggregates()]
    assert lags == [0, 10 * SECOND]
    assert "tumbling, 1 hour of event time, with allowed lateness 10 seconds" in explain_graph(
        graph, 2
    )


def test_an_idle_timeout_is_an_interval(compiled: Compile, refusal: Refusal) -> None:
    graph = compiled(f"{IDLE.format('5 minutes')} SELECT at FROM events")
    source = graph.operator(OperatorId("source-events"))
    assert source.model_dump()["idle_micros"] == 300 * SECOND
    assert "after 5 minutes without rows" in explain_graph(graph, 2)
    error = refusal(f"{IDLE.format('soon')} SELECT at FROM events")
    assert (error.line, error.message) == (2, "'soon' is not an interval")
