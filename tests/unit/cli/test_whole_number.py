"""Numbers in flags: errors are worded without the terms of a library."""

from __future__ import annotations

import pytest
import typer

from resurgence.cli.whole_number import whole_number


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("abc", "'abc' is not a whole number."),
        ("1.5", "'1.5' is not a whole number."),
        ("0", "0 is too small; the minimum is 1."),
        ("65", "65 is too large; the maximum is 64."),
    ],
)
def test_an_invalid_number_is_refused(text: str, message: str) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        whole_number(1, 64)(text)
    assert caught.value.message == message


def test_a_number_within_its_limits_is_read() -> None:
    assert whole_number(1, 64)("64") == 64
    assert whole_number()("0") == 0
