"""Every SQL case run in one epoch, or in random epochs and resumed at another parallelism: the seed
of the run decides.

A separate file, so that another test process can run it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.sql.case_run import MODES, CaseRun
from tests.sql.cases import Case
from tests.sql.test_cases import COMBINED, CRASHED, marks


@pytest.mark.long
@pytest.mark.parametrize(
    "case",
    [pytest.param(each, id=each.name, marks=marks(each)) for each in COMBINED],
)
def test_the_output_is_the_batch_answer(
    case: Case, spark: SparkSession, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    case_run = CaseRun(spark, case, tmp_path)
    seed = pytestconfig.getoption("--hypothesis-seed", default=None)
    case_run.rng.seed(f"{case.name} {seed}")
    mode = case_run.rng.choice(sorted(MODES.keys() - {CRASHED}))
    assert not case_run.difference(mode)
