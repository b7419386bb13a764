"""Every SQL case run whole, in random epochs, and resumed at another parallelism.

A file of its own, so that a process of its own can take it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.sql.cases import Case, load_combined
from tests.sql.test_cases import CASES, HARDEST, marks
from tests.sql.trial import WAYS, Trial


@pytest.mark.long
@pytest.mark.parametrize(
    "case",
    [pytest.param(each, id=each.name, marks=marks(each)) for each in load_combined(CASES)],
)
def test_the_output_is_the_batch_answer(case: Case, spark: SparkSession, tmp_path: Path) -> None:
    trial = Trial(spark, case, tmp_path)
    for way in sorted(WAYS.keys() - {HARDEST}):
        assert not trial.difference(way)
