"""Text to statements: what the grammar accepts, and where it says that it does not."""

from __future__ import annotations

import pytest

from resurgence.errors import SqlError
from resurgence.sql.dialect import to_spark
from resurgence.sql.parse import parse


def round_trip(text: str) -> str:
    return to_spark(parse(text).statements[0])


WORDS = "timestamp start end count rows min max value kind at window hour date watermark"


@pytest.mark.parametrize("name", WORDS.split())
def test_common_words_are_column_names_without_quotes(name: str) -> None:
    sql = f"SELECT {name}, t.{name}, {name} + 1 AS {name} FROM t WHERE {name} > 1 GROUP BY {name}"
    meant = "SELECT `x`, `t`.`x`, `x` + 1 AS `x` FROM `t` WHERE `x` > 1 GROUP BY `x`"
    assert round_trip(sql) == meant.replace("`x`", f"`{name}`")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('"My Column"', "`My Column`"),
        ("`My Column`", "`My Column`"),
        ("'it''s'", r"'it\'s'"),
        ("INTERVAL '1 hour'", "INTERVAL '1' HOUR"),
        ("INTERVAL '1' HOUR", "INTERVAL '1' HOUR"),
        ("INTERVAL 1 HOUR", "INTERVAL '1' HOUR"),
        ("a - INTERVAL '1' HOUR '2' MINUTE", "`a` - (INTERVAL '1' HOUR + INTERVAL '2' MINUTE)"),
        ("a / b", "`a` / `b`"),
        ("a || b", "`a` || `b`"),
        ("CAST(a AS TEXT)", "CAST(`a` AS STRING)"),
        ("TRY_CAST(a AS INT)", "TRY_CAST(`a` AS INT)"),
        ("a::double", "CAST(`a` AS DOUBLE)"),
        ("date_sub(a, 1)", "date_sub(`a`, 1)"),
        ("to_date(a, 'yyyy')", "to_date(`a`, 'yyyy')"),
        ("unix_timestamp(a)", "unix_timestamp(`a`)"),
        ("extract(hour FROM a)", "EXTRACT(HOUR FROM `a`)"),
        ("timestampdiff(HOUR, a, b)", "timestampdiff(HOUR, `a`, `b`)"),
        ("CASE WHEN a THEN 1 ELSE 2 END", "CASE WHEN `a` THEN 1 ELSE 2 END"),
    ],
)
def test_expressions_reach_spark_as_they_were_written(written: str, meant: str) -> None:
    assert round_trip(f"SELECT {written} FROM t") == f"SELECT {meant} FROM `t`"


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("SELEC a FROM t", 1, 1, "'SELEC' does not begin a statement"),
        ("SELECT a,\n FROM t", 2, 2, "unexpected 'FROM'"),
        ("SELECT (a\nFROM t", 2, 1, "expected ')' before 'FROM'"),
        ("SELECT a FROM t WHERE", 1, 22, "unexpected end of the statement"),
        ("SELECT a b c FROM t", 1, 12, "unexpected 'c'"),
        ("SELECT a FROM t;\n\nSELECT 'abc", 3, 8, "this string is never closed"),
        ('SELECT "abc FROM t', 1, 8, "this quoted name is never closed"),
        ("SELECT a -- it's\nFROM t /* b", 2, 8, "this comment is never closed"),
        ("CREATE TABLE t (a INT,\n) WITH (connector = 'x')", 2, 1, "unexpected ')'"),
        ("CREATE TABLE t (a INT) WITH (x y)", 1, 32, "expected '=' before 'y'"),
        ("CREATE TABLE t (a INT, WATERMARK FOR a AS)", 1, 42, "unexpected ')'"),
        ("CREATE TABLE t (a INT PRIMARY KEY)", 1, 23, "PRIMARY KEY is not supported yet"),
        ("CREATE TABLE t (a INT, PRIMARY KEY (a))", 1, 24, "PRIMARY KEY is not supported yet"),
        ("CREATE TABLE t (a INT GENERATED ALWAYS AS (1))", 1, 23, "GENERATED is not supported yet"),
        ("CREATE TABLE t (a INT METADATA FROM 'x')", 1, 23, "METADATA is not supported yet"),
    ],
)
def test_syntax_errors_are_one_sentence_at_their_place(
    text: str, line: int, column: int, message: str
) -> None:
    with pytest.raises(SqlError) as caught:
        parse(text)
    error = caught.value
    assert (error.line, error.column, error.message) == (line, column, message)
    assert error.hint
    assert "\n" not in str(error)
    assert "\x1b" not in str(error)


def test_empty_statements_and_comments_are_skipped() -> None:
    assert len(parse(";; SELECT a FROM t; -- nothing\n;").statements) == 1
