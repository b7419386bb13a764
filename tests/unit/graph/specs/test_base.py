"""Which columns the definition of an operator reads."""

from __future__ import annotations

import pytest

from resurgence.graph.specs.base import column_names


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("CAST(`a` AS INT) + `b`.`c`", {"a", "b", "c"}),
        ("concat('`a`', 'it\\'s `b`', `c`)", {"c"}),
        ("SELECT `k`, sum(`v`) FROM {input_0} GROUP BY `k`", {"k", "v"}),
        ("`a``b` = 1", {"a`b"}),
        ("INTERVAL '1' DAY", set()),
    ],
)
def test_columns_are_found_by_the_tokens_of_an_expression(sql: str, columns: set[str]) -> None:
    assert column_names([sql, None, [1, sql]]) == columns
