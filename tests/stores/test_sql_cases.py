"""SQL cases with their state on an S3 server: split into epochs, crashed, restored."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.engine.harness import Job
from tests.sql.case_run import CaseRun
from tests.sql.cases import Case, load_cases, load_combined
from tests.sql.test_cases import CRASHED, marks


@dataclass
class S3CaseRun(CaseRun):
    """A case whose state is on a server."""

    url: str = ""

    def job(self, mode: str) -> Job:
        job = super().job(mode)
        job.place = self.url
        return job


@pytest.mark.long
@pytest.mark.parametrize(
    "case",
    [pytest.param(each, id=each.name, marks=marks(each)) for each in load_combined(load_cases())],
)
def test_the_output_is_the_batch_answer(
    case: Case, spark: SparkSession, tmp_path: Path, s3_url: str
) -> None:
    assert not S3CaseRun(spark, case, tmp_path, url=s3_url).difference(CRASHED)
