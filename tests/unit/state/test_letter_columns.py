"""Which columns of the dead letters a query may need."""

from __future__ import annotations

import pytest

from resurgence.state.inspection.letter_database import columns_of_condition, columns_of_query


@pytest.mark.parametrize(
    ("sql", "needed"),
    [
        ("SELECT epoch, count(*) AS n FROM dead_letters GROUP BY ALL ORDER BY n", {"epoch"}),
        ("SELECT max(length(RAW)) FROM dead_letters", {"raw"}),
        ("SELECT count(*) FROM dead_letters a JOIN dead_letters b USING (key)", {"key"}),
        ("SELECT d.error FROM dead_letters AS d WHERE d.raw[1] = 'x'", {"error", "raw"}),
    ],
)
def test_columns_that_are_named_are_needed(sql: str, needed: set[str]) -> None:
    found = columns_of_query(sql)
    assert found is not None
    assert found & {"epoch", "error", "raw", "key", "headers"} == needed


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM dead_letters",
        "FROM dead_letters",
        "SELECT d.* FROM dead_letters d",
        "SELECT d FROM dead_letters d",
        "SELECT dead_letters FROM dead_letters",
        "SELECT COLUMNS('r.*') FROM dead_letters",
        "SELECT count(*) FROM dead_letters NATURAL JOIN dead_letters AS other",
        "SELECT (SELECT * FROM dead_letters LIMIT 1)",
        "SELECT ((",
    ],
)
def test_all_columns_are_needed_unless_it_is_certain_that_they_are_not(sql: str) -> None:
    assert columns_of_query(sql) is None


def test_a_condition_needs_the_columns_that_it_names() -> None:
    found = columns_of_condition("error LIKE 'not%' AND epoch > 2")
    assert found is not None
    assert {"error", "epoch"} <= found
    assert "raw" not in found
