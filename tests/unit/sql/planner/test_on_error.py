"""SET on_error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from resurgence.config import OnError
from resurgence.errors import SqlError
from resurgence.graph.model import Graph

QUERY = "SELECT kind FROM rides;"


@pytest.mark.parametrize("choice", list(OnError))
def test_on_error_applies_to_the_whole_pipeline(
    compiled: Callable[..., Graph], choice: OnError
) -> None:
    assert compiled(QUERY).on_error is None
    assert compiled(f"{QUERY} SET on_error = '{choice}'").on_error is choice
    assert compiled(f"SET on_error = '{choice}'; {QUERY}").on_error is choice


def test_an_unknown_choice_is_refused(refusal: Callable[..., SqlError]) -> None:
    error = refusal("SET on_error = 'drop'")
    assert "'drop' is not a valid value for on_error" in error.message
    assert error.hint == "Use 'fail' or 'dead_letter'."


def test_two_different_choices_are_refused(refusal: Callable[..., SqlError]) -> None:
    error = refusal("SET on_error = 'fail'; SET on_error = 'dead_letter'")
    assert "on_error is set twice" in error.message
