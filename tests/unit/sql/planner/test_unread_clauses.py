"""Clauses of CREATE TABLE that the parser reads and nothing uses are refused, not ignored."""

from __future__ import annotations

import pytest
from tests.unit.sql.conftest import CONNECTORS

from resurgence.errors import SqlError
from resurgence.sql import compile_pipeline

TABLE = (
    "CREATE TABLE t (a INT, {columns}) WITH (connector = 'single_file', path = 'p',"
    " type = 'source'); SELECT a FROM t"
)


@pytest.mark.parametrize(
    ("columns", "column", "message", "hint"),
    [
        (
            "at TIMESTAMP WATERMARK FOR at AS at - INTERVAL '5 seconds'",
            37,
            "WATERMARK is not part of column 'at'",
            "Put a comma before WATERMARK",
        ),
        (
            "at TIMESTAMP NOT NULL WATERMARK FOR at",
            46,
            "WATERMARK is not part of column 'at'",
            "Put a comma before WATERMARK",
        ),
        ("b INT NOT NULL NULL", 24, "column 'b' has a repeated or a contradictory", "Remove one"),
        ("b INT AS (1) GENERATED ALWAYS AS (2)", 24, "a repeated or a", "Remove one"),
        ("CONSTRAINT c NOT NULL", 35, "CONSTRAINT accepts only PRIMARY KEY", "Remove the rest"),
        ("CONSTRAINT c PRIMARY KEY (a) NOT NULL", 35, "CONSTRAINT accepts", "Remove the rest"),
        ("CONSTRAINT c WATERMARK FOR a", 35, "CONSTRAINT accepts only PRIMARY", "Remove the rest"),
        ("PRIMARY KEY (a) INCLUDE (a)", 37, "accepts only NOT ENFORCED", "Remove the rest"),
        ("b INT FIRST", 24, "the clause after the type of column 'b'", "in their order"),
    ],
)
def test_an_unread_clause_is_refused(columns: str, column: int, message: str, hint: str) -> None:
    with pytest.raises(SqlError) as caught:
        compile_pipeline(TABLE.format(columns=columns), CONNECTORS)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert (caught.value.line, caught.value.column) == (1, column)


@pytest.mark.parametrize(
    "columns",
    [
        "b INT NOT NULL, PRIMARY KEY (a, b) NOT ENFORCED",
        "CONSTRAINT c PRIMARY KEY (a)",
        "b INT PRIMARY KEY NOT NULL",
        "at TIMESTAMP, WATERMARK FOR at, b INT",
    ],
)
def test_a_clause_that_is_read_is_not(columns: str) -> None:
    assert compile_pipeline(TABLE.format(columns=columns), CONNECTORS).sources()
