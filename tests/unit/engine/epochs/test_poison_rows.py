"""The search for records that fail alone; pure."""

from __future__ import annotations

from resurgence.engine.epochs.poison_rows import Bisection, excluding
from resurgence.engine.epochs.probes import ProbeFailure
from resurgence.engine.operators.dead_letters import PoisonRow
from resurgence.errors import ExpressionFailed
from resurgence.ids import OperatorId
from resurgence.state.records import InputRange, RecordPosition

QUERY, SOURCE = OperatorId("query-1"), OperatorId("source-1")
Rows = tuple[int, ...]


def halves(rows: Rows) -> tuple[Rows, Rows] | None:
    middle = len(rows) // 2
    return (rows[:middle], rows[middle:]) if middle else None


class Input:
    """Rows that fail if one of them is poison, or if all of `together` are among them."""

    def __init__(
        self, poison: set[int], together: frozenset[int] = frozenset(), flaky: bool = False
    ) -> None:
        self.poison, self.together, self.flaky = poison, together, flaky
        self.probes: list[Rows] = []

    def failure_of(self, rows: Rows) -> ProbeFailure | None:
        self.probes.append(rows)
        if self.flaky and len(rows) == 1 and self.probes.count(rows) > 1:
            return None
        fails = self.poison & {*rows} or (self.together and self.together <= {*rows})
        return ProbeFailure(QUERY, ExpressionFailed(f"{rows}")) if fails else None


def search(
    given: Input, rows: int = 16, most: int = 100, probes: int = 1000
) -> tuple[bool, list[Rows]]:
    bisection: Bisection[Rows] = Bisection(
        given.failure_of, halves, lambda: len(given.probes) < probes, most
    )
    is_complete = bisection.run(tuple(range(rows)))
    return is_complete, [rows for rows, _ in bisection.found]


def test_all_rows_that_fail_alone_are_found_in_order() -> None:
    assert search(Input({3, 4, 15})) == (True, [(3,), (4,), (15,)])


def test_the_number_of_probes_grows_with_the_logarithm_of_the_rows() -> None:
    given = Input({700_000})
    assert search(given, 1_000_000) == (True, [(700_000,)])
    assert len(given.probes) < 50


def test_a_row_that_fails_only_once_is_not_poison() -> None:
    assert search(Input({3}, flaky=True)) == (True, [])


def test_rows_that_fail_only_together_are_not_poison() -> None:
    assert search(Input(set(), frozenset({2, 9}))) == (True, [])


def test_the_search_ends_when_there_are_more_than_allowed() -> None:
    given = Input({*range(16)})
    _, found = search(given, most=2)
    assert len(found) == 3
    assert len(given.probes) < 20


def test_a_search_without_time_is_incomplete() -> None:
    is_complete, _ = search(Input({15}), probes=3)
    assert not is_complete


def test_poison_records_are_added_to_those_that_are_excluded_already() -> None:
    first, second, third = (RecordPosition(partition="a", offset=each) for each in (1, 2, 3))
    whole = InputRange(start={}, end={}, rows=9, excluded=(second,))
    other = InputRange(start={}, end={}, rows=1)
    reason = PoisonRow(QUERY, "failed")
    poison = {SOURCE: {third: reason, first: reason}}
    assert excluding({SOURCE: whole, OperatorId("source-2"): other}, poison) == {
        SOURCE: whole.model_copy(update={"excluded": (second, first, third)}),
        OperatorId("source-2"): other,
    }
