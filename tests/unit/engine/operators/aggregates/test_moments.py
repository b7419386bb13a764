"""The formulas of variance and the like, against the table of aggregate functions."""

from __future__ import annotations

import pytest

from resurgence.engine.operators.aggregates.moments import COVARIANCES, VARIANCES
from resurgence.sql.functions.aggregates import AGGREGATES, Partials


@pytest.mark.parametrize(
    ("partials", "formulas"),
    [(Partials.VARIANCE, VARIANCES), (Partials.COVARIANCE, COVARIANCES)],
)
def test_every_function_that_is_kept_as_moments_has_a_formula(
    partials: Partials, formulas: dict[str, str]
) -> None:
    known = {each.name for each in AGGREGATES.values() if each.partials is partials}
    assert known == formulas.keys()
