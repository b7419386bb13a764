"""The ledger: row counts in and out of each epoch, and whether they are consistent. Pure.

Six checks, each over records that were written at different times:

* The totals of a checkpoint are the sum of its parent's totals and its own counts.
* `committed.json` has the same counts as the manifest.
* An epoch's input begins where its parent's input ended.
* No source has more bad and dead rows than rows.
* The rows that a window added to state, and the late rows, are no more than the good rows of its
  source; the rest was filtered out.
* No window has more partly late rows than rows that it added to state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from resurgence.ids import NO_EPOCH, Epoch, OperatorId
from resurgence.state.inspection.checkpoints import CheckpointStatus, CheckpointView, of_each_epoch
from resurgence.state.records import EpochCounts, Manifest, Totals


class Verdict(StrEnum):
    """The result of a check."""

    OK = "ok"
    MISMATCH = "mismatch"
    UNKNOWN = "n/a"
    """The records that it needs do not exist, or are no longer retained."""


class CheckKind(StrEnum):
    """What is checked."""

    TOTALS = "totals are the parent's totals plus the epoch's counts"
    COMMITTED = "committed.json has the counts of the manifest"
    INPUT = "input begins where the parent's input ended"
    BAD = "bad and dead rows do not exceed the rows read"
    WINDOWS = "kept and late rows do not exceed the good rows"
    PARTLY_LATE = "partly late rows do not exceed the kept rows"


@dataclass(frozen=True)
class Check:
    """One check of one epoch."""

    kind: CheckKind
    epoch: Epoch
    verdict: Verdict
    detail: str
    """The numbers, or the reason why there are none."""


@dataclass(frozen=True)
class LedgerLine:
    """The ledger line of one epoch."""

    epoch: Epoch
    status: str
    counts: EpochCounts
    filtered: Mapping[OperatorId, int]
    """Per window: good rows that are neither in state nor late. Empty if it cannot be derived."""
    state_rows: int
    state_bytes: int


@dataclass(frozen=True)
class Ledger:
    """The retained epochs, oldest first; their totals; the checks."""

    lines: tuple[LedgerLine, ...]
    totals: Totals | None
    """None: no manifest is readable."""
    checks: tuple[Check, ...]

    @property
    def balances(self) -> bool:
        return all(each.verdict is not Verdict.MISMATCH for each in self.checks)


def ledger_of(views: Iterable[CheckpointView], last: int | None = None) -> Ledger:
    """Build the ledger of all retained epochs, or of the last `last`. The epochs before those still
    count as parents.
    """
    chosen = of_each_epoch(views)
    shown = list(chosen.values())[-last:] if last else list(chosen.values())
    totals = [
        view.manifest.totals
        for view in chosen.values()
        if view.manifest and view.status is not CheckpointStatus.DEAD
    ]
    return Ledger(
        lines=tuple(_line(view, view.manifest) for view in shown if view.manifest),
        totals=totals[-1] if totals else None,
        checks=tuple(check for view in shown for check in _checks(view, chosen)),
    )


def filtered_rows(counts: EpochCounts) -> dict[OperatorId, int]:
    """Return, per window, the good rows that a filter before it removed. Empty unless there is a
    single source, because otherwise it is unknown which one feeds the window.
    """
    if len(counts.rows_in) != 1:
        return {}
    (source, rows), *_ = counts.rows_in.items()
    good = rows - counts.bad_rows.get(source, 0) - counts.dead_rows.get(source, 0)
    return {
        window: good - kept - counts.late_rows.get(window, 0)
        for window, kept in counts.kept_rows.items()
    }


def _line(view: CheckpointView, manifest: Manifest) -> LedgerLine:
    return LedgerLine(
        epoch=view.epoch,
        status=view.status,
        counts=manifest.counts,
        filtered=filtered_rows(manifest.counts),
        state_rows=view.rows,
        state_bytes=view.bytes,
    )


def _checks(view: CheckpointView, chosen: Mapping[Epoch, CheckpointView]) -> Iterator[Check]:
    manifest = view.manifest
    if manifest is None:
        reason = "; ".join(view.reasons) or "its manifest is unreadable"
        for kind in CheckKind:
            yield Check(kind, view.epoch, Verdict.UNKNOWN, reason)
        return
    parent = chosen.get(manifest.parent)
    yield _totals_check(manifest, parent.manifest if parent else None)
    yield _committed_check(view, manifest)
    yield _input_check(manifest, parent.manifest if parent else None)
    yield from _bad_checks(manifest)
    yield from _window_checks(manifest)
    yield from _partly_late_checks(manifest)


def _totals_check(manifest: Manifest, parent: Manifest | None) -> Check:
    kind, epoch, totals = CheckKind.TOTALS, manifest.epoch, manifest.totals
    if manifest.parent == NO_EPOCH:
        before = Totals(since=epoch, counts=EpochCounts())
    elif parent is None:
        return Check(kind, epoch, Verdict.UNKNOWN, f"epoch {manifest.parent} is not retained")
    else:
        before = parent.totals
    expected = Totals(since=before.since, counts=before.counts.plus(manifest.counts))
    differences = _differences(totals.counts, expected.counts)
    if totals.since != expected.since:
        differences.insert(0, f"since epoch {totals.since} instead of {expected.since}")
    if differences:
        return Check(kind, epoch, Verdict.MISMATCH, "; ".join(differences))
    read = sum(totals.counts.rows_in.values())
    return Check(kind, epoch, Verdict.OK, f"{read:,} rows read since epoch {totals.since}")


def _committed_check(view: CheckpointView, manifest: Manifest) -> Check:
    kind, epoch = CheckKind.COMMITTED, view.epoch
    if view.committed is None:
        reason = view.committed_fault or "not committed yet"
        return Check(kind, epoch, Verdict.UNKNOWN, reason)
    committed, sealed = view.committed.counts, manifest.counts
    differences = _differences(committed, sealed)
    if differences:
        return Check(kind, epoch, Verdict.MISMATCH, "; ".join(differences))
    out = sum(committed.rows_out.values())
    return Check(kind, epoch, Verdict.OK, f"{sum(committed.rows_in.values()):,} in, {out:,} out")


def _input_check(manifest: Manifest, parent: Manifest | None) -> Check:
    kind, epoch = CheckKind.INPUT, manifest.epoch
    if manifest.parent == NO_EPOCH:
        return Check(kind, epoch, Verdict.OK, "first epoch")
    if parent is None:
        return Check(kind, epoch, Verdict.UNKNOWN, f"epoch {manifest.parent} is not retained")
    wrong = [
        f"{source} begins at {each.start}, but epoch {parent.epoch} ended at {before.end}"
        for source, each in manifest.inputs.items()
        if (before := parent.inputs.get(source)) is not None and before.end != each.start
    ]
    if wrong:
        return Check(kind, epoch, Verdict.MISMATCH, "; ".join(wrong))
    return Check(kind, epoch, Verdict.OK, f"after epoch {parent.epoch}")


def _bad_checks(manifest: Manifest) -> Iterator[Check]:
    for source, rows in manifest.counts.rows_in.items():
        bad = manifest.counts.bad_rows.get(source, 0)
        dead = manifest.counts.dead_rows.get(source, 0)
        is_right = bad >= 0 and dead >= 0 and bad + dead <= rows
        verdict = Verdict.OK if is_right else Verdict.MISMATCH
        detail = f"{source}: {bad:,} bad + {dead:,} dead of {rows:,} rows"
        yield Check(CheckKind.BAD, manifest.epoch, verdict, detail)


def _window_checks(manifest: Manifest) -> Iterator[Check]:
    kind, epoch, counts = CheckKind.WINDOWS, manifest.epoch, manifest.counts
    filtered = filtered_rows(counts)
    for window, kept in counts.kept_rows.items():
        late = counts.late_rows.get(window, 0)
        if window not in filtered:
            yield Check(kind, epoch, Verdict.UNKNOWN, f"{window}: there are several sources")
            continue
        rest = filtered[window]
        detail = f"{window}: {kept:,} kept + {late:,} late of {kept + late + rest:,} good rows"
        if rest < 0:
            # UNNEST, a join, GROUPING SETS.
            detail += "; its query may multiply rows"
            yield Check(kind, epoch, Verdict.UNKNOWN, detail)
        else:
            yield Check(kind, epoch, Verdict.OK, detail)


def _partly_late_checks(manifest: Manifest) -> Iterator[Check]:
    for window, partly_late in manifest.counts.partly_late_rows.items():
        kept = manifest.counts.kept_rows.get(window, 0)
        verdict = Verdict.OK if 0 <= partly_late <= kept else Verdict.MISMATCH
        detail = f"{window}: {partly_late:,} partly late of {kept:,} kept rows"
        yield Check(CheckKind.PARTLY_LATE, manifest.epoch, verdict, detail)


def _differences(found: EpochCounts, expected: EpochCounts) -> list[str]:
    """Return the differences between two counts; a missing count is zero."""
    return [
        f"{name} of {operator} is {mine.get(operator, 0):,} instead of {theirs.get(operator, 0):,}"
        for name in EpochCounts.model_fields
        for mine, theirs in [(getattr(found, name), getattr(expected, name))]
        for operator in {**mine, **theirs}
        if mine.get(operator, 0) != theirs.get(operator, 0)
    ]
