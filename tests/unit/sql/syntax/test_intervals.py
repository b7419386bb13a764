"""The length of an interval, in all spellings."""

from __future__ import annotations

import pytest
from sqlglot import exp

from resurgence.errors import SqlError
from resurgence.sql.syntax.intervals import interval_micros
from resurgence.sql.syntax.parse import parse

SECOND = 1_000_000
HOUR = 3600 * SECOND


def micros(text: str) -> int:
    script = parse(f"SELECT {text}")
    select = script.statements[0]
    assert isinstance(select, exp.Select)
    return interval_micros(select.expressions[0], script)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("INTERVAL '1' HOUR", HOUR),
        ("INTERVAL '1 hour'", HOUR),
        ("INTERVAL 1 HOUR", HOUR),
        ("interval '90' seconds", 90 * SECOND),
        ("interval '1 day 2 hours'", 26 * HOUR),
        ("INTERVAL '1' HOUR '30' MINUTE", HOUR * 3 // 2),
        ("(INTERVAL '1 hour')", HOUR),
        ("'5 seconds'", 5 * SECOND),
        ("'5s'", 5 * SECOND),
        ("'5 sec'", 5 * SECOND),
        ("'5 secs'", 5 * SECOND),
        ("'2 m'", 120 * SECOND),
        ("'2 mins'", 120 * SECOND),
        ("'3 hrs'", 3 * HOUR),
        ("'1d'", 24 * HOUR),
        ("'1 week'", 168 * HOUR),
        ("'250 ms'", SECOND // 4),
        ("'250 milliseconds'", SECOND // 4),
        ("'7us'", 7),
        ("'1.5 seconds'", SECOND * 3 // 2),
    ],
)
def test_an_interval_has_its_length(text: str, length: int) -> None:
    assert micros(text) == length


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("'1 month'", "a month has no fixed length"),
        ("'0 seconds'", "must be a positive number"),
        ("'-1 hour'", "must be a positive number"),
        ("'soon'", "'soon' is not an interval"),
        ("''", "is not an interval"),
        ("5", "an INTERVAL literal is required here"),
        ("'5 parsecs'", "there is no unit 'parsecs'"),
    ],
)
def test_what_has_no_fixed_length_is_refused(text: str, message: str) -> None:
    with pytest.raises(SqlError, match=message) as caught:
        micros(text)
    assert (caught.value.line, caught.value.column) == (1, 8)
