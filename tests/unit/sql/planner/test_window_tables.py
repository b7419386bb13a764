"""Windows as Flink and Spark write them: what they compile to, and which are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from resurgence.errors import SqlError
from resurgence.graph.model import Graph
from resurgence.graph.specs.window_aggregate import WindowAggregateSpec

Compile = Callable[..., Graph]
Refusal = Callable[..., SqlError]

COUNT = "SELECT {parts}, kind, count(*) AS n FROM {source} GROUP BY {group}, kind"
TUMBLE = "TABLE(TUMBLE(TABLE rides, DESCRIPTOR(at), INTERVAL '1' HOUR))"


def windows(graph: Graph) -> tuple[WindowAggregateSpec, ...]:
    return graph.window_aggregates()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("tumble(INTERVAL '1 hour')", "TUMBLE(TABLE rides, DESCRIPTOR(at), INTERVAL '1' HOUR)"),
        (
            "hop(INTERVAL '5 minutes', INTERVAL '1 hour')",
            "HOP(TABLE rides, DESCRIPTOR(at), INTERVAL '5' MINUTE, INTERVAL '1' HOUR)",
        ),
        (
            "cumulate(INTERVAL '5 minutes', INTERVAL '1 hour', INTERVAL '1 minute')",
            "CUMULATE(OFFSET => INTERVAL '1' MINUTE, DATA => TABLE rides, TIMECOL => DESCRIPTOR(at),"
            " SIZE => INTERVAL '1' HOUR, STEP => INTERVAL '5' MINUTE)",
        ),
        (
            "session(INTERVAL '5 minutes')",
            "SESSION(TABLE rides PARTITION BY kind, DESCRIPTOR(at), INTERVAL '5' MINUTE)",
        ),
    ],
)
def test_grouping_by_a_table_of_windows_is_the_same_operator(
    compiled: Compile, ours: str, theirs: str
) -> None:
    parts = "window_start, window_end"
    tables = compiled(COUNT.format(parts=parts, source=f"TABLE({theirs})", group=parts))
    own = compiled(COUNT.format(parts="window.start", source="rides", group=ours))
    assert [each.id for each in windows(tables)] == [each.id for each in windows(own)]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("tumble(INTERVAL '1 hour')", "TUMBLE(at, INTERVAL '1' HOUR)"),
        ("tumble(INTERVAL '1 hour')", "window(at, '1 hour')"),
        ("hop(INTERVAL '5 minutes', INTERVAL '1 hour')", "window(at, '1 hour', '5 minutes')"),
        (
            "hop(INTERVAL '5 minutes', INTERVAL '1 hour', INTERVAL '1 minute')",
            "window(at, '1 hour', '5 minutes', '11 minutes')",
        ),
        ("session(INTERVAL '5 minutes')", "session_window(at, '5 minutes')"),
    ],
)
def test_window_functions_of_others_are_the_same_operator(
    compiled: Compile, ours: str, theirs: str
) -> None:
    other, own = (
        compiled(COUNT.format(parts="1", source="rides", group=each)) for each in (theirs, ours)
    )
    assert [each.id for each in windows(other)] == [each.id for each in windows(own)]


@pytest.mark.parametrize(
    "query",
    [
        # The window stands where groups are not known yet.
        f"SELECT window_start, count(*) FROM {TUMBLE} WHERE window_end > at GROUP BY window_start, window_end",
        f"SELECT window_start, max(window_end) FROM {TUMBLE} GROUP BY window_start",
        # Other sessions than those of the groups.
        "SELECT window_end, count(*) FROM TABLE(SESSION(TABLE rides, DESCRIPTOR(at), INTERVAL '5' MINUTE))"
        " GROUP BY window_end, kind",
        # A join with a stream changes the event time of rows.
        f"SELECT w.window_end, count(*) FROM {TUMBLE} w JOIN (SELECT tumble('1 hour') AS t, driver FROM rides"
        " GROUP BY 1, 2) o ON o.t.end = w.window_end GROUP BY w.window_end",
        f"SELECT * FROM {TUMBLE}",
    ],
)
def test_other_queries_keep_the_rows_of_windows(compiled: Compile, query: str) -> None:
    kept = [each.function for one in windows(compiled(query)) for each in one.aggregates]
    assert "collect_list" in kept


def test_only_columns_that_are_read_are_kept(compiled: Compile) -> None:
    graph = compiled(f"SELECT w.kind, w.window_end FROM {TUMBLE} AS w")
    (window,) = windows(graph)
    assert window.aggregates[0].arguments == ("struct(`kind` AS `kind`)",)


@pytest.mark.parametrize(
    ("query", "message", "hint"),
    [
        (
            "SELECT * FROM TABLE(TUMBLE(TABLE rides, DESCRIPTOR(driver), INTERVAL '1' HOUR))",
            "'driver' is not the event time of the input",
            "Use 'at'",
        ),
        (
            "SELECT window_end, count(*) FROM TABLE(TUMBLE(TABLE plain, DESCRIPTOR(a), INTERVAL '1' HOUR))"
            " GROUP BY window_start, window_end",
            "'plain.a' is not the event time of the input",
            "WATERMARK FOR a",
        ),
        (
            "SELECT * FROM TABLE(HOP(TABLE rides, DESCRIPTOR(at), INTERVAL '1' HOUR))",
            "HOP requires the argument SIZE",
            "DESCRIPTOR(at)",
        ),
        (
            "SELECT * FROM TABLE(TUMBLE(TABLE rides, DESCRIPTOR(at), WIDTH => INTERVAL '1' HOUR))",
            "TUMBLE has no argument WIDTH",
            "SIZE",
        ),
        (
            "SELECT * FROM TABLE(SESSION(TABLE rides, DESCRIPTOR(at), INTERVAL '1' HOUR, INTERVAL '1' HOUR))",
            "SESSION has too many arguments",
            "GAP",
        ),
        (
            "SELECT * FROM TABLE(TUMBLE(TABLE rides, at, INTERVAL '1' HOUR))",
            "TUMBLE requires the event time as DESCRIPTOR(column)",
            "DESCRIPTOR(at)",
        ),
        (
            "SELECT * FROM TABLE(CUMULATE(TABLE rides, DESCRIPTOR(at), INTERVAL '7' MINUTE, INTERVAL '1' HOUR))",
            "the width of cumulate() must be a multiple of its step",
            "cumulate(",
        ),
        (
            f"CREATE VIEW v AS SELECT window_end, window_time AS t, count(*) AS n FROM {TUMBLE}"
            " GROUP BY window_end, window_time;"
            "SELECT * FROM TABLE(TUMBLE(TABLE v, DESCRIPTOR(t), INTERVAL '1' HOUR))",
            "the table already has a column 'window_end'",
            "Rename the column",
        ),
        (
            "SELECT TUMBLE_PROCTIME(at, INTERVAL '1' HOUR) FROM rides GROUP BY TUMBLE(at, INTERVAL '1' HOUR)",
            "TUMBLE_PROCTIME is not supported",
            "TUMBLE_ROWTIME",
        ),
        (
            "SELECT TUMBLE_START(at, INTERVAL '2' HOUR) FROM rides GROUP BY TUMBLE(at, INTERVAL '1' HOUR)",
            "the window differs from the window of GROUP BY",
            "same call",
        ),
        (
            "SELECT window(at).start FROM rides",
            "wrong number of arguments for window(): 1",
            "width",
        ),
        (
            "SELECT count(*) FROM rides GROUP BY session_window(at, driver)",
            "an INTERVAL literal is required here",
            "INTERVAL",
        ),
    ],
)
def test_what_is_refused(refusal: Refusal, query: str, message: str, hint: str) -> None:
    error = refusal(query)
    assert error.message == message
    assert hint in error.hint


def test_an_error_points_to_its_place_in_the_function(refusal: Refusal) -> None:
    error = refusal(
        "SELECT window_end, count(*)\n"
        "FROM TABLE(TUMBLE(TABLE rides, DESCRIPTOR(driver), INTERVAL '1' HOUR))\n"
        "GROUP BY window_start, window_end"
    )
    assert (error.line, error.column) == (2, 43)


def test_a_window_without_a_name_makes_no_other_column_ambiguous(compiled: Compile) -> None:
    graph = compiled(
        "SELECT window.end AS end, a.n, b.n AS m FROM"
        " (SELECT tumble('1 hour'), kind, count(*) AS n FROM rides GROUP BY 1, 2) a JOIN"
        " (SELECT tumble('1 hour') AS window, kind, count(*) AS n FROM rides GROUP BY 1, 2) b"
        " ON a.window = b.window AND a.kind = b.kind"
    )
    assert len(windows(graph)) == 1


def test_a_column_called_window_takes_precedence_over_an_unnamed_window(compiled: Compile) -> None:
    graph = compiled(
        "SELECT window.end AS hour, count(*) FROM"
        " (SELECT tumble('1 hour') AS window, kind FROM rides GROUP BY 1, 2)"
        " GROUP BY tumble('1 day'), window"
    )
    day = windows(graph)[1]
    assert [each.sql for each in day.keys] == ["`window`"]
    select = next(each for each in graph.operators if getattr(each, "input", None) == day.id)
    assert select.select[0].sql == f"`{day.keys[0].name}`.`end`"  # type: ignore[union-attr]
