"""Figures as Spark's stores write them."""

from __future__ import annotations

import pytest

from resurgence.engine.spark.job_figures import duration, instant, size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0 ms", 0.0),
        ("142 ms", 0.142),
        (
            "total (min, med, max (stageId: taskId))\n12.0 s (6.0 s, 6.0 s, 6.0 s (stage 1.0: task 3))",
            12.0,
        ),
        ("1.5 m", 90.0),
        ("1.25 h", 4500.0),
    ],
)
def test_the_first_number_of_a_duration_is_its_total(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0.0 B", 0),
        ("2.0 KiB", 2048),
        ("total (min, med, max (stageId: taskId))\n1.5 MiB (606.0 B, 952.0 B)", 1_572_864),
    ],
)
def test_the_first_number_of_a_size_is_its_total(text: str, count: int) -> None:
    assert size(text) == count


def test_a_text_that_is_no_quantity_is_refused() -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        duration("none")


def test_an_instant_has_milliseconds() -> None:
    assert instant("1970-01-01T00:00:01.375GMT") == 1.375
