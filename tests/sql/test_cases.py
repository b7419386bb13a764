"""The first half of the SQL cases under a fault: split into epochs, crashed at a random point,
restored by another engine. `test_more_cases` has the other half, for the other test process.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.sql.case_run import CaseRun
from tests.sql.cases import Case, load_cases, load_combined
from tests.sql.changelog import BrokenChangelog, merge

CASES = load_cases()
CRASHED = "crashed"
COMBINED = load_combined(CASES)


def marks(case: Case) -> list[pytest.MarkDecorator]:
    return [pytest.mark.xfail(strict=True, reason=case.pending)] if case.pending else []


@pytest.mark.parametrize(
    "case",
    [pytest.param(each, id=each.name, marks=marks(each)) for each in COMBINED[::2]],
)
def test_the_output_is_the_batch_answer(case: Case, spark: SparkSession, tmp_path: Path) -> None:
    assert not CaseRun(spark, case, tmp_path).difference(CRASHED)


def test_combined_pipelines_lose_no_case() -> None:
    assert len(COMBINED) < len(CASES) / 4
    assert sum(len(each.expected) for each in COMBINED) == sum(len(each.expected) for each in CASES)


def test_case_names_are_unique() -> None:
    names = [each.name for each in CASES]
    assert len(names) == len(set(names))


INSERT = '{"before": null, "after": {"k": 1, "n": 1}, "op": "c"}'
UPDATE = '{"before": {"k": 1, "n": 1}, "after": {"k": 1, "n": 2}, "op": "u"}'
DELETE = '{"before": {"k": 1, "n": 2}, "after": null, "op": "d"}'


def test_changes_are_applied_in_order() -> None:
    assert merge([INSERT, INSERT, UPDATE]) == ['{"k": 1, "n": 1}', '{"k": 1, "n": 2}']
    assert merge([INSERT, UPDATE, DELETE]) == []


@pytest.mark.parametrize(
    "lines",
    [
        [UPDATE],
        [DELETE],
        [INSERT, DELETE],
        [INSERT, UPDATE, UPDATE],
        [INSERT, UPDATE[:-4] + '"c"}'],
    ],
)
def test_a_retraction_of_a_missing_row_is_detected(lines: list[str]) -> None:
    with pytest.raises(BrokenChangelog):
        merge(lines)
