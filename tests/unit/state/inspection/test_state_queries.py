"""Bounded queries over the state of checkpoints, and the difference between two."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.state.real_state import RealJob

from resurgence.errors import UserError
from resurgence.state.inspection.state_queries import difference, query_state

PARTIALS = "window_7f_partials"


@pytest.fixture
def real(tmp_path: Path) -> RealJob:
    made = RealJob.at(str(tmp_path))
    made.run(1, 2)
    return made


def test_a_query_returns_its_first_rows_and_whether_there_are_more(real: RealJob) -> None:
    everything = query_state(real.backend, 2, f"SELECT * FROM {PARTIALS}", 1000)
    assert not everything.has_more
    assert everything.epoch == 2
    some = query_state(real.backend, 2, f"SELECT * FROM {PARTIALS}", 1)
    assert (some.rows.num_rows, some.has_more) == (1, True)
    assert everything.rows.num_rows > 1


def test_only_a_single_select_is_accepted(real: RealJob) -> None:
    for sql in (f"DROP VIEW {PARTIALS}", "SELECT 1; SELECT 2", "COPY (SELECT 1) TO 'x'"):
        with pytest.raises(UserError):
            query_state(real.backend, None, sql, 10)


def test_the_difference_has_the_rows_of_one_epoch_only(real: RealJob) -> None:
    sql = f"SELECT * FROM {PARTIALS}"
    counts = [query_state(real.backend, epoch, sql, 1000).rows.num_rows for epoch in (1, 2)]
    found = difference(real.backend, PARTIALS, 1, 2, 1000)
    assert found.added.num_rows - found.removed.num_rows == counts[1] - counts[0]
    assert found.added.num_rows
    back = difference(real.backend, PARTIALS, 2, 1, 1000)
    assert back.removed.equals(found.added) or back.removed.num_rows == found.added.num_rows
    same = difference(real.backend, PARTIALS, 2, 2, 1000)
    assert (same.added.num_rows, same.removed.num_rows, same.is_partial) == (0, 0, False)


def test_a_table_that_an_epoch_does_not_have_is_named(real: RealJob) -> None:
    with pytest.raises(UserError, match="epoch 1 has no table 'nothing'"):
        difference(real.backend, "nothing", 1, 2, 10)
