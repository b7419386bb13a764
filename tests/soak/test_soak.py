"""The soak itself: a few seeds run, a wrong answer is detected, and the failing pipeline is
minimised.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.soak.__main__ import difference, minimised
from tests.soak.disturbances import random_steps
from tests.soak.pipelines import random_pipeline


@pytest.mark.parametrize("seed", [2, pytest.param(11, marks=pytest.mark.long)])
def test_a_random_pipeline_under_random_faults_returns_the_batch_answer(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    pipeline = random_pipeline(seed)
    steps = random_steps(seed, pipeline.rows)
    assert difference(spark, pipeline, steps, tmp_path / "run") == ""


@pytest.mark.long
def test_a_wrong_answer_is_detected_and_minimised(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = replace(random_pipeline(2), rows=40)
    first, *others = pipeline.queries
    wrong = replace(first, expected=f"SELECT * FROM ({first.expected}) LIMIT 3")
    planted = pipeline.with_queries([wrong, *others])
    small, steps, text = minimised(spark, planted, random_steps(2, 40)[:1], tmp_path / "run")
    assert small.queries == (wrong,)
    assert small.rows <= 40
    assert steps == []
    assert "too much" in text


def test_the_same_seed_generates_the_same_pipeline() -> None:
    assert random_pipeline(5) == random_pipeline(5)
    assert random_pipeline(5).case().sql == random_pipeline(5).case().sql
    assert random_steps(5, 100) == random_steps(5, 100)
