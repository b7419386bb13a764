"""Every SQL case run in one epoch, and in random epochs, resumed at another parallelism.

A separate file, so that another test process can run it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.sql.case_run import MODES, CaseRun
from tests.sql.cases import Case, load_combined
from tests.sql.test_cases import CASES, CRASHED, marks


@pytest.mark.long
@pytest.mark.parametrize(
    "case",
    [pytest.param(each, id=each.name, marks=marks(each)) for each in load_combined(CASES)],
)
def test_the_output_is_the_batch_answer(case: Case, spark: SparkSession, tmp_path: Path) -> None:
    case_run = CaseRun(spark, case, tmp_path)
    for mode in sorted(MODES.keys() - {CRASHED}):
        assert not case_run.difference(mode)
