"""Errors and unsupported SQL: the reason, the position and a workaround."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from resurgence.errors import SqlError
from resurgence.udf import FunctionKind

Refusal = Callable[..., SqlError]

HOURLY = "FROM rides GROUP BY tumble(INTERVAL '1 hour')"


@pytest.mark.parametrize(
    ("query", "column", "message", "hint"),
    [
        ("SELECT * FROM ridez", 15, "there is no table 'ridez'", "'rides'"),
        ("SELECT drivr FROM rides", 8, "there is no column 'drivr' in 'rides'", "'driver'"),
        (
            "SELECT kind, r.drivr FROM rides AS r",
            14,
            "there is no column 'drivr' in 'r'",
            "'driver'",
        ),
        (
            "SELECT rides.kind FROM rides AS r",
            8,
            "'rides' is neither a table of this query nor a column",
            "",
        ),
        ("SELECT kind FROM rides WHERE nope = 1", 30, "there is no column 'nope'", "Use one of:"),
        ("SELECT car.seat FROM rides", 8, "'car' has no field 'seat'", "'seats'"),
        ("SELECT kind.x FROM rides", 8, "'kind' has no field 'x'", ""),
        ("SELECT x.* FROM rides", 8, "there is no table 'x' in this query", "rides"),
        ("SELECT a FROM (SELECT a, b AS a FROM plain)", 8, "column 'a' is ambiguous", "AS"),
        ("SELECT uper(kind) FROM rides", 8, "there is no function 'uper'", "'upper'"),
        ("SELECT spred(driver) FROM rides", 8, "there is no function 'spred'", "'spread'"),
        ("SELECT a.upper(kind) FROM rides", 8, "cannot be qualified", "upper()"),
        ("SELECT CAST(kind AS STRNG) FROM rides", 21, "there is no type 'STRNG'", "'STRING'"),
        ("SELECT driver AS __event_time FROM rides", 8, "reserved", "another name"),
    ],
)
def test_unknown_names_are_refused_with_a_suggestion(
    refusal: Refusal, query: str, column: int, message: str, hint: str
) -> None:
    error = refusal(query, {"spread": FunctionKind.AGGREGATE})
    assert message in error.message
    assert hint in error.hint
    assert (error.line, error.column) == (1, column)


@pytest.mark.parametrize(
    ("query", "column", "message"),
    [
        (
            "INSERT INTO anything SELECT kind, count(*) FROM rides GROUP BY kind",
            22,
            "requires an append-only input, but the result is a changelog",
        ),
        (
            "INSERT INTO anything SELECT count(*) FROM rides",
            22,
            "requires an append-only input, but the result is a changelog",
        ),
        (
            "SELECT kind FROM rides HAVING count(*) > 1",
            8,
            "'kind' is neither grouped nor aggregated",
        ),
        ("SELECT kind FROM rides HAVING kind > 1", 24, "HAVING requires GROUP BY"),
        ("SELECT kind FROM rides ORDER BY kind", 24, "ORDER BY is not supported"),
        ("INSERT INTO anything SELECT kind FROM rides LIMIT 3", 45, "LIMIT is not supported here"),
        ("SELECT kind FROM (SELECT kind FROM rides LIMIT 3)", 42, "LIMIT is not supported here"),
        ("SELECT kind FROM rides LIMIT 0", 24, "LIMIT requires a positive whole number of rows"),
        ("SELECT kind FROM rides LIMIT ALL", 24, "LIMIT requires a positive whole number of rows"),
        (
            "SELECT kind FROM rides FETCH FIRST 3 ROWS WITH TIES",
            24,
            "FETCH requires a positive whole number of rows",
        ),
        (
            "SELECT kind, count(*) FROM rides GROUP BY kind LIMIT 3",
            48,
            "LIMIT requires an append-only result",
        ),
        ("SELECT kind FROM rides LIMIT 3 OFFSET 2", 32, "OFFSET is not supported here"),
        ("SELECT kind FROM rides ORDER BY kind LIMIT 3", 24, "ORDER BY is not supported here"),
        (
            "SELECT kind FROM rides JOIN plain ON true",
            24,
            "a join requires an equality between its sides",
        ),
        ("SELECT kind FROM rides, plain", 23, "CROSS JOIN of streams is not supported"),
        ("SELECT kind FROM rides CROSS JOIN plain", 24, "CROSS JOIN of streams is not supported"),
        (
            "SELECT kind FROM rides EXCEPT ALL SELECT b FROM plain",
            24,
            "EXCEPT ALL is not supported",
        ),
        (
            "SELECT kind, at FROM rides INTERSECT SELECT b FROM plain",
            28,
            "the sides of INTERSECT have 2 and 1 columns",
        ),
        ("SELECT kind FROM rides QUALIFY kind = 'x'", 32, "QUALIFY requires a function with OVER"),
        ("SELECT * EXCEPT (nope) FROM rides", 18, "there is no column 'nope'"),
        ("SELECT * EXCEPT (car.seats) FROM rides", 18, "EXCEPT takes columns, not struct fields"),
        ("SELECT * EXCEPT (a, b) FROM plain", 8, "EXCEPT removes all columns"),
        ("SELECT * REPLACE (1 AS a) FROM plain", 8, "only EXCEPT can follow '*'"),
        ("SELECT x FROM (SELECT a, b FROM plain) AS t (x)", 46, "1 names for 2 columns"),
        ("WITH t (x, X) AS (SELECT a, b FROM plain) SELECT x FROM t", 12, "the name 'X' twice"),
        ("WITH t (x, y) AS (SELECT a, b FROM plain) SELECT a FROM t", 50, "no column 'a' in 't'"),
        (
            f"SELECT grouping(kind) {HOURLY}, kind",
            8,
            "grouping() requires grouping sets",
        ),
        (
            f"SELECT grouping(place) {HOURLY}, ROLLUP (kind)",
            17,
            "the argument of grouping() is not in GROUP BY",
        ),
        (f"SELECT grouping(kind, 1) {HOURLY}, ROLLUP (kind)", 8, "takes one argument, not 2"),
        (
            f"SELECT place {HOURLY}, GROUPING SETS ((kind), ())",
            8,
            "'place' is neither grouped nor aggregated",
        ),
        (
            "SELECT 1 FROM rides GROUP BY ROLLUP (tumble(INTERVAL '1 hour'), kind)",
            21,
            "the window must be in every grouping set",
        ),
        (
            "SELECT 1 FROM rides GROUP BY driver, ROLLUP (kind) WITH CUBE",
            21,
            "grouping sets in the list of GROUP BY cannot be combined with sets after the list",
        ),
        (
            "SELECT 1 FROM rides GROUP BY CUBE (at, driver, kind, place, tags, car, -driver, 'a', 'b')",
            36,
            "more than 256 grouping sets",
        ),
        (
            "SELECT kind, at FROM rides UNION ALL SELECT b FROM plain",
            28,
            "the sides of UNION ALL have 2 and 1 columns",
        ),
        ("SELECT sum(driver) OVER (ORDER BY at) FROM rides", 8, "requires PARTITION BY"),
        ("SELECT row_number() FROM rides", 8, "'row_number' requires OVER"),
        (f"SELECT sum(max(driver)) {HOURLY}", 12, "'max' is not allowed here"),
        (f"SELECT sum(driver, 1) {HOURLY}", 8, "sum() takes one argument, not 2"),
        ("SELECT kind FROM rides WHERE count(*) > 1", 30, "'count' is not allowed here"),
        (
            "SELECT count(*) FROM rides GROUP BY hop(INTERVAL '1 hour')",
            37,
            "hop() takes two intervals",
        ),
        (
            "SELECT count(*) FROM rides GROUP BY hop(INTERVAL '2 hours', INTERVAL '1 hour')",
            37,
            "the slide of hop() must not be longer than its width",
        ),
        ("SELECT count(*) FROM rides GROUP BY session()", 37, "session() takes one interval"),
        ("SELECT tumble(INTERVAL '1 hour') FROM rides", 8, "tumble() is allowed only in GROUP BY"),
        (
            "SELECT session(INTERVAL '1 hour') FROM rides",
            8,
            "session() is allowed only in GROUP BY",
        ),
        ("SELECT window(at, '1 hour') FROM rides", 8, "window() is allowed only in GROUP BY"),
        ("SELECT json_tuple(kind, 'a') FROM rides", 8, "'json_tuple' returns rows or columns"),
        ("SELECT 1 + posexplode(tags) FROM rides", 12, "posexplode() is allowed only alone"),
        (
            "SELECT kind FROM rides WHERE tumble(INTERVAL '1 hour') = 1",
            30,
            "tumble() is allowed only in GROUP BY",
        ),
        (
            "SELECT count(*) FROM rides GROUP BY tumble(INTERVAL '1 month')",
            44,
            "a month has no fixed length",
        ),
        (
            "SELECT count(*) FROM rides GROUP BY tumble(INTERVAL '0 hours')",
            44,
            "must be a positive",
        ),
        ("SELECT count(*) FROM rides GROUP BY tumble(INTERVAL '1 parsec')", 44, "no unit 'parsec'"),
        (
            "SELECT count(*) FROM rides GROUP BY tumble(driver)",
            44,
            "'driver' is not the event time of the input",
        ),
        ("SELECT count(*) FROM rides GROUP BY tumble()", 37, "tumble() takes one interval"),
        (
            f"SELECT tumble(INTERVAL '2 hours'), count(*) {HOURLY}",
            8,
            "the window differs from the window of GROUP BY",
        ),
        (
            f"SELECT count(*) {HOURLY}, tumble(INTERVAL '2 hours')",
            64,
            "a query can have only one window",
        ),
        (
            f"SELECT count(*) {HOURLY}, 4",
            64,
            "GROUP BY 4 is out of range for a select list of length 1",
        ),
        (f"SELECT place, count(*) {HOURLY}, kind", 8, "'place' is neither grouped nor aggregated"),
        (f"SELECT count(*) + driver {HOURLY}", 19, "'driver' is neither grouped nor aggregated"),
        (
            f"SELECT count(*) {HOURLY} HAVING place = 'x'",
            70,
            "'place' is neither grouped nor aggregated",
        ),
        (f"SELECT *, count(*) {HOURLY}", 8, "'*' is not allowed in the select list"),
        (f"SELECT window.strat {HOURLY}", 8, "'window' has no field 'strat'"),
        (
            f"INSERT INTO anything SELECT max(n) FROM (SELECT count(*) AS n {HOURLY})",
            22,
            "requires an append-only input, but the result is a changelog",
        ),
        (
            "SELECT count(*) FROM rides GROUP BY kind WITH TOTALS",
            28,
            "WITH TOTALS is not supported",
        ),
        ("SELECT (SELECT 1) FROM rides", 8, "a scalar subquery requires a SELECT with FROM"),
        (
            "SELECT (SELECT a, b FROM plain) FROM rides",
            8,
            "a scalar subquery must select exactly one column",
        ),
        (
            "SELECT (SELECT max(a) FROM plain) FROM rides",
            8,
            "a scalar subquery must read rows of the same window, or a lookup table",
        ),
        (
            f"SELECT (SELECT max(n) FROM (SELECT count(*) AS n {HOURLY})) FROM (SELECT window {HOURLY})",
            8,
            "a scalar subquery must read rows of the same window, or a lookup table",
        ),
        (
            f"SELECT (SELECT first(n) FROM (SELECT window, count(*) AS n {HOURLY}) i"
            f" WHERE i.window = o.window) FROM (SELECT window {HOURLY}) o",
            16,
            "first() is not supported in a scalar subquery",
        ),
        (
            f"SELECT (SELECT max(n) FROM (SELECT window, count(*) AS n {HOURLY}) i"
            f" WHERE i.window = o.window AND o.window.end < now()) FROM (SELECT window {HOURLY}) o",
            152,
            "now(), is not supported in a scalar subquery",
        ),
        (
            "SELECT (SELECT a FROM plain ORDER BY a) FROM rides",
            29,
            "ORDER BY is not supported in a scalar subquery",
        ),
        (
            "SELECT kind FROM rides WHERE driver = 1 OR driver IN (SELECT a FROM plain)",
            55,
            "a subquery is not allowed here",
        ),
        (
            "SELECT EXISTS (SELECT 1 FROM plain) FROM rides",
            8,
            "a subquery is not allowed here",
        ),
        (
            "INSERT INTO anything SELECT a FROM plain WHERE NOT EXISTS"
            " (SELECT 1 FROM rides WHERE driver = a)",
            22,
            "requires an append-only input, but the result is a changelog",
        ),
        (
            "SELECT a FROM plain WHERE a NOT IN (SELECT driver FROM rides)",
            27,
            "NOT IN (SELECT ...) requires values that are not null on both sides",
        ),
        (
            "SELECT a FROM plain WHERE a NOT IN (SELECT driver FROM rides WHERE driver IS NOT NULL)",
            27,
            "NOT IN (SELECT ...) requires values that are not null on both sides",
        ),
        (
            "SELECT a FROM plain WHERE a IS NOT NULL AND a NOT IN (SELECT driver FROM rides"
            " WHERE driver IS NOT NULL GROUP BY ROLLUP (driver))",
            45,
            "NOT IN (SELECT ...) requires values that are not null on both sides",
        ),
        (
            "SELECT a FROM plain WHERE EXISTS (SELECT 1 FROM rides)",
            27,
            "EXISTS requires a condition on a column of the outer query",
        ),
        (
            "SELECT a FROM plain WHERE (a, b) IN (SELECT driver FROM rides)",
            27,
            "IN compares 2 columns with 1",
        ),
        (
            "SELECT a FROM plain WHERE a IN (SELECT max(driver) FROM rides WHERE kind = b)",
            27,
            "a correlated IN requires a SELECT without aggregates",
        ),
        (
            "SELECT a FROM plain WHERE a IN (SELECT driver FROM rides WHERE kind = b LIMIT 1)",
            73,
            "LIMIT is not supported in a correlated subquery",
        ),
        (
            "SELECT a FROM plain WHERE a IN (SELECT driver FROM rides WHERE kind = nope)",
            71,
            "there is no column 'nope'",
        ),
        (
            "SELECT a FROM plain WHERE a NOT IN (SELECT driver FROM rides WHERE kind > b)",
            27,
            "NOT IN (SELECT ...) requires values that are not null on both sides",
        ),
        ("SELECT upper(explode(tags)) FROM rides", 14, "explode() is allowed only alone"),
        ("SELECT explode(tags, 1) FROM rides", 8, "explode() takes one array"),
        ("SELECT upper(kind) FILTER (WHERE true) FROM rides", 8, "FILTER requires an aggregate"),
        ("SELECT upper(*) FROM rides", 14, "'*' is allowed only in a select list"),
        ("SELECT $1 FROM rides", 8, "parameters are not supported"),
        ("SELECT range.id FROM range(10)", 22, "FROM requires a table, a view or a subquery"),
        ("SELECT 1", 1, "SELECT requires FROM"),
        ("UPDATE plain SET a = 1", 1, "UPDATE is not supported in a pipeline"),
        ("DELETE FROM plain", 1, "DELETE is not supported in a pipeline"),
        ("DROP TABLE plain", 1, "DROP is not supported in a pipeline"),
        ("SHOW TABLES", 1, "SHOW is not supported in a pipeline"),
        ("CREATE VIEW v (x, y) AS SELECT a FROM plain", 16, "2 names for 1 columns"),
        ("CREATE VIEW v (x INT) AS SELECT a FROM plain", 16, "can contain only names"),
        ("CREATE VIEW v AS SELECT nope FROM plain", 25, "there is no column 'nope'"),
        ("CREATE VIEW rides AS SELECT a FROM plain", 13, "the name 'rides' is already in use"),
        ("SELECT * FROM out", 15, "table 'out' is a sink and cannot be read"),
        (
            "INSERT INTO plain SELECT a, b FROM plain",
            13,
            "table 'plain' is a source and cannot be written",
        ),
        ("INSERT INTO nowhere SELECT a FROM plain", 13, "there is no table 'nowhere'"),
        (
            "INSERT INTO out SELECT a FROM plain",
            17,
            "table 'out' has 2 columns, but the SELECT has 1",
        ),
        ("INSERT INTO out (x) SELECT a, b FROM plain", 21, "has 1 column, but the SELECT has 2"),
        ("INSERT INTO out (x, z) SELECT a, b FROM plain", 21, "table 'out' has no column 'z'"),
        ("INSERT INTO out (x, X) SELECT a, b FROM plain", 21, "column 'X' is named twice"),
        ("INSERT INTO out VALUES (1, 'a')", 1, "INSERT INTO requires a SELECT"),
        ("INSERT OVERWRITE out SELECT a, b FROM plain", 1, "OVERWRITE is not supported in INSERT"),
    ],
)
def test_what_is_not_supported_is_refused_at_its_place(
    refusal: Refusal, query: str, column: int, message: str
) -> None:
    error = refusal(query)
    assert message in error.message
    assert (error.line, error.column) == (1, column)


def test_the_line_is_counted_through_the_whole_text(refusal: Refusal) -> None:
    error = refusal("SELECT\n  kind,\n  -- 'a comment'\n  nope\nFROM rides")
    assert (error.line, error.column) == (4, 3)


@pytest.mark.parametrize(
    ("query", "column", "message"),
    [
        (
            "SELECT a FROM plain WHERE EXISTS (SELECT 1 FROM rides WHERE driver = a HAVING count(*) > 1)",
            27,
            "EXISTS requires a SELECT without aggregates",
        ),
        (
            "SELECT a FROM plain WHERE EXISTS (SELECT max(driver) FROM rides WHERE driver = a)",
            27,
            "EXISTS requires a SELECT without aggregates",
        ),
        (
            "SELECT a FROM plain WHERE EXISTS (SELECT 1 FROM rides WHERE driver = a OFFSET 1)",
            72,
            "OFFSET is not supported in EXISTS",
        ),
        ("SELECT DISTINCT ON (kind) kind, driver FROM rides", 25, "DISTINCT ON is not supported"),
        (
            "SELECT kind, x FROM rides RIGHT JOIN UNNEST(tags) AS t(x) ON true",
            27,
            "this kind of join is not supported with UNNEST",
        ),
        (
            "SELECT kind, x FROM rides LEFT JOIN UNNEST(tags) AS t(x) ON x = 'a'",
            61,
            "LEFT JOIN UNNEST supports only the condition ON true",
        ),
        (
            "SELECT kind, x FROM rides CROSS JOIN UNNEST(tags) WITH ORDINALITY AS t(x, n)",
            38,
            "WITH ORDINALITY is not supported",
        ),
        ("SELECT at + INTERVAL '1 day ago' FROM rides", 13, "'1 day ago' is not an interval"),
        (
            "SELECT tumble(INTERVAL '1 hour 30') AS w, count(*) FROM rides GROUP BY w",
            15,
            "'1 hour 30' is not an interval",
        ),
        (
            "SELECT sum(driver) OVER (PARTITION BY kind ORDER BY at ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW) FROM rides",
            8,
            "EXCLUDE in OVER is not supported",
        ),
        (
            "SELECT sum(driver) OVER (PARTITION BY kind ORDER BY at GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM rides",
            8,
            "GROUPS in OVER is not supported",
        ),
        ('SELECT kind AS "a`b" FROM rides', 16, "a name cannot contain a backquote"),
        (
            "SELECT tumble('1 hour') AS w, (SELECT max(a) FROM plain) AS m FROM rides GROUP BY w",
            31,
            "a scalar subquery is not allowed in the select list of a grouped query",
        ),
        ("SELECT at::time FROM rides", 12, "there is no type 'TIME'"),
        (
            "SELECT rank() OVER best FROM rides WINDOW worst AS (PARTITION BY kind ORDER BY at)",
            8,
            "there is no window 'best' in this query",
        ),
        ("SELECT at + INTERVAL '- 5 s' FROM rides", 13, "'- 5 s' is not an interval"),
        ("SELECT at + INTERVAL '.5 s' FROM rides", 13, "'.5 s' is not an interval"),
        ("SELECT at + INTERVAL '1 000 s' FROM rides", 13, "'1 000 s' is not an interval"),
        (
            "SELECT tumble(INTERVAL '1,5 minutes') AS w, count(*) FROM rides GROUP BY w",
            15,
            "'1,5 minutes' is not an interval",
        ),
        (
            "SELECT kind FROM rides LEFT ANTI JOIN UNNEST(tags) AS t(x) ON true",
            24,
            "this kind of join is not supported with UNNEST",
        ),
        (
            "SELECT a FROM plain WHERE a IS NOT NULL AND a NOT IN (SELECT 1 WHERE 1 IS NOT NULL)",
            55,
            "SELECT requires FROM",
        ),
        (
            "SELECT a FROM plain WHERE EXISTS (SELECT explode(tags) FROM rides WHERE driver = a)",
            27,
            "EXISTS requires a SELECT that does not explode arrays",
        ),
        (
            "SELECT rank() OVER w FROM rides WINDOW w AS (PARTITION BY kind ORDER BY at), W AS (PARTITION BY place)",
            78,
            "window 'W' is defined twice",
        ),
        (
            "SELECT driver AS y, driver + 1 AS y, y * 2 AS z FROM rides",
            38,
            "several earlier items have the alias 'y'",
        ),
        (
            "SELECT r.kind FROM rides r, plain p WHERE r.driver > 1",
            27,
            "CROSS JOIN of streams is not supported",
        ),
    ],
)
def test_no_clause_is_silently_ignored(
    refusal: Refusal, query: str, column: int, message: str
) -> None:
    error = refusal(query)
    assert message in error.message
    assert error.hint
    assert (error.line, error.column) == (1, column)
