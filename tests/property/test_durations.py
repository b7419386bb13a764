"""Settings survive the way to the worker, whatever their durations."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from resurgence.durations import duration_text, parse_duration


@settings(max_examples=200, deadline=None)
@given(span=st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=3650)))
def test_a_duration_is_read_back_as_it_was_written(span: timedelta) -> None:
    assert parse_duration(duration_text(span // timedelta(microseconds=1))) == span
