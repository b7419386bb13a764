"""The second half of the SQL cases under a fault, as in `test_cases`."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.sql.case_run import CaseRun
from tests.sql.cases import Case
from tests.sql.test_cases import COMBINED, CRASHED, marks


@pytest.mark.parametrize(
    "case",
    [pytest.param(each, id=each.name, marks=marks(each)) for each in COMBINED[1::2]],
)
def test_the_output_is_the_batch_answer(case: Case, spark: SparkSession, tmp_path: Path) -> None:
    assert not CaseRun(spark, case, tmp_path).difference(CRASHED)
