"""The ledger balances, and reports a mismatch when it does not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.unit.state.real_state import (
    BAD,
    KEPT,
    LATE,
    NOW,
    ROWS_IN,
    ROWS_OUT,
    SINK,
    SOURCE,
    WINDOW,
    RealJob,
    counts_of,
    offset_at,
)

from resurgence.ids import Epoch, OperatorId
from resurgence.state.inspection.checkpoints import kept_checkpoints
from resurgence.state.inspection.ledger import CheckKind, Ledger, Verdict, filtered_rows, ledger_of
from resurgence.state.records import EpochCounts, Totals

SAMPLES = Path(__file__).parents[3] / "samples"


@pytest.fixture
def real(tmp_path: Path) -> RealJob:
    made = RealJob.at(str(tmp_path))
    made.run(1, 2)
    return made


def ledger(real: RealJob, last: int | None = None) -> Ledger:
    return ledger_of(kept_checkpoints(real.backend), last)


def mismatches(found: Ledger) -> list[tuple[CheckKind, int, str]]:
    return [
        (each.kind, each.epoch, each.detail)
        for each in found.checks
        if each.verdict is Verdict.MISMATCH
    ]


def test_every_epoch_has_a_line_and_all_counts_balance(real: RealJob) -> None:
    found = ledger(real)
    assert [line.epoch for line in found.lines] == [1, 2]
    last = found.lines[-1]
    assert last.counts == counts_of()
    assert last.filtered == {WINDOW: ROWS_IN - BAD - LATE - KEPT}
    assert (last.state_rows, last.state_bytes) == (200, sum(file.bytes for file in real.files))
    assert found.totals == Totals(
        since=Epoch(1),
        counts=EpochCounts(
            rows_in={SOURCE: 2 * ROWS_IN},
            bad_rows={SOURCE: 2 * BAD},
            late_rows={WINDOW: 2 * LATE},
            kept_rows={WINDOW: 2 * KEPT},
            rows_out={SINK: 2 * ROWS_OUT},
        ),
    )
    assert {each.kind for each in found.checks} == set(CheckKind) - {CheckKind.PARTLY_LATE}
    assert {each.verdict for each in found.checks} == {Verdict.OK}
    assert found.balances


def test_totals_that_do_not_follow_from_the_parent_are_a_mismatch(real: RealJob) -> None:
    assert real.totals is not None
    lost = Totals(since=Epoch(2), counts=real.totals.counts)
    real.commit(real.seal(3, totals=lost))
    found = ledger(real)
    assert not found.balances
    ((kind, epoch, detail),) = mismatches(found)
    assert (kind, epoch) == (CheckKind.TOTALS, 3)
    assert f"rows_in of {SOURCE} is 200 instead of 300" in detail
    assert "since epoch 2 instead of 1" in detail


def test_a_commit_with_other_counts_is_a_mismatch(real: RealJob) -> None:
    real.commit(real.seal(3), counts_of(out=ROWS_OUT + 1))
    ((kind, epoch, detail),) = mismatches(ledger(real))
    assert (kind, epoch) == (CheckKind.COMMITTED, 3)
    assert detail == f"rows_out of {SINK} is 8 instead of 7"


def test_a_gap_in_the_input_is_a_mismatch(real: RealJob) -> None:
    real.commit(real.seal(3, start=201))
    ((kind, epoch, detail),) = mismatches(ledger(real))
    assert (kind, epoch) == (CheckKind.INPUT, 3)
    assert f"begins at {offset_at(201)}, but epoch 2 ended at {offset_at(200)}" in detail


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({"kept": ROWS_IN}, {CheckKind.WINDOWS}),
        ({"late": ROWS_IN - BAD - KEPT + 1}, {CheckKind.WINDOWS}),
        ({"late": ROWS_IN - BAD - KEPT}, set()),
    ],
)
def test_a_window_with_more_rows_than_were_read_is_not_checked(
    real: RealJob, changes: dict[str, int], kinds: set[CheckKind]
) -> None:
    real.commit(real.seal(3, counts=counts_of(**changes)))
    checks = ledger(real).checks
    assert {each.kind for each in checks if each.verdict is Verdict.UNKNOWN} == kinds
    assert not mismatches(ledger(real))


@pytest.mark.parametrize(
    ("partly_late", "verdict"), [(KEPT, Verdict.OK), (KEPT + 1, Verdict.MISMATCH)]
)
def test_partly_late_rows_are_some_of_the_kept_rows(
    real: RealJob, partly_late: int, verdict: Verdict
) -> None:
    counts = counts_of().model_copy(update={"partly_late_rows": {WINDOW: partly_late}})
    real.commit(real.seal(3, counts=counts))
    (check,) = (each for each in ledger(real).checks if each.kind is CheckKind.PARTLY_LATE)
    assert (check.epoch, check.verdict) == (3, verdict)
    assert check.detail == f"{WINDOW}: {partly_late} partly late of {KEPT} kept rows"


def test_more_bad_rows_than_were_read_are_a_mismatch(real: RealJob) -> None:
    real.commit(real.seal(3, counts=counts_of(bad=ROWS_IN + 1)))
    assert {kind for kind, epoch, _ in mismatches(ledger(real))} == {CheckKind.BAD}


@pytest.mark.parametrize(
    ("bad", "dead", "balances"), [(1, ROWS_IN - KEPT - LATE - 1, True), (BAD, ROWS_IN, False)]
)
def test_dead_rows_are_no_good_rows(real: RealJob, bad: int, dead: int, balances: bool) -> None:
    counts = counts_of(bad=bad).model_copy(update={"dead_rows": {SOURCE: dead}})
    real.commit(real.seal(3, counts=counts))
    found = ledger(real)
    assert found.balances is balances
    assert found.lines[-1].filtered == {WINDOW: ROWS_IN - bad - dead - KEPT - LATE}
    assert found.totals is not None
    assert found.totals.counts.dead_rows == {SOURCE: dead}


def test_an_epoch_whose_parent_is_no_longer_retained_is_not_checked(real: RealJob) -> None:
    shutil.rmtree(real.path(real.backend.paths.epoch(Epoch(1))))
    found = ledger(real)
    assert found.balances
    unknown = {each.kind for each in found.checks if each.verdict is Verdict.UNKNOWN}
    assert unknown == {CheckKind.TOTALS, CheckKind.INPUT}


def test_an_unreadable_manifest_is_not_checked(real: RealJob) -> None:
    real.path(real.manifest_path(2)).write_text("damaged")
    found = ledger(real)
    assert [line.epoch for line in found.lines] == [1]
    reasons = {each.detail for each in found.checks if each.epoch == 2}
    assert len(reasons) == 1
    assert "is not JSON" in reasons.pop()


def test_only_the_last_epochs_are_shown_and_the_others_still_count_as_parents(
    real: RealJob,
) -> None:
    found = ledger(real, last=1)
    assert [line.epoch for line in found.lines] == [2]
    assert {each.verdict for each in found.checks} == {Verdict.OK}


def test_after_a_rollback_totals_continue_from_its_target(real: RealJob) -> None:
    real.backend.record_rollback(real.backend.claim_generation(NOW), Epoch(1), NOW)
    views = kept_checkpoints(real.backend)
    assert real.plan().next_epoch == 3
    first = views[0].manifest
    assert first is not None
    assert ledger_of(views).totals == first.totals
    real.totals = first.totals
    real.files.pop()
    real.commit(real.seal(3, parent=1, start=ROWS_IN))
    found = ledger(real)
    assert [line.status for line in found.lines] == ["valid", "dead", "valid"]
    assert found.balances
    assert found.totals is not None
    assert found.totals.counts.rows_in == {SOURCE: 2 * ROWS_IN}


def test_with_several_sources_it_is_not_known_what_was_filtered_out() -> None:
    two = EpochCounts(rows_in={SOURCE: 10, OperatorId("source-2"): 10}, kept_rows={WINDOW: 5})
    assert filtered_rows(two) == {}
